"""Masks: weights that are a number in a region and infinite outside it become a choice on affine conditions, compared element by element.

Exporters also write a number so negative that a score does not change it. Before a softmax, every row of which has an unmasked score, that is minus
infinity: as long as no score reaches a tenth of it, float32 has the same sum, maximum and exponential for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from fractions import Fraction

import numpy as np

from einnet.expr.index import substitute, var
from einnet.expr.nodes import Add, Body, Call, Cond, Const, Iter, Mul, Read, Scope, Select, Tensor, map_reads
from einnet.graph.operators.choice import conditions
from einnet.graph.operators.op import number
from einnet.graph.program import Node, Program, ProgramNode

Region = tuple[tuple[Cond, ...], Const, Const]
"""Conditions on the iterators `i0`, `i1`, ... of the dimensions, the value where they hold, and the one where they do not."""


SAMPLED = 64
"""Elements of an array by which most show that they have more than two values."""

LARGE = -1e30
"""What is less is minus infinity before a softmax."""


def recover_masks(program: Program) -> Program:
    """Reads of such weights, one loop to a dimension, as choices."""
    weights = {**program.weights, **infinite_before_softmax(program)}
    known: dict[str, Region | None] = {}
    nodes = [replace(n, scope=chosen(n.scope, weights, known)) if isinstance(n, Node) else n for n in program.nodes]
    return replace(program, nodes=tuple(nodes))


def infinite_before_softmax(program: Program) -> dict[str, np.ndarray]:
    """Masks that are added to what only softmaxes read, with minus infinity for what is less than `LARGE`."""
    users, given_out = program.users(), {tensor for _, tensor in program.outputs}
    found: dict[str, np.ndarray] = {}
    for name, value in program.weights.items():
        if value.dtype != np.float32 or value.ndim < 2:
            continue
        sums = [n for n in users.get(name, []) if isinstance(n, Node) and _adds(n.scope, name) and n.output.name not in given_out]
        if len(sums) < len(users.get(name, [])) or not all(_is_softmax(n, users.get(n.output.name, [])) for n in sums):
            continue
        if (value < LARGE).any() and (value >= LARGE).any(axis=-1).all():
            found[name] = np.where(value < LARGE, np.float32(-np.inf), value)
    return found


def _adds(scope: Scope, name: str) -> bool:
    """A term is the read of that tensor, its last dimension along the scope's."""
    body = scope.body
    terms = [a for a in body.args if isinstance(a, Read) and isinstance(a.base, Tensor) and a.base.name == name] if isinstance(body, Add) else []
    return not scope.sums and bool(terms) and all(t.index[-1] == var(scope.loops[-1].name) for t in terms)


def _is_softmax(scores: Node, readers: Sequence[ProgramNode]) -> bool:
    """The scores are read by their maxima along the last dimension, and by exponentials of their differences from these."""
    name = scores.output.name
    maxima = [n for n in readers if isinstance(n, Node) and n.scope.reduce == "max" and _is_row(n.scope, name)]
    tops = {n.output.name for n in maxima}
    return bool(maxima) and all(n in maxima or (isinstance(n, Node) and _is_power(n.scope.body, name, tops)) for n in readers)


def _is_row(scope: Scope, name: str) -> bool:
    body = scope.body
    read = isinstance(body, Read) and isinstance(body.base, Tensor) and body.base.name == name
    return read and len(scope.sums) == 1 and body.index[-1] == var(scope.sums[0].name)  # type: ignore[union-attr]


def _is_power(body: Body, name: str, tops: Set[str]) -> bool:
    """exp(scores - their maxima)."""
    if not isinstance(body, Call) or body.name != "exp" or not isinstance(body.args[0], Add) or len(body.args[0].args) != 2:
        return False
    score, top = body.args[0].args
    minus = top.args[1] if isinstance(top, Mul) and len(top.args) == 2 and top.args[0] == Const(Fraction(-1)) else None
    bases = [r.base.name if isinstance(r, Read) and isinstance(r.base, Tensor) else "" for r in (score, minus)]
    return bases[0] == name and bases[1] in tops


def chosen(scope: Scope, weights: Mapping[str, np.ndarray], known: dict[str, Region | None]) -> Scope:
    """L[x] f(M[x]) = L[x] f(select(x in region, a, b)) for a mask M."""

    def choose(r: Read) -> Body:
        if not isinstance(r.base, Tensor) or r.base.name not in weights or not whole(r, r.base, scope):
            return r
        if r.base.name not in known:
            known[r.base.name] = region(weights[r.base.name])
        found = known[r.base.name]
        if found is None:
            return r
        conds, inside, outside = found
        mapping = {f"i{n}": ix for n, ix in enumerate(r.index)}
        return Select(tuple(Cond(substitute(c.index, mapping), c.equal) for c in conds), inside, outside)

    body = map_reads(scope.body, choose)
    return scope if body is scope.body else replace(scope, body=body)


def whole(r: Read, mask: Tensor, scope: Scope) -> bool:
    """Every dimension is walked by an iterator of its own, inside the box."""
    names = [next(iter(ix.names()), "") for ix in r.index]
    plain = all(ix == var(n) and scope.ranges[n][0] >= 0 and scope.ranges[n][1] <= extent for ix, n, extent in zip(r.index, names, mask.shape) if n)
    return plain and all(names) and len(set(names)) == len(names) and mask.dtype == "f32"


def region(values: np.ndarray) -> Region | None:
    """The region of a mask of two values, one of them infinite; None for any other array."""
    if values.size < 2 or len(np.unique(values.flat[:: max(values.size // SAMPLED, 1)])) > 2:
        return None
    if np.isfinite(values).all() or np.isnan(values).any():
        return None
    finite = np.isfinite(values)
    if not finite.any() or np.ptp(values[finite]) or np.unique(values[~finite]).size != 1:
        return None
    loops = tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(values.shape))
    conds = conditions(finite, loops)
    return None if not conds else (conds, Const(number(float(values[finite][0]))), Const(number(float(values[~finite][0]))))

