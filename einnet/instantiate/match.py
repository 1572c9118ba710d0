"""Operator matching: an expression against an iterator mapping table (paper section 5.1).

`match(scope, table)` gives a `Match`, a kernel over placeholder buffers "0" and "1" (the operands in order) and "out", or the list of
`Mismatch`es that stand in the way. Their number is the expression distance that converging derivation brings down to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from einnet.derivation.facts import product_reads
from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Read, Scope, Tensor, used_names
from einnet.instantiate.kernels import Conv, Matmul
from einnet.instantiate.tables import Table


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference between an expression and a table.

    `fix` is the kind of step that removes it: "taps" (order of taps, divisor), "sum-split" (order of those that stay outside), "split" (iterator,
    divisor), "skew" (iterator, index), "reflect" (tap), "relayout" (operand number, order of iterators, and forms over which the copy keeps
    them added), "digits" (the same, for dimensions that mix roles), "permute" (order of loops), or "none" where the form itself differs.
    """

    why: str
    fix: str = "none"
    iterator: str = ""
    divisor: int = 0
    index: Index | None = None
    operand: int = 0
    order: tuple[str, ...] = ()
    added: tuple[Index, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A vendor kernel that computes the scope. `operands` are the tensors or scopes behind the placeholder buffers "0", "1"."""

    table: str
    kernel: Matmul | Conv
    operands: tuple[Tensor | Scope, ...]
    roles: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        return f"{self.table}({', '.join(f'{role}={chr(42).join(names) or 1}' for role, names in self.roles)})"

    def _repr_html_(self) -> str:
        from einnet.expr.markup import name_html, wrapped

        roles = ", ".join(f"{role} = {'·'.join(map(name_html, names)) or 1}" for role, names in self.roles)
        return wrapped(f'<span class="tensor">{self.table}</span>({roles})')

    def _repr_latex_(self) -> str:
        from einnet.expr.latex import name_latex

        times = r" \cdot "
        roles = r",\; ".join(rf"\mathrm{{{role}}} = {times.join(map(name_latex, names)) or 1}" for role, names in self.roles)
        return rf"$\mathrm{{{self.table}}}({roles})$"


def match(scope: Scope, table: Table) -> Match | list[Mismatch]:
    """The kernel of the table that computes the scope, or what differs."""
    problems = form_problems(scope)
    if problems:
        return problems
    from einnet.instantiate.match_conv import match_conv
    from einnet.instantiate.match_matmul import match_matmul

    return match_conv(scope, table) if table.windows else match_matmul(scope, table)


def form_problems(scope: Scope) -> list[Mismatch]:
    """What no step of a converging derivation can mend, and divisions of loops, which a split removes."""
    if scope.reduce != "sum" or not scope.sums:
        return [Mismatch(f"it is no sum ({'no summation iterator' if not scope.sums else scope.reduce})")]
    operands = product_reads(scope.body)
    if operands is None or len(operands) != 2:
        return [Mismatch("its body is no product of two reads")]
    if any(isinstance(r.base, Tensor) and r.base.values is not None for r in operands):
        return [Mismatch("an operand is the small constant matrix of an algorithm: such transforms are generated")]
    if any(r.fill != 0 for r in operands):
        return [Mismatch("an operand is read with another fill than 0")]
    names = [used_names(r) for r in operands]
    for i in scope.sums:
        if i.extent > 1 and not (i.name in names[0] and i.name in names[1]):
            return [Mismatch(f"summation iterator {i.name} does not stand in both operands")]
    for i in scope.loops:
        if i.extent > 1 and not (i.name in names[0] or i.name in names[1]):
            return [Mismatch(f"loop {i.name} stands in no operand")]
    return split_problems(scope, operands)


def split_problems(scope: Scope, operands: tuple[Read, ...]) -> list[Mismatch]:
    """Loops that an operand divides: `f//d` wants f = d·f' + f''."""
    found: list[Mismatch] = []
    loops = {i.name for i in scope.loops}
    for r in operands:
        for ix in r.index:
            for atom, _ in ix.terms:
                if isinstance(atom, Floor) and len(atom.num.terms) == 1 and atom.num.terms[0][1] == 1:
                    name = atom.num.terms[0][0]
                    if isinstance(name, str) and name in loops and not any(m.iterator == name for m in found):
                        if scope.ranges[name][1] - scope.ranges[name][0] <= atom.den:
                            return [Mismatch(f"loop {name} is divided by {atom.den}, and has no more values than that")]
                        found.append(Mismatch(f"loop {name} is divided by {atom.den}", "split", iterator=name, divisor=atom.den))
    return found
