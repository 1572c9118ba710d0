"""A fold as a recursion, where no closed form is known: each state is a tensor over time, and an equation says what a step makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from einnet.errors import UsageError
from einnet.expr.nodes import Body, Const, Read, Scope, Tensor, indices, inside, map_reads
from einnet.expr.recursions.recursion import Equation, Recursion
from einnet.graph.folds.fold import Fold, Gathered
from einnet.graph.folds.over_time import along, over_time
from einnet.graph.folds.unfold import Unfolding
from einnet.graph.onnx.naming import take
from einnet.graph.operators.builders import loops_of
from einnet.graph.operators.op import Inexpressible
from einnet.graph.program import Node, Opaque, Program

MOST_VALUES = 1 << 12
"""Elements of an array of the body that stands in a recursion."""


@dataclass(frozen=True)
class Recursive:
    """A recursion whose inputs and outputs are outer values of a node: `inputs` and `outputs` name them, in its order."""

    recursion: Recursion
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def over(self, names: Sequence[str], given: Sequence[Tensor], wanted: Sequence[str]) -> Recursion | None:
        """The recursion with inputs for `given`, of these names, in order, and what is `wanted` as outputs; None where it has not all of it."""
        own = dict(zip(self.inputs, self.recursion.inputs))
        results = dict(zip(self.outputs, self.recursion.outputs))
        if not set(own) <= set(names) or not set(wanted) <= set(results):
            return None
        taken = {t.name for t in (*own.values(), *(e.tensor for e in self.recursion.equations))}
        inputs = [own.get(name) or Tensor(take(f"unread{n}", taken), t.shape, t.dtype) for n, (name, t) in enumerate(zip(names, given))]
        return replace(self.recursion, inputs=tuple(inputs), outputs=tuple(results[name] for name in wanted))

    def of(self, node: Opaque, names: Sequence[str], given: Sequence[Tensor], wanted: Sequence[str]) -> Opaque:
        """The node with the recursion over its inputs and outputs, where that is all of it."""
        found = self.over(names, given, wanted)
        if found is None:
            return node
        return replace(node, recursion=found, why=f"{node.why}{told(found)}")


def told(r: Recursion) -> str:
    """What the reason says of a node that is a recursion."""
    return f"; {len(r.steps)} equations along time say what it computes"


def recursive(fold: Fold, body: Program, outer: Mapping[str, Tensor]) -> Recursive:
    """The fold as a recursion. Raises Inexpressible where it is none."""
    return _Recursing(fold, body, outer, {}).recursive()


class _Recursing(Unfolding):
    """States are tensors over time from the beginning; what reads them is an equation, too."""

    def recursive(self) -> Recursive:
        self.check()
        self.states_over_time: dict[str, Tensor] = {}
        self.begin()
        self.lift(list(self.fold.states))
        before, self.nodes = self.nodes, []
        for s in self.fold.states:
            self.declare(s.result)
        for s in self.fold.states:
            result = self.named[s.result]
            self.handed_on(s, self.sources.get(result) or along(self.states_over_time[result]), open_ended=result not in self.sources)
        self.lift([])
        steps, self.nodes = self.nodes, []
        if not steps:
            raise Inexpressible("no step reads a state")
        timed = {n.output.name for n in steps}
        outputs = [(name, self.final(result)) for name, result in self.fold.finals]
        outputs += [(g.output, self.over_all(g, timed)) for g in self.fold.gathered]
        after, self.nodes = self.nodes, []
        first, each, last = map(self.equations, (before, steps, after))
        inputs, results = tuple(self.inputs.values()), tuple(t for _, t in outputs)
        try:
            found = Recursion(self.fold.count, inputs, first, each, last, results)
        except UsageError as reason:
            raise Inexpressible(f"as a recursion: {reason}") from None
        return Recursive(found, tuple(self.inputs), tuple(name for name, _ in outputs))

    def declare(self, result: str) -> None:
        """The tensor of a state over time, unless the result is known without the states."""
        name = self.named[result]
        if name in self.sources or name in self.states_over_time:
            return
        if name not in self.known:
            raise Inexpressible("a step hands on a state as it is")
        self.states_over_time[name] = Tensor(self.namer(name), (self.fold.count, *self.shape(name)))

    def append(self, name: str, scope: Scope, node: Node | None = None) -> Tensor:
        """A node; what is a state has its tensor already."""
        tensor = self.states_over_time.get(name) if hasattr(self, "states_over_time") else None
        if tensor is None:
            return super().append(name, scope, node)
        self.nodes.append(Node(tensor, scope))
        return tensor

    def over_all(self, g: Gathered, timed: set[str]) -> str:
        """Every step's: the tensor over time itself where it is as asked for."""
        tensor = self.tensor(self.named[g.result])
        loops = loops_of(tensor.shape)
        scope = over_time(Scope(loops, (), Read(tensor, indices(loops))), self.fold.count, self.sources)
        match scope.body:
            case Read(Tensor(name), index) if name in timed and index == indices(scope.loops) and not g.backward and g.axis % len(scope.loops) == 0:
                return name
        return self.gathered(g)

    def equations(self, nodes: list[Node]) -> tuple[Equation, ...]:
        """Nodes as equations over numbers and what is given."""
        return tuple(Equation(Tensor(n.output.name, n.scope.shape), given(n.scope, self.weights, self.known_or_given)) for n in nodes)

    def known_or_given(self, name: str, value: np.ndarray) -> Tensor:
        """An array of the body: what is given, where it is that."""
        return self.outer_constant(value) or written(name, value)

    def outer_constant(self, value: np.ndarray) -> Tensor | None:
        """The given tensor that has this value, if any."""
        for name, constant in self.fold.constants.items():
            if constant.shape == value.shape and np.array_equal(constant, value) and self.outer[name].dtype == "f32":
                return self.outside(name)
        return None


def given(scope: Scope, weights: Mapping[str, np.ndarray], kept: Callable[[str, np.ndarray], Tensor]) -> Scope:
    """The scope with numbers for arrays of equal elements, and what is `kept` for others. Raises Inexpressible for one that is not."""

    def swap(r: Read) -> Body:
        if isinstance(r.base, Scope):
            return Read(given(r.base, weights, kept), r.index, r.fill)
        value = weights.get(r.base.name)
        if value is None:
            return Read(Tensor(r.base.name, r.base.shape), r.index, r.fill)
        if value.size and (value == value.flat[0]).all() and inside(r, scope.ranges):
            return Const(Fraction(float(value.flat[0])))
        return Read(kept(r.base.name, value), r.index, r.fill)

    return Scope(scope.loops, scope.sums, map_reads(scope.body, swap), scope.reduce)


def written(name: str, value: np.ndarray) -> Tensor:
    """A tensor that carries its values."""
    if value.size > MOST_VALUES or not np.isfinite(value).all():
        raise Inexpressible("its body holds a large array of its own")
    return Tensor(name, value.shape, "f32", True, tuple(Fraction(float(np.float32(v))) for v in value.flat))
