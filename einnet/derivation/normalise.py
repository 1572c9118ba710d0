"""What is forced and no choice: identities folded, sums over residues collapsed, ranges tight, copies merged into their readers."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import lru_cache

from einnet.derivation.facts import is_copy
from einnet.derivation.moves.rule import Refused
from einnet.derivation.rules.forced.delta import determined
from einnet.derivation.rules.forced.drop import dropped
from einnet.derivation.rules.forced.fold import fold_kind, folded
from einnet.derivation.rules.forced.merge import merge_kind, merge_read
from einnet.derivation.rules.forced.residue import collapsed
from einnet.derivation.rules.forced.tighten import tightened
from einnet.derivation.steps import Step, replace_at
from einnet.expr.index import var
from einnet.expr.nodes import Read, Scope, inside, nested, reads

KIND_OF = {"residue": "reassociation", "delta": "reassociation"}

RULES: tuple[tuple[str, Callable[..., Scope]], ...] = (
    ("fold", folded), ("residue", collapsed), ("delta", determined), ("tighten", tightened), ("drop", dropped),
)  # fmt: skip

NONE: frozenset[Scope] = frozenset()


def normalise(e: Scope, kept: frozenset[Scope] = NONE) -> tuple[Scope, tuple[Step, ...]]:
    """The root scope in normal form, with the steps that lead there.

    Scopes in `kept` stay materialised even if they only copy, and keep their ranges (a vendor kernel and its operands, say).
    """
    return _normal(e, kept)


@lru_cache(maxsize=1 << 14)
def _normal(e: Scope, kept: Set[Scope]) -> tuple[Scope, tuple[Step, ...]]:
    steps: list[Step] = []
    for _ in range(64):
        before = e
        e = _once(e, kept, steps)
        if e is before:
            return e, tuple(steps)
    return e, tuple(steps)


def _once(e: Scope, kept: Set[Scope], steps: list[Step]) -> Scope:
    held = frozenset(s for s in nested(e) if s in kept) if kept else NONE
    for rule, f in RULES:
        new = f(e, held) if rule in ("tighten", "drop") else f(e)
        if new != e:
            steps.append(Step(rule, "all", e, new, kind=fold_kind(e) if rule == "fold" else KIND_OF.get(rule, "exact")))
            return new
    for n, s in enumerate(nested(e)):
        narrow = s if s.sums or s in held else folded(s)
        if narrow != s:
            steps.append(Step("fold", "all", s, narrow, (n,), fold_kind(s)))
            return replace_at(e, (n,), narrow)
    for n, r in enumerate(r for r in reads(e.body) if isinstance(r.base, Scope)):
        if isinstance(r.base, Scope) and is_copy(r.base) and r.base not in held and _pays(e, r):
            merged = merge_read(e, r)
            if not isinstance(merged, Refused):
                steps.append(Step("merge", f"scope={n}", e, merged, kind=merge_kind(e, r)))
                return merged
    return e


def _pays(e: Scope, r: Read) -> bool:
    """A copy of another scope always goes; one of a tensor stays in a reduction, where it is a relayout that somebody chose, but for a window."""
    assert isinstance(r.base, Scope) and isinstance(r.base.body, Read)
    return isinstance(r.base.body.base, Scope) or not e.sums or _is_window(r.base, r.base.body)


def _is_window(copy: Scope, read: Read) -> bool:
    """The copy has the dimensions of what it copies, each moved by a constant, and lies within it: nothing is laid out in another way."""
    moved = len(copy.loops) == len(read.index) and all(ix - ix.const == var(i.name) for i, ix in zip(copy.loops, read.index))
    return moved and inside(read, copy.ranges)
