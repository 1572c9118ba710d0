"""Matching towards Matmul and batched Matmul: c[b, m, n] = Σ_k a[b, m, k] b[b, k, n] with free strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from einnet.derivation.facts import product_reads, without
from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, is_weight, used_names
from einnet.instantiate.address import Address, address_of, flat_index, name_of
from einnet.instantiate.kernels import Matmul, strided_view
from einnet.instantiate.matching.collapse import Dimension, collapse
from einnet.instantiate.matching.contraction import A_B, A_OUT, ALL, B_OUT, form_problems
from einnet.instantiate.matching.mismatches import Permute, Relayout, Skew
from einnet.instantiate.matching.overlap import overlapping
from einnet.instantiate.matching.types import Group, Match, Mismatch, NoFix, Table

Orders = Sequence[tuple[str, ...]]
ReadOff = tuple[tuple[Read, ...], Mapping[str, Group], Orders, Sequence[Address], tuple[Mismatch, ...]]


@dataclass(frozen=True, slots=True)
class _Sides:
    """A product as the library has it: rows in the first operand, columns in the second, which has the innermost loop of the result.

    The operands are `swapped` where the expression has them in the other order.
    """

    operands: Sequence[Read]
    addresses: Sequence[Address]
    orders: Orders
    members: Mapping[Group, list[Iter]]
    out: Mapping[str, int]
    swapped: bool

    def turned(self) -> _Sides:
        """The same with the operands in the other order."""
        members = {A_OUT: self.members[B_OUT], B_OUT: self.members[A_OUT], A_B: self.members[A_B], ALL: self.members[ALL]}
        return _Sides(self.operands[::-1], self.addresses[::-1], self.orders[::-1], members, self.out, not self.swapped)

    def dimensions(self, group: Group) -> list[Dimension]:
        """The iterators of a group as few dimensions, strided in every operand that has them and, for loops, in the result."""
        strides = (*(a.strides for a, has in zip(self.addresses, group) if has), *((self.out,) if group[2] else ()))
        return collapse(self.members[group], strides)

    def relayout(self, why: str, n: int) -> Relayout:
        """A copy of operand n, in the order in which the library wants it."""
        return Relayout(why, 1 - n if self.swapped else n, self.orders[n])


def match_matmul(scope: Scope, table: Table) -> Match | list[Mismatch]:
    """The (batched) Matmul that computes a sum of products of two reads, or the mismatches left."""
    found = _read_off(scope)
    if isinstance(found, list):
        return list(found)
    operands, groups, orders, addresses, problems = found
    if not table.batched and any(g == ALL for g in groups.values()):
        batch = next(n for n, g in groups.items() if g == ALL)
        problems = (*problems, NoFix(f"iterator {batch} stands in both operands and in the result"))
    if problems:
        return list(problems)
    out = flat_index([var(i.name) for i in scope.loops], scope.box, scope.ranges)
    out_strides = {name: c for name, c in out.terms if isinstance(name, str)}
    members = {g: [i for i in (*scope.loops, *scope.sums) if groups.get(i.name) == g] for g in (A_OUT, B_OUT, A_B, ALL)}
    sides = _Sides(operands, addresses, orders, members, out_strides, False)
    innermost = min(out_strides, key=lambda name: out_strides[name]) if out_strides else ""
    if groups.get(innermost) == ALL:
        order = (*(i.name for g in (ALL, A_OUT, B_OUT) for i in members[g]), *_rest(scope, members))
        return [Permute(f"the result's innermost loop {innermost} is a batch loop", order)]
    return _assemble(scope, table, sides.turned() if groups.get(innermost) == A_OUT else sides)


@lru_cache(maxsize=1 << 13)
def _read_off(scope: Scope) -> list[Mismatch] | ReadOff:
    """What does not depend on the row: the operands, where every iterator stands, orders of copies, addresses, and differences; or those alone."""
    problems = form_problems(scope)
    if problems:
        return problems
    operands = product_reads(scope.body)
    assert operands is not None and len(operands) == 2
    problems = skew_problems(scope, operands)
    if problems:
        return problems
    iters = [i for i in (*scope.loops, *scope.sums) if i.extent > 1]
    groups = {i.name: group_of(i, operands, scope) for i in iters}
    if not any(g == A_B for g in groups.values()):
        return [NoFix("nothing is summed over both operands")]
    orders = [relayout_order(scope, operands, n, groups) for n in (0, 1)]
    addresses: list[Address] = []
    for n, r in enumerate(operands):
        found = address_of(r, scope.ranges)
        if isinstance(found, str):
            problems.append(Relayout(found, n, orders[n], overlapping(r, scope, groups)))
        else:
            addresses.append(found)
    return operands, groups, orders, addresses, tuple(problems)


def skew_problems(scope: Scope, operands: Sequence[Read]) -> list[Mismatch]:
    """Index functions that add two loops: a skew takes one of them out of the operand."""
    loops = {i.name for i in scope.loops if i.extent > 1}
    found: list[Skew] = []
    for n, r in enumerate(operands):
        others = without(operands, n)
        for ix in r.index:
            mine = [a for a, _ in ix.terms if isinstance(a, str) and a in loops]
            if len(mine) > 1 and not _separates(ix, scope) and not _in_blocks(ix, mine, operands, scope) and not any(m.index == ix for m in found):
                free = [i for i in mine if abs(ix.coefficient(i)) == 1 and not any(i in used_names(o) for o in others)]
                text = f"a dimension of {name_of(r)} adds the loops {', '.join(mine)}"
                if free and ix.names() <= loops | _units(scope):
                    found.append(Skew(text, free[0], ix))
    return list(found)


def _separates(ix: Index, scope: Scope) -> bool:
    """Different values of the iterators give different indices, because each coefficient exceeds the reach of the smaller ones."""
    reach = 0
    for c, extent in sorted((abs(c), scope.ranges[a][1] - scope.ranges[a][0]) for a, c in ix.terms if isinstance(a, str)):
        if c <= reach:
            return False
        reach += c * (extent - 1)
    return ix.is_affine


def _in_blocks(ix: Index, names: Sequence[str], operands: Sequence[Read], scope: Scope) -> bool:
    """All but one of the loops step over blocks of that one and are batch loops, whose windows may overlap."""
    smallest, *blocks = sorted(names, key=lambda n: abs(ix.coefficient(n)))
    return all(abs(ix.coefficient(n)) > abs(ix.coefficient(smallest)) for n in blocks) and all(
        group_of(i, operands, scope) == ALL for i in scope.loops if i.name in blocks
    )


def _units(scope: Scope) -> frozenset[str]:
    return frozenset(i.name for i in scope.loops if i.extent == 1)


def group_of(i: Iter, operands: Sequence[Read], scope: Scope) -> Group:
    """Membership of an iterator in (A, B, result)."""
    return i.name in used_names(operands[0]), i.name in used_names(operands[1]), i in scope.loops


def relayout_order(scope: Scope, operands: Sequence[Read], n: int, groups: Mapping[str, Group]) -> tuple[str, ...]:
    """Dimensions of a copy of operand n: batch, own loops in the result's order, summation iterators in the order of the leading operand.

    Where that has two of them in one dimension, the other operand's order decides; the order in which a sum is written never does.
    """
    own = used_names(operands[n])
    loops = [i.name for i in scope.loops if i.name in own]
    batch = [x for x in loops if groups.get(x) == ALL]
    lead = next((r for r in operands if not is_weight(r)), operands[0])
    both = (lead, *(r for r in operands if r is not lead))
    position = {i.name: tuple(next((p for p, ix in enumerate(r.index) if i.name in ix.names()), len(r.index)) for r in both) for i in scope.sums}
    sums = sorted((i.name for i in scope.sums if i.name in own), key=position.__getitem__)
    return (*batch, *(x for x in loops if x not in batch), *sums)


def _assemble(scope: Scope, table: Table, sides: _Sides) -> Match | list[Mismatch]:
    """The kernel, or what keeps rows, columns and what is summed from being one dimension each."""
    rows, columns, depth, batches = (sides.dimensions(group) for group in (A_OUT, B_OUT, A_B, ALL))
    spread = len(rows) > 1 or len(columns) > 1
    if spread and (batches or not table.batched):
        return _spread(scope, sides)
    if len(depth) > 1:
        n = _cheaper(sides.operands)
        return [sides.relayout(f"the summation iterators do not nest alike in both operands ({name_of(sides.operands[n])} would be copied)", n)]
    row = rows[-1] if rows else Dimension((), 1, (0, 0))
    column = columns[-1] if columns else Dimension((), 1, (0, 1))
    k = depth[0] if depth else Dimension((), 1, (1, 1))
    for n, strides in enumerate(((row.strides[0], k.strides[0]), (column.strides[0], k.strides[1]))):
        if 1 not in strides:
            return [sides.relayout(f"{name_of(sides.operands[n])} has no unit stride", n)]
    if table.batched and not batches and not spread:
        return [NoFix("no iterator is a batch: it is a plain Matmul")]
    kernel = _kernel(row, column, k, batches, rows[:-1], columns[:-1], sides.addresses)
    roles = [("m", row.names), ("n", column.names), ("k", k.names)]
    if table.batched:
        roles.append(("b", tuple(x for d in (*batches, *rows[:-1], *columns[:-1]) for x in d.names)))
    return Match(table.name, kernel, tuple(r.base for r in sides.operands), tuple(roles))


def _rest(scope: Scope, members: Mapping[Group, list[Iter]]) -> tuple[str, ...]:
    taken = {i.name for found in members.values() for i in found}
    return tuple(i.name for i in scope.loops if i.name not in taken)


def _cheaper(operands: Sequence[Read]) -> int:
    """Which operand to copy: one that is no copy yet; the weight, since that happens at compile time."""
    return min((0, 1), key=lambda n: (isinstance(operands[n].base, Scope), not is_weight(operands[n]), -n))


def _spread(scope: Scope, sides: _Sides) -> list[Mismatch]:
    """Rows or columns that are no single dimension: first the result's order is mended, then the operands'."""
    found: list[Mismatch] = []
    if any(len(collapse(sides.members[group], (sides.out,))) > 1 for group in (A_OUT, B_OUT)):
        order = (*_rest(scope, sides.members), *(i.name for g in (ALL, A_OUT, B_OUT) for i in sides.members[g]))
        found.append(Permute("the rows or columns of the result are not adjacent", order))
    for n, (group, what) in enumerate(((A_OUT, "rows"), (B_OUT, "columns"))):
        own = collapse(sides.members[group], (sides.addresses[n].strides,))
        if len(own) > 1 or [x for d in own for x in d.names] != [i.name for i in sides.members[group]]:
            found.append(sides.relayout(f"the {what} do not nest in {name_of(sides.operands[n])}", n))
    return found or [NoFix("rows or columns do not nest alike in operand and result")]


def _kernel(
    row: Dimension,
    column: Dimension,
    k: Dimension,
    batches: Sequence[Dimension],
    rows: Sequence[Dimension],
    columns: Sequence[Dimension],
    addresses: Sequence[Address],
) -> Matmul:
    shape_a = [*(d.extent for d in batches), *(d.extent for d in rows), *(1 for _ in columns)]
    shape_b = [*(d.extent for d in batches), *(1 for _ in rows), *(d.extent for d in columns)]
    shape_c = [*(d.extent for d in batches), *(d.extent for d in rows), *(d.extent for d in columns)]
    stride_a = [*(d.strides[0] for d in batches), *(d.strides[0] for d in rows), *(0 for _ in columns)]
    stride_b = [*(d.strides[1] for d in batches), *(0 for _ in rows), *(d.strides[0] for d in columns)]
    stride_c = [*(d.strides[2] for d in batches), *(d.strides[1] for d in rows), *(d.strides[1] for d in columns)]

    return Matmul(
        strided_view("0", (*shape_a, row.extent, k.extent), (*stride_a, row.strides[0], k.strides[0]), addresses[0].offset),
        strided_view("1", (*shape_b, k.extent, column.extent), (*stride_b, k.strides[1], column.strides[0]), addresses[1].offset),
        strided_view("out", (*shape_c, row.extent, column.extent), (*stride_c, row.strides[1], column.strides[1]), 0),
    )
