"""What all contractions have in common: a sum over a product of two reads."""

from __future__ import annotations

from collections.abc import Sequence

from einnet.derivation.facts import product_reads
from einnet.expr.index import Floor
from einnet.expr.nodes import Read, Scope, Tensor, used_names
from einnet.instantiate.matching.mismatches import Split
from einnet.instantiate.matching.types import Group, Mismatch, NoFix

A_OUT: Group = (True, False, True)
B_OUT: Group = (False, True, True)
A_B: Group = (True, True, False)
ALL: Group = (True, True, True)


def form_problems(scope: Scope) -> list[Mismatch]:
    """What no step of a converging derivation can mend, and divisions of loops, which a split removes."""
    if scope.reduce != "sum" or not scope.sums:
        return [NoFix(f"it is no sum ({'no summation iterator' if not scope.sums else scope.reduce})")]
    operands = product_reads(scope.body)
    if operands is None or len(operands) != 2:
        return [NoFix("its body is no product of two reads")]
    if any(isinstance(r.base, Tensor) and r.base.values is not None for r in operands):
        return [NoFix("an operand is the small constant matrix of an algorithm: such transforms are generated")]
    if any(r.fill != 0 for r in operands):
        return [NoFix("an operand is read with another fill than 0")]
    names = [used_names(r) for r in operands]
    for i in scope.sums:
        if i.extent > 1 and not (i.name in names[0] and i.name in names[1]):
            return [NoFix(f"summation iterator {i.name} does not stand in both operands")]
    for i in scope.loops:
        if i.extent > 1 and not (i.name in names[0] or i.name in names[1]):
            return [NoFix(f"loop {i.name} stands in no operand")]
    return list(split_problems(scope, operands))


def split_problems(scope: Scope, operands: Sequence[Read]) -> Sequence[Mismatch]:
    """Loops that an operand divides: `f//d` wants f = d·f' + f''."""
    found: list[Split] = []
    loops = {i.name for i in scope.loops}
    for r in operands:
        for ix in r.index:
            for atom, _ in ix.terms:
                if isinstance(atom, Floor) and len(atom.num.terms) == 1 and atom.num.terms[0][1] == 1:
                    name = atom.num.terms[0][0]
                    if isinstance(name, str) and name in loops and not any(m.iterator == name for m in found):
                        if scope.ranges[name][1] - scope.ranges[name][0] <= atom.den:
                            return [NoFix(f"loop {name} is divided by {atom.den}, and has no more values than that")]
                        found.append(Split(f"loop {name} is divided by {atom.den}", name, atom.den))
    return found
