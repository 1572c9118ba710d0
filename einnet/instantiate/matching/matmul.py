"""Matching towards Matmul and batched Matmul: c[b, m, n] = Σ_k a[b, m, k] b[b, k, n] with free strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from einnet.derivation.facts import product_reads, without
from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, Tensor, is_weight, used_names
from einnet.instantiate.address import Address, address_of, flat_index, name_of
from einnet.instantiate.kernels import Matmul, strided_view
from einnet.instantiate.matching.collapse import Dimension, collapse
from einnet.instantiate.matching.contraction import A_B, A_OUT, ALL, B_OUT, form_problems
from einnet.instantiate.matching.mismatches import Permute, Relayout, Skew
from einnet.instantiate.matching.overlap import overlapping
from einnet.instantiate.matching.types import Group, Match, Mismatch, NoFix, Table

ReadOff = tuple[tuple[Read, ...], Mapping[str, Group], Sequence[tuple[str, ...]], Sequence[Address], tuple[Mismatch, ...]]


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
    return _assemble(scope, table, operands, addresses, out_strides, groups, orders)


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


def _assemble(
    scope: Scope,
    table: Table,
    operands: Sequence[Read],
    addresses: Sequence[Address],
    out: Mapping[str, int],
    groups: Mapping[str, Group],
    orders: Sequence[tuple[str, ...]],
) -> Match | list[Mismatch]:
    members = {g: [i for i in (*scope.loops, *scope.sums) if groups.get(i.name) == g] for g in (A_OUT, B_OUT, A_B, ALL)}
    a, b = addresses[0].strides, addresses[1].strides
    innermost = min(out, key=lambda name: out[name]) if out else ""
    swapped = groups.get(innermost) == A_OUT
    if groups.get(innermost) == ALL:
        order = tuple(i.name for g in (ALL, A_OUT, B_OUT) for i in members[g]) + _rest(scope, members)
        return [Permute(f"the result's innermost loop {innermost} is a batch loop", order)]
    if swapped:
        a, b, operands, addresses, orders = b, a, operands[::-1], addresses[::-1], orders[::-1]
        members = {A_OUT: members[B_OUT], B_OUT: members[A_OUT], A_B: members[A_B], ALL: members[ALL]}
    rows, columns = collapse(members[A_OUT], (a, out)), collapse(members[B_OUT], (b, out))
    depth, batches = collapse(members[A_B], (a, b)), collapse(members[ALL], (a, b, out))
    if (batches or not table.batched) and (len(rows) > 1 or len(columns) > 1):
        return _spread(scope, operands, orders, members, (a, b, out), swapped)
    if len(depth) > 1:
        n = _cheaper(operands)
        text = f"the summation iterators do not nest alike in both operands ({name_of(operands[n])} would be copied)"
        return [Relayout(text, _number(n, swapped), orders[n])]
    row = rows[-1] if rows else Dimension((), 1, (0, 0))
    column = columns[-1] if columns else Dimension((), 1, (0, 1))
    k = depth[0] if depth else Dimension((), 1, (1, 1))
    for n, (own, summed) in enumerate(((row.strides[0], k.strides[0]), (column.strides[0], k.strides[1]))):
        if 1 not in (own, summed):
            return [Relayout(f"{name_of(operands[n])} has no unit stride", _number(n, swapped), orders[n])]
    if table.batched and not batches and len(rows) < 2 and len(columns) < 2:
        return [NoFix("no iterator is a batch: it is a plain Matmul")]
    kernel = _kernel(row, column, k, batches, [r for r in rows if r is not row], columns[:-1], addresses)
    bases: tuple[Tensor | Scope, ...] = tuple(r.base for r in operands)
    roles = [("m", row.names), ("n", column.names), ("k", k.names)]
    if table.batched:
        extra = tuple(x for d in (*batches, *(r for r in rows if r is not row), *columns[:-1]) for x in d.names)
        roles.append(("b", extra))
    return Match(table.name, kernel, bases, tuple(roles))


def _rest(scope: Scope, members: Mapping[Group, list[Iter]]) -> tuple[str, ...]:
    taken = {i.name for found in members.values() for i in found}
    return tuple(i.name for i in scope.loops if i.name not in taken)


def _number(n: int, swapped: bool) -> int:
    return 1 - n if swapped else n


def _cheaper(operands: Sequence[Read]) -> int:
    """Which operand to copy: one that is no copy yet; the weight, since that happens at compile time."""
    return min((0, 1), key=lambda n: (isinstance(operands[n].base, Scope), not is_weight(operands[n]), -n))


def _spread(
    scope: Scope,
    operands: Sequence[Read],
    orders: Sequence[tuple[str, ...]],
    members: Mapping[Group, list[Iter]],
    strides: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]],
    swapped: bool,
) -> list[Mismatch]:
    """Rows or columns that are no single dimension: first the result's order is mended, then the operands'."""
    found: list[Mismatch] = []
    a, b, out = strides
    if len(collapse(members[A_OUT], (out,))) > 1 or len(collapse(members[B_OUT], (out,))) > 1:
        order = tuple(i.name for g in (ALL, A_OUT, B_OUT) for i in members[g])
        found.append(Permute("the rows or columns of the result are not adjacent", (*_rest(scope, members), *order)))
    for n, (own, group) in enumerate(((a, A_OUT), (b, B_OUT))):
        wanted = [i.name for i in members[group]]
        actual = [x for d in collapse(members[group], (own,)) for x in d.names]
        if len(collapse(members[group], (own,))) > 1 or actual != wanted:
            why = f"the {'rows' if n == 0 else 'columns'} do not nest in {name_of(operands[n])}"
            found.append(Relayout(why, _number(n, swapped), orders[n]))
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
