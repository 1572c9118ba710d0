"""The differences between an expression and a vendor operator that a step removes, each with the step.

The distance to a row counts them by kind, in the order of `COUNTED`. A split, reflection or skew lowers its own count; taps are cut once, into as
few as the row has, and all but the finest are summed outside once; a copy by digits gives every dimension of an operand one role, which none
of the steps after it takes away; a relayout or permutation puts one operand or the result into the canonical order, where it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from einnet.derivation.facts import product_reads
from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.rules.relayout import relayout_read
from einnet.derivation.rules.substitute import alignment, permute, reflect, skew, split, split_all_sums
from einnet.derivation.rules.sum_split import split_sum
from einnet.derivation.steps import Step
from einnet.expr.index import Index
from einnet.expr.nodes import Iter, Scope
from einnet.instantiate.matching.types import Mismatch


def _iterators(core: Scope, names: Iterable[str]) -> tuple[Iter, ...]:
    by_name = {i.name: i for i in (*core.loops, *core.sums)}
    return tuple(by_name[name] for name in names)


def _copied(core: Scope, operand: int, order: Iterable[str], added: tuple[Index, ...]) -> Rewrite | None:
    """An operand copied, with iterators and forms as the dimensions of the copy."""
    operands = product_reads(core.body)
    assert operands is not None
    return relayout_read(core, operands[operand], _iterators(core, order), added)


@dataclass(frozen=True, slots=True)
class Substitution(Mismatch):
    """A difference that replacing one iterator by others removes."""

    iterator: str

    def led_to(self, step: Step) -> bool:
        return step.parameters.startswith(f"{self.iterator}=")


@dataclass(frozen=True, slots=True)
class Split(Substitution):
    """An operand divides a loop: the loop becomes its digits by `divisor`."""

    divisor: int
    name: ClassVar[str] = "split"
    rule: ClassVar[str] = "substitute"
    wraps: ClassVar[bool] = True
    renumbers: ClassVar[bool] = True

    def rewrite(self, core: Scope) -> Rewrite | None:
        (i,) = _iterators(core, [self.iterator])
        return split(core, i, self.divisor, alignment(core, self.iterator, self.divisor))


@dataclass(frozen=True, slots=True)
class Reflect(Substitution):
    """A window runs backwards: the tap is counted from its other end."""

    name: ClassVar[str] = "reflect"
    rule: ClassVar[str] = "substitute-sum"

    def rewrite(self, core: Scope) -> Rewrite | None:
        return reflect(core, *_iterators(core, [self.iterator]))


@dataclass(frozen=True, slots=True)
class Taps(Mismatch):
    """Windows of more taps than the operator has: the taps become their digits by `divisor`."""

    order: tuple[str, ...]
    divisor: int
    name: ClassVar[str] = "taps"
    rule: ClassVar[str] = "substitute-sum"

    def rewrite(self, core: Scope) -> Rewrite | None:
        outcome = split_all_sums(core, list(_iterators(core, self.order)), self.divisor)
        return outcome if isinstance(outcome, Rewrite) else None


@dataclass(frozen=True, slots=True)
class SumSplit(Mismatch):
    """A window of several taps: those of `order` are summed outside of the operator."""

    order: tuple[str, ...]
    name: ClassVar[str] = "sum-split"
    rule: ClassVar[str] = "sum-split"
    wraps: ClassVar[bool] = True

    def rewrite(self, core: Scope) -> Rewrite | None:
        return Rewrite(split_sum(core, _iterators(core, self.order)), "outside=" + ",".join(self.order), "reassociation")


@dataclass(frozen=True, slots=True)
class Skew(Substitution):
    """A dimension adds loops: `iterator` becomes the whole of that index."""

    index: Index
    name: ClassVar[str] = "skew"
    rule: ClassVar[str] = "substitute"
    wraps: ClassVar[bool] = True

    def rewrite(self, core: Scope) -> Rewrite | None:
        return skew(core, self.iterator, self.index)


@dataclass(frozen=True, slots=True)
class Relayout(Mismatch):
    """An operand does not lie as the operator wants it: it is copied, with the iterators of `order` as dimensions.

    The copy keeps the forms `added` as one dimension each, where it would have several for what is only read as their sum.
    """

    operand: int
    order: tuple[str, ...]
    added: tuple[Index, ...] = ()
    name: ClassVar[str] = "relayout"
    rule: ClassVar[str] = "relayout"

    def rewrite(self, core: Scope) -> Rewrite | None:
        return _copied(core, self.operand, self.order, self.added)

    def vain(self, earlier: Sequence[Mismatch]) -> bool:
        return any(isinstance(m, Relayout) and (m.operand, m.order) == (self.operand, self.order) for m in earlier)


@dataclass(frozen=True, slots=True)
class Digits(Mismatch):
    """Dimensions of an operand mix roles: it is copied with the forms `added` as dimensions, of which each has one role.

    `divisor` says by which digits of a dimension, as long as the whole operand has not been looked at.
    """

    divisor: int
    operand: int = 0
    order: tuple[str, ...] = ()
    added: tuple[Index, ...] = ()
    name: ClassVar[str] = "digits"
    rule: ClassVar[str] = "relayout"
    widens: ClassVar[bool] = True

    def rewrite(self, core: Scope) -> Rewrite | None:
        return _copied(core, self.operand, self.order, self.added)


@dataclass(frozen=True, slots=True)
class Permute(Mismatch):
    """The result's dimensions do not lie as the operator gives them: the loops take the `order` given."""

    order: tuple[str, ...]
    name: ClassVar[str] = "permute"
    rule: ClassVar[str] = "reorder"
    wraps: ClassVar[bool] = True

    def rewrite(self, core: Scope) -> Rewrite | None:
        complete = set(self.order) == {i.name for i in core.loops}
        return permute(core, _iterators(core, self.order)) if complete else None

    def vain(self, earlier: Sequence[Mismatch]) -> bool:
        return any(isinstance(m, Permute) for m in earlier)


COUNTED: tuple[type[Mismatch], ...] = (Split, Reflect, Taps, SumSplit, Skew, Digits)


def counts(mismatches: Sequence[Mismatch]) -> tuple[int, ...]:
    """How many there are of each kind that is counted."""
    return tuple(sum(type(m) is kind for m in mismatches) for kind in COUNTED)
