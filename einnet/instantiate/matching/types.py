"""What matching speaks of: rows of the operator table, matches, and what stands in the way of one.

A row is data and the function that matches by it. Membership decides what an iterator's group means; the other columns are read by the row's
own matcher, which knows its kind of operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import ClassVar

from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.steps import Step
from einnet.expr.integers import MOST_TERMS
from einnet.expr.nodes import Scope, Tensor
from einnet.expr.notation.latex import name_latex
from einnet.expr.notation.markup import name_html, wrapped
from einnet.expr.remember import Hashed, hashed_once
from einnet.instantiate.address import single
from einnet.instantiate.kernels import Conv, VendorKernel
from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.instantiate.kernels.contractions import Contraction

Group = tuple[bool, ...]
"""Membership in the operands, in order, and in the result."""


@hashed_once
@dataclass(frozen=True, slots=True)
class Table(Hashed):
    """One row: a vendor operator by its iterators' groups (paper table 2) and the function that matches by them.

    `roles` names the groups; `windows`: the first operand may be read at loop·stride + tap·dilation - pad, outside its box too; `batched`: roles
    may spread over several strided dimensions beside the main one; `taps`: most taps of a window, 0 for any number. `sums`: the operator's
    outermost scope has a summation iterator, so that other scopes need not be looked at.
    """

    name: str
    roles: tuple[tuple[str, Group], ...]
    attributes: str
    matcher: Matcher
    windows: bool = False
    batched: bool = False
    taps: int = 0
    sums: bool = True

    def match(self, scope: Scope) -> Match | list[Mismatch]:
        """A kernel over placeholder buffers "0", "1", ... (the operands in order) and "out" that computes the scope, or what differs.

        The number of differences is the expression distance that converging derivation brings down to 0.
        """
        found = _matched(scope, self)
        return list(found) if isinstance(found, tuple) else found


@dataclass(frozen=True, slots=True)
class Operator:
    """A vendor operator: its kernel, the rows by which expressions are matched to it, and the backends whose library has it (None: all)."""

    kernel: type[VendorKernel]
    tables: tuple[Table, ...]
    backends: tuple[str, ...] | None = None


@hashed_once
@dataclass(frozen=True, slots=True)
class Match(Hashed):
    """A vendor kernel that computes the scope. `operands` are the tensors or scopes behind the placeholder buffers "0", "1", ..."""

    table: str
    kernel: VendorKernel
    operands: tuple[Tensor | Scope, ...]
    roles: tuple[tuple[str, tuple[str, ...]], ...]

    def reading(self, operands: tuple[Tensor | Scope, ...]) -> Match:
        """The match with these operands, itself where they are its own."""
        same = all(a is b for a, b in zip(operands, self.operands))
        return self if same else Match(self.table, self.kernel, operands, self.roles)

    def __str__(self) -> str:
        return f"{self.table}({', '.join(f'{role}={chr(42).join(names) or 1}' for role, names in self.roles)})"

    def _repr_html_(self) -> str:
        roles = ", ".join(f"{role} = {'·'.join(map(name_html, names)) or 1}" for role, names in self.roles)
        return wrapped(f'<span class="tensor">{self.table}</span>({roles})')

    def _repr_latex_(self) -> str:
        times = r" \cdot "
        roles = r",\; ".join(rf"\mathrm{{{role}}} = {times.join(map(name_latex, names)) or 1}" for role, names in self.roles)
        return rf"$\mathrm{{{self.table}}}({roles})$"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference between an expression and a row, and the step that removes it.

    `name` is what people call the step and `rule` the derivation rule that makes it. `wraps`: the operator's scope then stands inside of another
    one; `widens`: what it reads may then be larger than needed; `renumbers`: it only numbers the loops as the operator does.
    """

    why: str
    name: ClassVar[str] = "step"
    rule: ClassVar[str] = ""
    wraps: ClassVar[bool] = False
    widens: ClassVar[bool] = False
    renumbers: ClassVar[bool] = False

    def rewrite(self, core: Scope) -> Rewrite | None:
        """The scope without this difference; None where nothing makes it one."""
        return None

    def mend(self, core: Scope) -> Step | None:
        """The step from the scope to one without this difference, None where it does not apply."""
        found = self.rewrite(core)
        return Step(self.rule, found.parameters, core, found.scope, (), found.kind) if found is not None else None

    def led_to(self, step: Step) -> bool:
        """The step replaces just the iterator that this is about."""
        return False

    def vain(self, earlier: Sequence[Mismatch]) -> bool:
        """Steps for these differences were taken before, after which this one cannot bring anything new."""
        return False


@dataclass(frozen=True, slots=True)
class NoFix(Mismatch):
    """The form itself differs: no step of a converging derivation mends that."""


@lru_cache(maxsize=1 << 14)
def _matched(scope: Scope, table: Table) -> Match | tuple[Mismatch, ...]:
    """What the row's own matcher says, once: a search comes by the same scope on many ways."""
    found = table.matcher(scope, table)
    if isinstance(found, Match) and not all(map(single, found.operands)):
        return in_bytes(found) or (NoFix("an operand has elements of another type than float32"),)
    return tuple(found) if isinstance(found, list) else found


def in_bytes(found: Match) -> Match | None:
    """The match of a contraction whose factors are integers in memory as an arithmetic has them: a product of bytes."""
    kinds = tuple("f32" if isinstance(o, Scope) else o.dtype for o in found.operands)
    arithmetic = next((a for a in ARITHMETICS.values() if a.elements == kinds), None)
    if arithmetic is None or not isinstance(found.kernel, Contraction) or (isinstance(found.kernel, Conv) and found.kernel.transposed):
        return None
    terms = found.kernel.flops // (2 * prod(found.kernel.result.shape))
    return replace(found, kernel=found.kernel.in_arithmetic(arithmetic)) if terms <= MOST_TERMS else None


Matcher = Callable[[Scope, Table], Match | list[Mismatch]]
"""Matches a scope by a row."""
