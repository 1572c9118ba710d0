"""A plan lifted to expressions: what each tensor of the model is, by the kernels that run and not by what anybody says of them.

The plan is run on expressions, kernel after kernel (`contents`, `meaning`). Where it has computed a tensor of the model, what it holds there is
what is to be proven equal to the model's own expression, and from there on it stands for that tensor. Tensors of the model that the plan
nowhere holds are written into the expressions that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isinf, prod

import numpy as np

from einnet.derivation.rules.forced.merge import merge_read
from einnet.evidence.buffers.addresses import digits, element, ranges_of, refined, unfolded
from einnet.evidence.buffers.contents import NOBODY, Contents, part
from einnet.evidence.meaning import meaning
from einnet.expr.index import Index, substitute, var
from einnet.expr.nodes import Body, Const, Iter, Number, Read, Scope, Tensor, children, exchange_in, indices, tensors, walk
from einnet.graph.program import Opaque, Program
from einnet.graph.split import Piece, Subprogram, pieces
from einnet.instantiate.kernels import EOperator, Kernel, NotLifted, OpaqueCall, Plan, Shown, Value, View, dense_view, loops_of
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic, coarsest
from einnet.instantiate.kernels.contractions import arithmetic_of
from einnet.instantiate.kernels.generated import from_zero

BEFORE = -1
"""When what the inputs hold is there."""

MOST_INSIDE = 24
"""Tensors of the model, held nowhere by the plan, that are written into one expression."""


@dataclass(frozen=True)
class Claim:
    """What the plan computes of a tensor: all of it, or over the plan's own `loops` the elements at `index`."""

    plan: Scope
    index: tuple[Index, ...] | None = None

    def of(self, whole: Scope) -> Scope:
        """The same elements of an expression of the whole tensor."""
        if self.index is None:
            return whole
        return at(whole, self.plan.loops, self.index)


def at(whole: Scope, loops: tuple[Iter, ...], index: tuple[Index, ...]) -> Scope:
    """Some elements of an expression, counted from 0, over loops of their own; written into the expression where that can be."""
    read = Read(whole, tuple(ix + lo for ix, (lo, _) in zip(index, whole.box, strict=True)))
    found = Scope(loops, (), read)
    merged = merge_read(found, read)
    return merged if isinstance(merged, Scope) else found


@dataclass
class Lifted:
    """What was found of one tensor of the model: what is to be proven, or why it could not be lifted.

    `expression` is the model's, with what the plan nowhere holds written into it. It stands at `place` from the kernel `last` on; a part of an input
    that is read where that lies has none.
    """

    output: str
    expression: Scope
    claims: tuple[Claim, ...] = ()
    series: tuple[Claim, ...] = ()
    """One claim in place of those where what was written chunk by chunk is one expression: there may be hundreds."""
    reason: str = ""
    place: View | None = None
    last: int = 0
    inside: tuple[str, ...] = ()
    """Tensors of the model that the plan nowhere holds and that stand in the expression."""
    parts: Mapping[str, Scope] = field(default_factory=dict)
    """The model's expressions of this tensor and of those inside, each over the others."""
    aliases: Mapping[str, Scope] = field(default_factory=dict)
    """Tensors that it reads and that are others, element by element in one place, as the claims about them say: by name, over these others."""
    arithmetic: Arithmetic = F32
    """The coarsest to which factors are rounded in the kernels that compute it of what it reads."""
    joined: Mapping[str, Scope] = field(default_factory=dict)
    """Tensors that lie in one place with several others, by name, over these: what both sides may be told by instead."""


@dataclass
class Lifting:
    """The pieces of the model; all tensors of it that the plan holds, in the model's order; problems that concern none of them."""

    pieces: tuple[Piece, ...] = ()
    found: dict[str, Lifted] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def computed(self) -> list[Lifted]:
        """The tensors that kernels compute."""
        return [lifted for lifted in self.found.values() if lifted.place is not None]


def lift(program: Program, plan: Plan, constants: Mapping[str, Value], parts: Sequence[Piece] | None = None) -> Lifting:
    """The plan's kernels as expressions over the model's tensors, piece by piece of the model: `parts`, or those that it falls into.

    `program` is the model as it was prepared for the search; `constants` what each constant buffer of the plan holds, dense, as far as that was
    found to be true (see `evidence.constants`).
    """
    return _Lift(program, plan, constants, pieces(program) if parts is None else parts).run()


