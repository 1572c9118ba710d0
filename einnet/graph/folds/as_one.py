"""A program in which recursions stand as one recursion: what comes before them, their times side by side, and what is made of their results."""

from __future__ import annotations

from collections.abc import Mapping

from einnet.errors import UsageError
from einnet.expr.nodes import Scope, Tensor, exchange_in, tensors
from einnet.expr.recursions.recursion import Equation, Recursion
from einnet.graph.folds.recursive import Recursive, given, written
from einnet.graph.onnx.naming import Namer
from einnet.graph.operators.op import Inexpressible
from einnet.graph.program import Node, Opaque, Program


def as_one(program: Program) -> Recursive:
    """The program as a recursion. Raises Inexpressible where nodes are no recursions, or those are of other times, or lead to one another."""
    found = _Joining(program)
    for node in program.nodes:
        if isinstance(node, Node):
            found.node(node)
        else:
            found.recursion(node)
    return found.result()


class _Joining:
    def __init__(self, program: Program) -> None:
        self.program, self.namer = program, Namer()
        self.count = 0
        self.before: list[Equation] = []
        self.steps: list[Equation] = []
        self.after: list[Equation] = []
        self.late: set[str] = set()
        """Tensors that are known after the last time only."""
        self.here = {t.name: self.named(t) for t in program.inputs}
        self.inputs = tuple(self.here.values())

    def named(self, tensor: Tensor) -> Tensor:
        """The tensor under a name of its own. Raises Inexpressible for other numbers than those of recursions."""
        if tensor.dtype != "f32":
            raise Inexpressible("its operands are not of float32")
        return Tensor(self.namer(tensor.name), tensor.shape)

    def node(self, node: Node) -> None:
        """An expression: before all times, unless it reads what these give."""
        late = not self.late.isdisjoint(tensors(node.scope))
        scope = exchange_in(given(node.scope, self.program.weights, written), self.here)
        self.here[node.output.name] = made = self.named(node.output)
        self.late |= {node.output.name} if late else set()
        (self.after if late else self.before).append(Equation(made, scope))

    def recursion(self, node: Opaque) -> None:
        """The equations of a recursion, for what its node reads."""
        r = node.recursion
        if r is None:
            raise Inexpressible(f"{', '.join(node.origin)}: {node.why}")
        if self.count not in (0, r.count) or not self.late.isdisjoint(node.inputs):
            raise Inexpressible("its recursions are not of the same times")
        self.count = r.count
        names = {t.name: self.operand(name, t) for t, name in zip(r.inputs, node.inputs)}
        names |= {e.tensor.name: self.named(e.tensor) for e in r.equations}
        for part, equations in ((self.before, r.before), (self.steps, r.steps), (self.after, r.after)):
            part += [Equation(names[e.tensor.name], over(e.scope, names)) for e in equations]
        self.here |= {t.name: names[inner] for t, inner in zip(node.outputs, r.outputs)}
        self.late |= {t.name for t in node.outputs}

    def operand(self, name: str, tensor: Tensor) -> Tensor:
        """What a node reads, which may be known."""
        value = self.program.weights.get(name)
        return self.here[name] if value is None else written(self.namer(tensor.name), value)

    def result(self) -> Recursive:
        """All of it."""
        own = {e.tensor.name for e in (*self.before, *self.steps, *self.after)}
        outputs = tuple(self.here[tensor].name for _, tensor in self.program.outputs if tensor in self.here)
        if not self.steps or len(outputs) < len(self.program.outputs) or not own.issuperset(outputs):
            raise Inexpressible("what it gives is no recursion's")
        try:
            whole = Recursion(self.count, self.inputs, tuple(self.before), tuple(self.steps), tuple(self.after), outputs)
        except UsageError as reason:
            raise Inexpressible(f"as one recursion: {reason}") from None
        names = tuple(self.program.names[t.name] for t in self.program.inputs)
        return Recursive(whole, names, tuple(name for name, _ in self.program.outputs))


def over(scope: Scope, names: Mapping[str, Tensor]) -> Scope:
    """The scope over other tensors; those that carry their values stay."""
    return exchange_in(scope, {n: names[n] for n, t in tensors(scope).items() if t.values is None})
