"""What `einnet explain --all` tells of a model: candidates that match golden derivations, every step of them proven."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import onnx
import pytest

from einnet.expr.nodes import Scope, reads
from einnet.expr.notation.text import parse
from tests.models import tiny

Candidate = Mapping[str, Any]
CHOICES = {"sum-split", "substitute-sum", "bilinear", "residue", "tile", "relax"}


def end(candidate: Candidate) -> Scope:
    derivation = candidate["derivation"]
    return parse(derivation["steps"][-1]["expression"] if derivation["steps"] else derivation["from"])


def summed(scope: Scope, taps: int) -> bool:
    """The scope, or what its tail reads, adds up something derived over so many taps."""
    count = 1
    for i in scope.sums:
        count *= i.extent
    inner = [r.base for r in reads(scope.body) if isinstance(r.base, Scope)]
    return count == taps or any(summed(s, taps) for s in inner)


def product(candidate: Candidate) -> bool:
    return len(candidate["operators"]) == 1 and "Matmul" in candidate["operators"][0]


def offset_reduce(taps: int) -> Callable[[Candidate], bool]:
    """A product (or a batch of them over the taps) of unmoved data, and a sum of its shifted results."""
    return lambda c: product(c) and {"sum-split", "substitute"} <= set(c["rules"]) and summed(end(c), taps)


def im2col(c: Candidate) -> bool:
    """One product of a copy of the data, nothing summed outside."""
    return product(c) and "relayout" in c["rules"] and not CHOICES & set(c["rules"])


def plain_product(c: Candidate) -> bool:
    return product(c) and not CHOICES & set(c["rules"])


GOLDENS: dict[str, dict[str, Callable[[Candidate], bool]]] = {
    "resnet18": {"G1": offset_reduce(9), "G2": im2col, "G10": plain_product},
    "gcn": {"G1": offset_reduce(9), "G7": offset_reduce(5), "G10": plain_product},
    "infogan": {"G3": offset_reduce(16), "G2": im2col},
}


@pytest.mark.slow
@pytest.mark.parametrize("model", GOLDENS)
def test_candidates_match_goldens(einnet, tmp_path, monkeypatch, model):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    sizes = {"resnet18": {"size": 64}, "gcn": {"size": 64}, "infogan": {}}
    onnx.save(tiny(model, **sizes[model]), tmp_path / "m.onnx")
    arguments = ("--time-budget", 60, "--threads", 1, "--max-depth", 2, "-o", tmp_path / "m.einnet", "--quiet")
    assert einnet("optimize", tmp_path / "m.onnx", *arguments).code == 0
    told = json.loads(einnet("explain", tmp_path / "m.einnet", "--all", "--json", "-").out)
    proven = [c for s in told["subprograms"] for c in s["candidates"] if "derivation" in c]
    assert all(step["proof"]["method"] in ("inline", "random") for c in proven for step in c["derivation"]["steps"])
    missing = [name for name, matches in GOLDENS[model].items() if not any(matches(c) for c in proven)]
    assert not missing