class _Lift:
    def __init__(self, program: Program, plan: Plan, constants: Mapping[str, Value], parts: Sequence[Piece]) -> None:
        self.program, self.plan, self.constants = program, plan, constants
        self.tensors = program.tensors()
        self.pieces = parts
        self.parts = {p.output.name: p for p in self.pieces if isinstance(p, Subprogram)}
        self.opaque = {t.name: p for p in self.pieces if isinstance(p, Opaque) for t in p.outputs}
        self.buffers = {b.name: b for b in plan.buffers}
        self.contents = Contents({b.name: b.size for b in plan.buffers})
        self.places = self.located()
        self.last = {**self.given(), **last_touched(plan, self.places)}
        self.result = Lifting(tuple(parts))
        self.unlifted: dict[str, str] = {}
        self.rational = numbers(p.expression for p in self.parts.values())
        self.expressions: dict[str, tuple[Scope, tuple[str, ...]]] = {}
        self.aliases: dict[str, Scope] = {}
        self.joined: dict[str, Scope] = {}
        self.arithmetics: dict[str, Arithmetic] = {}

    def located(self) -> dict[str, View]:
        """Where the plan says that it holds tensors that the model computes."""
        places: dict[str, View] = {}
        given = {tensor: view for (_, tensor), (_, view) in zip(self.program.outputs, self.plan.outputs)}
        for name in (*self.parts, *self.opaque):
            tensor, buffer = self.tensors[name], self.buffers.get(name)
            if buffer is not None and buffer.size == prod(tensor.shape) and buffer.role != "constant":
                places[name] = dense_view(name, tensor.shape)
            else:
                told = self.plan.places.get(name) or given.get(name)
                view = unfolded(told, tensor.shape) if told is not None and told.shape != tensor.shape else told
                if view is not None and self.inside(view):
                    places[name] = view
        return places

    def given(self) -> dict[str, int]:
        """Tensors of the model that are parts of its inputs, where these lie: they are there before the first kernel."""
        return {name: BEFORE for name, view in self.places.items() if name in self.parts and self.buffers[view.buffer].role == "input"}

    def inside(self, view: View) -> bool:
        """The view lies in a buffer of the plan, and an address has one element of it at most."""
        try:
            digits(view)
        except NotLifted:
            return False
        buffer = self.buffers.get(view.buffer)
        reach = view.offset + sum(s * (n - 1) for s, n in zip(view.strides, view.shape))
        return buffer is not None and buffer.role != "constant" and view.offset >= 0 and reach < buffer.size

    def run(self) -> Lifting:
        for name, value in self.constants.items():
            self.contents.write(dense_view(name, value.shape), self.constant(value))
        self.inputs()
        complete: dict[int | None, list[str]] = {}
        for name in self.parts:
            complete.setdefault(self.last.get(name), []).append(name)
        for name in complete.get(BEFORE, ()):
            self.cut(name, BEFORE)
        for n, kernel in enumerate(self.plan.kernels):
            self.step(n, kernel)
            self.round(kernel)
            for name in complete.get(n, ()):
                self.cut(name, n)
        self.outputs()
        return self.result

    def constant(self, value: Value) -> Value:
        """What a constant holds over the model's weights; another constant, laid flat, is read as what that holds."""
        if isinstance(value, Tensor):
            return value
        own = [t for t in tensors(value).values() if t.values is None and self.tensors.get(t.name) != t]
        given = {t.name: self.contents.read(View(t.name, t.shape, (1,))) for t in own if t.name in self.contents.cells}
        return from_zero(exchange_in(value, given))

    def inputs(self) -> None:
        """Let the buffers of the inputs hold them. What is no input of the model stays unwritten."""
        known = {self.program.names.get(t.name, t.name): t for t in self.program.inputs}
        if len(self.plan.inputs) != len(known):
            self.result.problems.append(f"the plan takes {len(self.plan.inputs)} inputs, the model {len(known)}")
        for name, view in self.plan.inputs:
            tensor = known.get(name)
            if tensor is None or tensor.shape != view.shape or self.buffers[view.buffer].dtype != tensor.dtype:
                self.result.problems.append(f"input {name} of the plan is none of the model")
            else:
                self.contents.write(view, tensor)
                self.contents.name(view, tensor)

    def step(self, n: int, kernel: Kernel) -> None:
        """Run one kernel on expressions."""
        if isinstance(kernel, OpaqueCall):
            self.call(n, kernel)
            return
        (view,) = kernel.result_views
        try:
            if isinstance(kernel, EOperator):
                self.check_tables(kernel)
            self.contents.write(view, meaning(kernel, Shown(self.contents.read, self.contents.borders), self.rational))
        except NotLifted as reason:
            self.fail(n, view, str(reason))

    def round(self, kernel: Kernel) -> None:
        """What a kernel writes is computed in its arithmetic, or in that of what it reads where that is coarser."""
        found = coarsest([arithmetic_of(kernel), *(self.arithmetics.get(v.buffer, F32) for v in kernel.operand_views)])
        for view in kernel.result_views:
            self.arithmetics[view.buffer] = coarsest([found, self.arithmetics.get(view.buffer, F32)])

    def check_tables(self, kernel: EOperator) -> None:
        """Raise NotLifted unless the tensors of a generated kernel that carry their values are given just these."""
        views = dict(kernel.operands)
        for name, tensor in tensors(kernel.scope).items():
            if tensor.values is not None and name in views:
                view = views[name]
                held = self.plan.constants.get(view.buffer)
                wanted = np.array([float(v) for v in tensor.values], np.float32)
                if held is None or view.shape != tensor.shape or not np.array_equal(part(np.asarray(held), view).reshape(-1), wanted):
                    raise NotLifted(f"constant {view.buffer} is not what expressions say that {name} is")

    def fail(self, n: int, view: View, reason: str) -> None:
        """Let what a kernel wrote be something of which nothing is known."""
        unknown = Tensor(f"unlifted_{n}", view.shape)
        self.unlifted[unknown.name] = f"kernel {n}: {reason}"
        cell = self.contents.cells[view.buffer]
        cell.writes, cell.owners, cell.names = [], None, []
        if self.inside(view):
            self.contents.write(view, unknown)

    def call(self, n: int, kernel: OpaqueCall) -> None:
        """An opaque node of the model: the same model, on the same tensors."""
        nodes = (p for p in self.pieces if isinstance(p, Opaque) and same_node(p, kernel) and len(p.inputs) == len(kernel.inputs))
        node = next((p for p in nodes if all(self.contents.shows(v, self.tensors.get(t)) for v, t in zip(kernel.inputs, p.inputs))), None)
        if node is None or [t.shape for t in node.outputs] != [v.shape for v in kernel.outputs]:
            self.result.problems.append(f"kernel {n} runs a part in ONNX Runtime that the model does not have ({kernel.origin or 'without a name'})")
            for view in kernel.outputs:
                self.fail(n, view, "it is no node of the model")
            return
        for tensor, view in zip(node.outputs, kernel.outputs):
            self.contents.write(view, self.tensors[tensor.name])
            self.contents.name(view, self.tensors[tensor.name])

    def expression(self, name: str) -> tuple[Scope, tuple[str, ...]]:
        """The model's expression of a tensor, with what the plan nowhere holds written into it; and the names of that."""
        if name not in self.expressions:
            part = self.parts[name]
            inner = {t: self.expression(t) for t in part.inputs if t in self.parts and t not in self.last}
            within = tuple(dict.fromkeys(x for t, (_, more) in inner.items() for x in (t, *more)))
            if len(within) > MOST_INSIDE:
                raise NotLifted(f"the plan holds none of {len(within)} tensors of the model that lead to {name}")
            self.expressions[name] = exchange_in(part.expression, {t: e for t, (e, _) in inner.items()}), within
        return self.expressions[name]

    def cut(self, name: str, n: int) -> None:
        """Note what is to be proven of a tensor that is complete, and let it stand for itself, or for the other one that is in its place."""
        view, place = self.places[name], None if n == BEFORE else self.places[name]
        lifted = Lifted(name, self.parts[name].expression, place=place, last=n, joined=self.joined)
        lifted.arithmetic = self.arithmetics.get(view.buffer, F32)
        if view.buffer == name:  # from here on the buffer, which is all the tensor's, stands for itself
            self.arithmetics.pop(name, None)
        shown: Scope | None = None
        try:
            lifted.expression, lifted.inside = self.expression(name)
            lifted.parts = {t: self.parts[t].expression for t in (name, *lifted.inside)}
            lifted.claims = tuple(self.claims(view, lifted.expression))
            series = self.contents.series(view)
            lifted.series = () if series is None else (Claim(over(lifted.expression, series)),)
            lifted.aliases = {t: self.aliases[t] for t in tensors(lifted.expression) if t in self.aliases}
            shown = as_scope(self.contents.read(view)) if series is None else series
        except NotLifted as reason:
            lifted.reason = str(reason)
        unknown = [t for c in lifted.claims for t in tensors(c.plan) if t in self.unlifted]
        lifted.reason = lifted.reason or next((self.unlifted[t] for t in unknown), "")
        self.result.found[name] = lifted
        if shown is not None and self.contents.is_named(view):
            self.aliases[name] = shown
            self.contents.name(view, self.tensors[name], alias=True)
            return
        if shown is not None and self.contents.is_moved(view):
            self.joined[name] = shown
        self.contents.name(view, self.tensors[name])

    def claims(self, place: View, expression: Scope) -> list[Claim]:
        """What a place holds beside the model's expression: write by write where each lies within it, else as one."""
        owners = self.contents.owners(place)
        writes = self.contents.cells[place.buffer].writes
        if NOBODY not in owners and any(writes[o].view != place for o in owners):
            found = [self.piece(place, writes[o].view, writes[o].value, self.contents.count(place, o)) for o in owners]
            if all(found):
                return [c for c in found if c]
        return [Claim(over(expression, as_scope(self.contents.read(place))))]

    def piece(self, place: View, view: View, value: Value, count: int) -> Claim | None:
        """One write, all of which is still there and part of the place."""
        loops, own, where = refined(view, place)
        index, conds = element(place, where, ranges_of(loops))
        if conds or count != prod(view.shape):
            return None
        if len(loops) > len(view.shape):
            return Claim(at(as_scope(value), loops, own), index)
        named = {i.name: var(j.name) for i, j in zip(loops, as_scope(value).loops)}
        return Claim(as_scope(value), tuple(substitute(ix, named) for ix in index))

    def outputs(self) -> None:
        """The plan's outputs are the model's tensors."""
        wanted = dict(self.program.outputs)
        if [name for name, _ in self.plan.outputs] != [name for name, _ in self.program.outputs]:
            self.result.problems.append("the plan gives out other names than the model")
        for name, view in self.plan.outputs:
            tensor = self.tensors.get(wanted.get(name, ""))
            try:
                right = tensor is not None and view.shape == tensor.shape and self.contents.shows(view, tensor)
            except NotLifted as reason:
                self.result.problems.append(f"output {name}: {reason}")
                continue
            if not right:
                self.result.problems.append(f"output {name} of the plan is not what the model gives out")


