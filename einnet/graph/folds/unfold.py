"""A fold as a program: what no state reaches, at all times at once; states in closed form where they are linear, else step by step; then the rest.

What does not depend on a state leaves the fold: the products of an LSTM with its inputs are one product for all times. What depends on the states but
leads to none, such as results of steps, is computed for all times at once, too, from the states one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from einnet.expr.index import Index, Range, var
from einnet.expr.nodes import Body, Cond, Const, Read, Scope, Select, Tensor, Val, indices, is_weight, make_add, make_mul, tensors
from einnet.graph.dtypes import dtype_name
from einnet.graph.folds.asked import asked_apart
from einnet.graph.folds.fold import Fold, Gathered, State
from einnet.graph.folds.linear import Affine, Logarithms, affine, decay, walk
from einnet.graph.folds.over_time import Source, along, at_time, over_time, reads_any, still
from einnet.graph.onnx.naming import Namer
from einnet.graph.operators.builders import loops_of
from einnet.graph.operators.gathering import affine_of
from einnet.graph.operators.op import Inexpressible
from einnet.graph.program import Node, Opaque, Program
from einnet.graph.rewrite import prune

FEWEST_CLOSED = 8
"""Steps from which on a closed form is worth its while."""

MOST_WRITTEN = 256
"""Expressions that are written out step by step, at most."""


def unfolded(fold: Fold, body: Program, outer: Mapping[str, Tensor], scopes: Mapping[str, Scope]) -> Program:
    """The fold as a program from outer names to outer names. Raises Inexpressible where that does not pay.

    `outer` are the tensors of the outer names, and `scopes` define tensors around: logarithms of gates may read what these read, under its own name.
    """
    return Unfolding(fold, body, outer, scopes).program()


class Unfolding:
    """A fold on its way to expressions: what stands for every tensor of its body over time, as far as that is known."""

    def __init__(self, fold: Fold, body: Program, outer: Mapping[str, Tensor], scopes: Mapping[str, Scope]) -> None:
        self.fold, self.body, self.outer = fold, body, outer
        self.namer = Namer()
        self.namer.taken.update(scopes, *(tensors(s) for s in scopes.values()))
        self.inputs: dict[str, Tensor] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.nodes: list[Node] = []
        self.scopes: dict[str, Scope] = dict(scopes)
        self.sources: dict[str, Source] = {}
        self.steps: dict[str, list[Source]] = {}
        self.fixed: set[str] = set()
        """Tensors of the body that are the same at each step."""
        self.walked: set[str] = set()
        """Tensors that are states at all times, each a walk."""
        self.known = {n.output.name: n for n in body.nodes if isinstance(n, Node)}
        self.named = dict(body.outputs) | {body.names[t.name]: t.name for t in body.inputs}

    def check(self) -> None:
        """Raise Inexpressible unless all of the body is expressions, of float32."""
        opaque = next((n for n in self.body.nodes if isinstance(n, Opaque)), None)
        if opaque is not None:
            raise Inexpressible(f"in its body, {', '.join(opaque.origin)}: {opaque.why}")
        handed = [self.outer[s.initial] for s in self.fold.states] + [self.tensor(self.named[r]) for r in self.fold.ends]
        if any(t.dtype != "f32" for t in handed):
            raise Inexpressible("it hands on something else than float32")

    def program(self) -> Program:
        """The program. Raises Inexpressible where there is none that pays."""
        self.check()
        self.begin()
        left = list(self.fold.states)
        while True:
            self.lift(left)
            solved = next((s for s in left if self.solve(s, left)), None)
            if solved is None:
                break
            left.remove(solved)
        if left:
            self.write_out(left)
            self.lift([])
        outputs = [(name, self.final(result)) for name, result in self.fold.finals] + [(g.output, self.gathered(g)) for g in self.fold.gathered]
        names = {t.name: name for name, t in self.inputs.items()}
        nodes = asked_apart(self.nodes, self.walked, self.namer)
        return prune(Program(tuple(self.inputs.values()), tuple(nodes), tuple(outputs), self.weights, names))

    # what a step reads

    def outside(self, name: str) -> Tensor:
        """The program's input for an outer value."""
        if name not in self.inputs:
            given = self.outer[name]
            self.inputs[name] = tensor = Tensor(self.namer(name), given.shape, given.dtype)
            if given.name in self.scopes:
                self.scopes[tensor.name] = self.scopes[given.name]
        return self.inputs[name]

    def begin(self) -> None:
        """Sources of what the body reads, but for its states."""
        states = {s.name for s in self.fold.states}
        for t in self.body.inputs:
            name = self.body.names[t.name]
            if name in self.fold.sequences:
                s = self.fold.sequences[name]
                self.sources[t.name] = along(self.outside(s.value), s.axis, self.fold.count - 1 if s.backward else None)
            elif name in self.fold.tables:
                self.sources[t.name] = self.table(name, self.fold.tables[name])
            elif name not in states:
                self.fixed.add(t.name)
                self.sources[t.name] = still(self.outside(name))
        for name, value in self.body.weights.items():
            self.fixed.add(name)
            self.sources[name] = still(self.weight(name, value))

    def weight(self, name: str, value: np.ndarray) -> Tensor:
        """An array that is known."""
        tensor = Tensor(self.namer(name), value.shape, dtype_name(value.dtype) or str(value.dtype), True)
        self.weights[tensor.name] = value
        return tensor

    def table(self, name: str, values: np.ndarray) -> Source:
        """Numbers that each step knows: an index function of time where they are one."""
        found = affine_of(values) if values.dtype.kind in "iub" and values.size and values.dtype != bool else None
        if found is not None and values.ndim == 1:
            origin, (step,) = found
            return lambda read, time, ranges: Val(time * step + origin)
        kept = along(self.weight(name, values.astype(np.float32)))
        if values.dtype.kind in "iu" and np.abs(values).max(initial=0) >= 1 << 24:
            raise Inexpressible("it counts beyond what float32 has")
        return kept

    # what no state reaches

    def lift(self, left: list[State]) -> None:
        """Append all nodes of the body that no state that is left reaches, for all times at once."""
        reached = {self.named[s.name] for s in left if s.name in self.named}
        for node in self.known.values():
            name = node.output.name
            if reads_any(node.scope, reached):
                reached.add(name)
            elif name not in self.sources:
                self.append_lifted(node)

    def append_lifted(self, node: Node) -> None:
        name = node.output.name
        if set(node.inputs) <= self.fixed:
            self.fixed.add(name)
            self.sources[name] = still(self.append(name, at_time(node.scope, Index(), self.sources), node))
        else:
            self.sources[name] = along(self.append(name, over_time(node.scope, self.fold.count, self.sources), node))

    def append(self, name: str, scope: Scope, node: Node | None = None) -> Tensor:
        """A node of the program."""
        tensor = Tensor(self.namer(name), scope.shape, node.output.dtype if node and node.output.dtype == "f32" else "f32", is_weight(scope))
        self.nodes.append(Node(tensor, scope))
        self.scopes[tensor.name] = scope
        return tensor

    # states

    def solve(self, state: State, left: list[State]) -> bool:
        """The state in closed form, if no other that is left reaches it, and it is linear in itself."""
        result, own = self.named[state.result], self.named.get(state.name)
        update = self.update(result, own, {self.named[s.name] for s in left if s.name in self.named and s != state})
        if update is None:
            return False
        if own is None or not reads_any(update, {own}):
            if result not in self.sources:  # a state that the step does not read, or that another step makes anew
                return False
            self.handed_on(state, self.sources[result])
            return True
        found = affine(update, own) if self.fold.count >= FEWEST_CLOSED else None
        closed = self.closed(state, found) if found is not None else None
        if closed is None:
            return False
        self.sources[result] = along(closed)
        self.handed_on(state, along(closed), open_ended=True)
        return True

    def update(self, result: str, own: str | None, others: set[str]) -> Scope | None:
        """What a step makes of a state, over time; the state itself is read as the body reads it. None where other states reach it."""
        inner: dict[str, Source] = dict(self.sources)
        if own is not None:
            inner[own] = lambda read, time, ranges: read
        for node in self.known.values():
            if node.output.name in inner:
                continue
            if reads_any(node.scope, others) or not all(n in inner for n in node.inputs):
                others = others | {node.output.name}
                continue
            inner[node.output.name] = along(over_time(node.scope, self.fold.count, inner))
        if result not in inner:
            return None
        loops = loops_of(self.shape(result))
        return over_time(Scope(loops, (), Read(self.tensor(result), indices(loops))), self.fold.count, inner)

    def tensor(self, name: str) -> Tensor:
        """A tensor of the body."""
        if name in self.known:
            return self.known[name].output
        return next((t for t in self.body.inputs if t.name == name), None) or Tensor(name, self.body.weights[name].shape, "f32", True)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensor(name).shape

    def closed(self, state: State, a: Affine) -> Tensor | None:
        """The state after each step; None where nothing is known of its gate's logarithm."""
        if a.gate is None:
            return None
        logarithms = Logarithms(self.scopes, self.values(), self.weight)
        logarithm = logarithms.of(a.gate)
        if logarithm is None:
            return None
        decayed = decay(logarithms.spread(logarithm), a.loops)
        name = self.named[state.result]
        total = self.append(f"{name}_decay", decayed.moving) if decayed is not None and decayed.moving is not None else None
        t = var(a.loops[0].name)
        parts: list[Body] = []
        if a.coming is not None:
            came = self.append(f"{name}_came", walk(a, decayed, total))
            self.walked.add(came.name)
            parts.append(Read(came, indices(a.loops)))
        if not self.zero(state):
            begun = Read(self.outside(state.initial), indices(a.loops[1:]))
            parts.append(make_mul((*([] if decayed is None else [decayed.begun(total, t)]), begun)))
        if parts == [p for p in parts if isinstance(p, Read)] and len(parts) == 1 and a.coming is not None:
            return came
        return self.append(name, Scope(a.loops, (), make_add(parts) if parts else Const(Fraction(0))))

    def values(self) -> dict[str, np.ndarray]:
        """Weights and known outer values by the program's names."""
        return {**self.weights, **{t.name: self.fold.constants[n] for n, t in self.inputs.items() if n in self.fold.constants}}

    def zero(self, state: State) -> bool:
        """The state is 0 at the beginning."""
        value = self.fold.constants.get(state.initial)
        return value is not None and not value.any()

    def handed_on(self, state: State, after: Source, open_ended: bool = False) -> None:
        """What a step reads of a state: what the one before has made of it, and the first what is given.

        `after` may be `open_ended`: before the first time it gives what a read has outside of a tensor.
        """
        own = self.named.get(state.name)
        if own is None:
            return
        first = None if self.zero(state) else self.outside(state.initial)

        def before(read: Read, time: Index, ranges: Mapping[str, Range]) -> Body:
            if first is None and time.is_const and time.const == 0:
                return Const(Fraction(0))
            begun: Body = Const(Fraction(0)) if first is None else Read(first, read.index, read.fill)
            if time.is_const:
                return begun if time.const == 0 else after(read, time - 1, ranges)
            if first is None and open_ended and read.fill == 0:
                return after(read, time - 1, ranges)
            return Select((Cond(time - 1),), after(read, time - 1, ranges), begun)

        self.sources[own] = before

    # step by step

    def write_out(self, left: list[State]) -> None:
        """Append the nodes that lead to the states that are left, once for each step."""
        wanted = {self.named[s.result] for s in left}
        needed: list[Node] = []
        for node in reversed(self.known.values()):
            if node.output.name in wanted and node.output.name not in self.sources:
                needed.insert(0, node)
                wanted.update(node.inputs)
        if len(needed) * self.fold.count > MOST_WRITTEN:
            raise Inexpressible(
                f"no state is linear in the one before, and {self.fold.count} steps of {len(needed)} expressions are too many to write out"
            )
        now = {self.named[s.name]: still(self.outside(s.initial)) for s in left if s.name in self.named}
        made: dict[str, list[Source]] = {name: [] for name in (*(n.output.name for n in needed), *(self.named[s.result] for s in left))}
        for step in range(self.fold.count):
            here = {**self.sources, **now}
            for node in needed:
                name = node.output.name
                here[name] = still(self.append(name, at_time(node.scope, Index((), step), here), node))
            for name, copies in made.items():
                copies.append(here[name])
            now = {self.named[s.name]: here[self.named[s.result]] for s in left if s.name in self.named}
        over = {name: stacked(copies) for name, copies in made.items()}
        for s in left:
            self.handed_on(s, over[self.named[s.result]])
        self.sources |= {name: source for name, source in over.items() if name in self.known}

    # what is given out

    def final(self, result: str) -> str:
        """The last step's."""
        tensor = self.tensor(self.named[result])
        loops = loops_of(tensor.shape)
        scope = at_time(Scope(loops, (), Read(tensor, indices(loops))), Index((), self.fold.count - 1), self.sources)
        return self.append(f"{result}_last", scope).name

    def gathered(self, g: Gathered) -> str:
        """Every step's, one after the other."""
        tensor = self.tensor(self.named[g.result])
        loops = loops_of(tensor.shape)
        scope = over_time(Scope(loops, (), Read(tensor, indices(loops))), self.fold.count, self.sources)
        t, *rest = scope.loops
        axis = g.axis % len(scope.loops)
        if g.backward:
            back = at_time(Scope(loops, (), Read(tensor, indices(loops))), self.fold.count - 1 - var(t.name), self.sources, {t.name: t.range})
            scope = back
        return self.append(f"{g.output}_all", Scope((*rest[:axis], t, *rest[axis:]), scope.sums, scope.body, scope.reduce)).name


def stacked(parts: Sequence[Source]) -> Source:
    """What stands for a tensor at each step: at a known time that one's, else a choice by time."""

    def at(read: Read, time: Index, ranges: Mapping[str, Range]) -> Body:
        if time.is_const:
            return parts[time.const](read, time, ranges)
        body = parts[0](read, Index(), ranges)
        for step, part in enumerate(parts[1:], 1):
            body = Select((Cond(time - step),), part(read, Index((), step), ranges), body)
        return body

    return at
