"""Operands of generated kernels with their dimensions in the order of the loops that walk them: who wrote them may have done so in that order."""

from __future__ import annotations

from dataclasses import replace

from einnet.expr.nodes import Body, Read, Scope, Tensor, map_reads, reads, walk
from einnet.instantiate.kernels import EOperator, View

Order = tuple[int, ...]
"""Which dimension stands at each place."""


def in_loop_order(kernel: EOperator) -> EOperator:
    """The same kernel over transposed views: dimensions of every operand in the order in which loops, then sums, occur where it is first read."""
    orders = {name: order for name, order in loop_orders(kernel.scope).items() if order != tuple(range(len(order)))}
    if not orders:
        return kernel
    operands = tuple((name, transposed(view, orders[name]) if name in orders else view) for name, view in kernel.operands)
    return replace(kernel, scope=_Transposed(orders).scope(kernel.scope), operands=operands)


def loop_orders(scope: Scope) -> dict[str, Order]:
    """By operand: its dimensions by the iterator that moves slowest in their index functions, which walks neighbours; constant ones first."""
    found: dict[str, Order] = {}
    for s in walk(scope):
        place = {i.name: n for n, i in enumerate((*s.loops, *s.sums))}
        for r in reads(s.body):
            if isinstance(r.base, Tensor) and r.base.name not in found:
                first = [min(((abs(ix.coefficient(n)), place[n]) for n in ix.names()), default=(0, -1))[1] for ix in r.index]
                found[r.base.name] = tuple(sorted(range(len(first)), key=first.__getitem__))
    return found


def transposed(view: View, order: Order) -> View:
    """The view with its dimensions in another order."""
    return replace(view, shape=tuple(view.shape[d] for d in order), strides=tuple(view.strides[d] for d in order))


class _Transposed:
    def __init__(self, orders: dict[str, Order]) -> None:
        self.orders = orders
        self.done: dict[Scope, Scope] = {}

    def scope(self, s: Scope) -> Scope:
        if s not in self.done:
            self.done[s] = replace(s, body=map_reads(s.body, self.read))
        return self.done[s]

    def read(self, r: Read) -> Body:
        if isinstance(r.base, Scope):
            return replace(r, base=self.scope(r.base))
        order = self.orders.get(r.base.name)
        if order is None:
            return r
        base = replace(r.base, shape=tuple(r.base.shape[d] for d in order))
        return Read(base, tuple(r.index[d] for d in order), r.fill)