def numbers(expressions: Iterable[Scope]) -> Callable[[Number], Number]:
    """The number that a kernel's parameter stands for: one of the model's that rounds to it where it is a double, else its exact value."""
    known: dict[Number, Number] = {}
    for expression in expressions:
        for scope in walk(expression):
            known.update({float(v): v for v in constants_in(scope.body)})
            known.update({-float(v): -v for v in constants_in(scope.body)})
    return lambda x: known[x] if x in known else x if isinf(x) else Fraction(x)


def constants_in(body: Body) -> list[Number]:
    """The numbers that stand in a body."""
    own = [body.value] if isinstance(body, Const) else []
    return own + [v for a in children(body) for v in constants_in(a)]


def as_scope(value: Value) -> Scope:
    """The value as an expression."""
    if isinstance(value, Scope):
        return value
    loops = loops_of(value.shape)
    return Scope(loops, (), Read(value, indices(loops)))


def over(expression: Scope, value: Scope) -> Scope:
    """The value over the box of an expression of that shape."""
    if value.box == expression.box:
        return value
    return Scope(expression.loops, (), Read(value, tuple(var(i.name) - i.lo for i in expression.loops)))


def last_touched(plan: Plan, places: Mapping[str, View]) -> dict[str, int]:
    """The last kernel that writes an element of each place; places that none writes to are left out."""
    by_buffer: dict[str, list[str]] = {}
    for name, view in places.items():
        by_buffer.setdefault(view.buffer, []).append(name)
    found: dict[str, int] = {}
    sizes = {b.name: b.size for b in plan.buffers}
    masks: dict[str, np.ndarray] = {}
    for n, kernel in enumerate(plan.kernels):
        for view in kernel.result_views:
            for name in by_buffer.get(view.buffer, ()):
                if meets(places[name], view, sizes[view.buffer], masks, name):
                    found[name] = n
    return found


def meets(place: View, view: View, size: int, masks: dict[str, np.ndarray], name: str) -> bool:
    """A view has an element of a place."""
    if prod(place.shape) == size:
        return prod(view.shape) > 0
    if name not in masks:
        masks[name] = np.zeros(size, np.bool_)
        part(masks[name], place)[...] = True
    return bool(part(masks[name], view).any())


def same_node(node: Opaque, call: OpaqueCall) -> bool:
    """The call runs the node's model, or the recursion that the importer says it to be."""
    return node.model == call.model and call.recursion in (None, node.recursion)
