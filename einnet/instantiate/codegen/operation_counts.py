"""What a kernel does, counted from its expression: operations, and elements that have to move."""

from __future__ import annotations

from math import prod

from einnet.derivation.rules.transitions import running
from einnet.expr.index import Index, bounds
from einnet.expr.nodes import Body, Const, Read, Scope, Val, reads
from einnet.expr.nodes import Call as ScalarCall
from einnet.expr.nodes import children as operands
from einnet.expr.selection import selection
from einnet.instantiate.codegen.ir import PICK, Apply, Expr, Load, Ranges, Reduce, children


def operations(e: Expr) -> int:
    """Loads and operations at one point of a nest; functions are counted as computed elsewhere."""
    below = sum(operations(a) for a in children(e))
    match e:
        case Reduce(op, _, _) if op == PICK:
            return below + 1
        case Reduce(_, sums, _):
            return (below + 1) * prod(i.extent for i in sums)
        case Apply(op, args):
            return below + (len(args) - 1 if len(args) > 1 else 1 if op in ("relu", "abs") else 8)
        case Load():
            return 1
    return below


def flops(scope: Scope) -> int:
    """Arithmetic operations of the scope and of each distinct scope inside, a function call counted as one."""
    return sum(_flops(s) for s in _distinct(scope))


def moved_bytes(scope: Scope) -> int:
    """Bytes that have to move: every element of the output, and every element of a tensor that is read, once."""
    read: dict[str, int] = {}
    for s in _distinct(scope):
        for r in reads(s.body):
            if not isinstance(r.base, Scope):
                read[r.base.name] = min(prod(r.base.shape), read.get(r.base.name, 0) + touched(r, s.ranges))
    return 4 * (prod(scope.shape) + sum(read.values()))


def touched(r: Read, ranges: Ranges) -> int:
    """Distinct elements that one read can reach, by its dimensions' intervals."""
    return prod(_reach(e, box, ranges) for e, box in zip(r.index, r.base.box))


def _reach(e: Index, box: tuple[int, int], ranges: Ranges) -> int:
    lo, hi = bounds(e, ranges)
    values = prod(ranges[n][1] - ranges[n][0] for n in e.names())
    return max(0, min(hi + 1, box[1]) - max(lo, box[0])) if values >= hi + 1 - lo else min(values, box[1] - box[0])


def _distinct(scope: Scope) -> list[Scope]:
    found: dict[Scope, None] = {}

    def visit(s: Scope) -> None:
        if s not in found:
            found[s] = None
            for r in reads(s.body):
                if isinstance(r.base, Scope):
                    visit(r.base)

    visit(scope)
    return list(found)


def _flops(s: Scope) -> int:
    recurrence = running(s)
    steps = 1 if selection(s) else prod(i.extent for i in (recurrence.sums if recurrence else s.sums))
    return prod(s.shape) * (steps * _operators(s.body) + (steps - 1 if s.sums else 0))


def _operators(body: Body) -> int:
    args = operands(body)
    if isinstance(body, (Const, Val, Read)) or not args:
        return 0
    own = 1 if isinstance(body, ScalarCall) else len(args) - 1
    return own + sum(_operators(a) for a in args)
