"""What depends on weights only: evaluated at compile time, hoisted out of bodies, held once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import blake2b
from math import prod

import numpy as np

from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Const,
    Div,
    Mul,
    Read,
    Scope,
    Select,
    Tensor,
    children,
    exchange_in,
    indices,
    is_weight,
    make_add,
    make_mul,
    negate,
    reads,
    rebuild,
    used_names,
)  # fmt: skip
from einnet.expr.values.evaluate import evaluate
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh, exchange_tensors
from einnet.graph.split import is_contraction

_ELEMENTS = 1 << 26
"""Elements of the largest weight that evaluation may create, unless something that it reads is larger."""

_LOOKED_AT = 64
"""Places of a weight that tell it from most others."""


def evaluate_weights(program: Program) -> Program:
    """Compute the nodes that read weights only (in float64, held as float32) and make them weights.

    One operation on numbers of float32 has the same result in float32: float64 has more than twice the digits, so to round to it first changes
    nothing, and a large model's weights need a third of the memory (Figueroa, "When is double rounding innocuous?", 1995).
    """
    values: dict[str, np.ndarray] = dict(program.weights)
    exchange: dict[str, Tensor] = {}
    nodes: list[ProgramNode] = []
    for node in program.nodes:
        if not isinstance(node, Node):
            nodes.append(node)
            continue
        scope = exchange_in(node.scope, exchange)
        if is_weight(scope) and all(name in values for name in node.inputs) and fits(scope, values):
            read = {name: values[name] for name in node.inputs}
            dtype = "float32" if _rounds_once(scope) and all(v.dtype == np.float32 for v in read.values()) else "float64"
            values[node.output.name] = evaluate(scope, read, dtype).astype(np.float32, copy=False)
            exchange[node.output.name] = replace(node.output, weight=True)
        else:
            nodes.append(replace(node, scope=scope))
    return exchange_tensors(replace(program, nodes=tuple(nodes), weights=values), exchange)


def _rounds_once(scope: Scope) -> bool:
    """A result is read as it is, or is the sum, the product or the quotient of two numbers of float32."""

    def given(part: Body) -> bool:
        plain = isinstance(part, Read) and isinstance(part.base, Tensor)
        return plain or isinstance(part, Const) and isinstance(part.value, Fraction) and Fraction(float(np.float32(part.value))) == part.value

    two = isinstance(scope.body, (Add, Mul, Div)) and len(children(scope.body)) == 2
    return not scope.sums and (given(scope.body) or two and all(map(given, children(scope.body))))


def fits(scope: Scope, values: Mapping[str, np.ndarray]) -> bool:
    return prod(scope.shape) <= max([_ELEMENTS, *(values[r.base.name].size for r in reads(scope.body) if isinstance(r.base, Tensor))])


def merge_weights(program: Program) -> Program:
    """Hold equal weights once. Only those are read whole that have the same elements at a few places."""
    alike: dict[tuple[str, tuple[int, ...], bytes], list[str]] = {}
    for name, value in program.weights.items():
        alike.setdefault((str(value.dtype), value.shape, _some(value)), []).append(name)
    exchange: dict[str, Tensor] = {}
    tensors = program.tensors()
    for names in (names for names in alike.values() if len(names) > 1):
        first: dict[bytes, str] = {}
        for name in names:
            kept = first.setdefault(blake2b(np.ascontiguousarray(program.weights[name]).reshape(-1).data, digest_size=16).digest(), name)
            if kept != name:
                exchange[name] = tensors[kept]
    return exchange_tensors(program, exchange)


def _some(value: np.ndarray) -> bytes:
    """Elements of a weight at places all over it."""
    return np.asarray(value.flat[:: max(1, value.size // _LOOKED_AT)]).tobytes()


def hoist(program: Program) -> Program:
    """Give parts of bodies that read weights only nodes of their own, where the result is no larger than what they read."""
    fresh = Fresh(program)
    nodes: list[ProgramNode] = []
    products = {n.output.name: n.output.shape for n in program.expression_nodes() if is_contraction(n.scope)}
    for node in program.nodes:
        if not isinstance(node, Node) or is_weight(node.scope):
            nodes.append(node)
            continue
        parts = _Parts(node, fresh, any(products.get(name) == node.output.shape for name in node.inputs))
        body = hoisted(node.scope.body, parts.materialise)
        nodes.extend(parts.made)
        nodes.append(node if not parts.made else replace(node, scope=replace(node.scope, body=body)))
    return replace(program, nodes=tuple(nodes))


@dataclass
class _Parts:
    """Parts of a node's body that become nodes, which are `made`; the node may be the end of a product."""

    node: Node
    fresh: Fresh
    ends_product: bool
    made: list[Node] = field(default_factory=list)

    def materialise(self, part: Body) -> Body:
        """What stands in place of a part that reads weights only."""
        positive = None if self.ends_product else taken_away(part)
        if positive is not None:
            return negate(hoisted(positive, self.materialise))
        used, scope = used_names(part), self.node.scope
        loops = tuple(i for i in (*scope.loops, *scope.sums) if i.name in used)
        sizes = [prod(r.base.shape) for r in reads(part)]
        if any(i.lo for i in loops) or not sizes or prod(i.extent for i in loops) > max(sizes):
            return part
        tensor = Tensor(self.fresh(f"{self.node.output.name}_const"), tuple(i.extent for i in loops), "f32", True)
        self.made.append(Node(tensor, Scope(loops, (), part), self.node.origin))
        return Read(tensor, indices(loops))


def taken_away(part: Body) -> Body | None:
    """What a part is the negative of, by the numbers in it; None where it is of none.

    The negative of what is taken away is no weight, but at the end of a product, where libraries add one: that x - w is a difference would be seen no
    more, and its square, opened, is mostly rounding errors where x is near w (see `expr.values.cancellation`).
    """
    factors = part.args if isinstance(part, Mul) else ()
    numbers = [a.value for a in factors if isinstance(a, Const) and isinstance(a.value, Fraction)]
    scale = prod(numbers, start=Fraction(1))
    rest = [a for a in factors if not (isinstance(a, Const) and isinstance(a.value, Fraction))]
    return make_mul([*([Const(-scale)] if scale != -1 else []), *rest]) if scale < 0 and rest else None


def hoisted(body: Body, materialise: Callable[[Body], Body]) -> Body:
    """Replace the largest composite parts that read weights only."""
    if isinstance(body, (Read, Const)) or not children(body):
        return body
    if is_weight(body):
        return materialise(body)
    if isinstance(body, (Add, Mul)):
        join = make_add if isinstance(body, Add) else make_mul
        known = [a for a in body.args if is_weight(a) and any(True for _ in reads(a))]
        rest = [hoisted(a, materialise) for a in body.args if a not in known]
        part = join(known) if known else None
        if part is None or isinstance(part, (Read, Const)):
            return join([*rest, *known])
        return join([*rest, materialise(part)])
    if isinstance(body, (Div, Call, Select)):
        return rebuild(body, tuple(hoisted(a, materialise) for a in children(body)))
    return body
