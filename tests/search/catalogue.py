"""The expressions of catalogue.txt by group and name, and one-dimensional transposed convolutions of any kernel, stride and padding."""

from __future__ import annotations

from pathlib import Path

from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse


def _groups() -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = {}
    for section in Path(__file__).with_name("catalogue.txt").read_text(encoding="utf-8").split("\n== ")[1:]:
        title, _, rest = section.partition("\n")
        groups[title] = {}
        for block in rest.split("\n# ")[1:]:
            name, _, text = block.partition("\n")
            groups[title][name] = text.strip()
    return groups


def transposed(k: int, s: int, p: int, size: int = 4) -> str:
    """Kernel k, stride s, padding p, channels last."""
    out = (size - 1) * s + k - 2 * p
    return f"A : f32[{size},2]\nK : weight f32[{k},2,3]\nL[h<{out},f<3] Σ[c<2,r<{k}] A[(h-r+{p})/{s},c]*K[r,c,f]"


GROUPS = _groups()
GROUPS["transposed"] |= {
    f"k{k} s{s} p{p}": transposed(k, s, p) for k in (2, 3, 4, 5, 9) for s in (1, 2, 3, 4) for p in range(5) if 3 * s + k > 2 * p
}
CATALOGUE = {f"{title}: {name}": text for title, group in GROUPS.items() for name, text in group.items()}


def expression(name: str) -> Scope:
    return parse(CATALOGUE[name])
