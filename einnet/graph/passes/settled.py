"""What depends on no input: a difference of equal numbers, a sum of deviations from a mean, a softmax of one element, a clip of what is clipped.

f(x) = f(0) for all numbers x. Which expressions are so is guessed by values at a few places, and proven by normal forms. All limits are counts, so
that a model is prepared in the same way on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from math import prod

import numpy as np

from einnet.expr.functions.modular import random_function, seed_of
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Const,
    Div,
    Read,
    Scope,
    Tensor,
    bodies_in,
    children,
    exchange_in,
    indices,
    is_weight,
    map_reads,
    reads,
    tensors,
    walk_repeated,
)  # fmt: skip
from einnet.expr.normal.alike import bend_alike, same_form
from einnet.expr.normal.limits import at_most
from einnet.expr.normal.totals import total
from einnet.expr.partings import cut_away
from einnet.expr.values.arithmetic import Array, Machine
from einnet.expr.values.bodies import Integers
from einnet.expr.values.points import effort, values_at
from einnet.graph.passes.weight_structure import one_number
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import anonymous
from einnet.graph.split import is_contraction

MOST_WRITTEN = 256
"""Reads of an expression that is not written out further."""

MOST_NODES, MOST_WORK, MOST_TERMS = 24, 1 << 19, 4096
"""Nodes that stand together in an expression, evaluations of bodies that a guess may take, and terms of normal forms that a proof may take."""

PLACES, DRAWS, CLOSE, LARGEST_DENOMINATOR = 4, 3, 1e-9, 1 << 10
"""Output elements that a guess looks at, draws of inputs, by how much they may differ, and the denominators of numbers that are recognised: few
enough that hardly any number is near one by chance."""

BENDS = frozenset({"relu", "min", "max", "clip"})
FLOATS = frozenset({"f32", "f16", "f64"})
ZERO = Const(Fraction(0))

Signature = tuple[tuple[Scope, tuple[int, ...]], ...]
DOUBLES = Machine("float64")


def settle(program: Program) -> Program:
    """The program in which expressions that depend on no input read none. Their nodes are told in `settled`: where an input is no number, the model's
    result may be none either."""
    settling = settling_of(program)
    nodes: list[ProgramNode] = []
    settled = list(program.settled)
    for node in program.nodes:
        found = settling.value_of(node.output.name) if isinstance(node, Node) and node.output.name in settling.makers else None
        nodes.append(node if found is None or not isinstance(node, Node) else replace(node, scope=found))
        settled += node.origin[:1] if found is not None else ()
    return replace(program, nodes=tuple(nodes), settled=tuple(dict.fromkeys(settled)))


def settling_of(program: Program) -> Settling:
    """What is asked about a program whose inputs are numbers."""
    numbers = {name: found for name, value in program.weights.items() if (found := one_number(value)) is not None}
    every = {n.output.name: replace(n, scope=exchange_in(n.scope, numbers)) for n in program.expression_nodes() if n.output.dtype in FLOATS}
    products = {n.output.name for n in program.expression_nodes() if is_contraction(n.scope)}
    makers = {name: node for name, node in every.items() if name not in products}
    return Settling(makers, every, program.weights, dict.fromkeys((t.name for t in program.inputs), True))


@dataclass
class Settling:
    """The nodes by what they compute, with numbers for weights that hold nothing else; in `makers` products of tensors are left out: nothing is
    looked for beyond these. `known` are tensors that consist of numbers whatever the inputs are, and that need not."""

    makers: Mapping[str, Node]
    every: Mapping[str, Node]
    weights: Mapping[str, Array]
    known: dict[str, bool]
    forms: dict[str, Scope] = field(default_factory=dict)
    """Their expressions, but for the names of tensors."""
    moving: set[Signature] = field(default_factory=set)
    """What depends on inputs, or is not known not to: layers that are repeated are looked at once."""

    def value_of(self, name: str) -> Scope | None:
        """The expression of the tensor of that name, without inputs; None where it depends on some, or is not known not to."""
        if not may_cancel(self.makers[name].scope):
            return None
        signature = self.signature(name)
        if signature in self.moving:
            return None
        *smaller, largest = grown(self.makers[name].scope, self.makers)
        last = guess(largest) if cancels(largest) else None
        if last is None:
            self.moving.add(signature)
            return None
        for expression, value in chain(((e, guess(e)) for e in smaller), [(largest, last)]):
            if value is not None and proven(expression, value):
                return value if all(map(self.is_number, tensors(expression))) else None
        self.moving.add(signature)
        return None

    def is_number(self, name: str) -> bool:
        """The tensor consists of numbers whatever the inputs are: only then is it less itself 0."""
        waiting = [name]
        while waiting:
            one = waiting[-1]
            if one not in self.known and one in self.every:
                *_, largest = grown(self.every[one].scope, self.makers)
                if left := [n for n in tensors(largest) if n not in self.known]:
                    waiting += left
                    continue
                self.known[one] = all(self.known[n] for n in tensors(largest)) and total(Read(largest, indices(largest.loops)))
            elif one not in self.known:
                self.known[one] = one in self.weights and bool(np.isfinite(self.weights[one]).all())
            waiting.pop()
        return self.known[name]

    def signature(self, name: str) -> Signature:
        """The expressions from which the largest is put together, but for names, and which of them read which."""
        order, found = [name], []
        for one in islice(order, MOST_NODES):  # which grows meanwhile
            if one in self.makers:
                node = self.makers[one]
                if one not in self.forms:
                    self.forms[one] = anonymous(node.scope)
                order += [n for n in node.inputs if n not in order]
                found.append((self.forms[one], tuple(map(order.index, node.inputs))))
        return tuple(found)


def may_cancel(scope: Scope) -> bool:
    """A node like that may end what cancels: it adds or divides two things, bounds one, or reduces."""
    if is_weight(scope):
        return False
    return bool(scope.sums) or any(
        isinstance(b, Call) and b.name in BENDS or isinstance(b, (Add, Div)) and not all(map(is_weight, children(b))) for b in bodies_in(scope.body)
    )


def cancels(scope: Scope) -> bool:
    """Something may: a tensor is read in several places, or what is bounded is a function."""
    scopes = list(walk_repeated(scope))
    found = Counter(r.base.name for s in scopes for r in dict.fromkeys(reads(s.body)) if isinstance(r.base, Tensor) and not r.base.weight)
    calls = [b.name for s in scopes for b in bodies_in(s.body) if isinstance(b, Call)]
    return any(n > 1 for n in found.values()) or len(calls) > 1 and not BENDS.isdisjoint(calls)


def grown(scope: Scope, makers: Mapping[str, Node]) -> Iterator[Scope]:
    """The expression over what it reads, over what makes that, and so on: not beyond products, nor over too many nodes, nor where it is long already
    since what is read twice is written twice."""
    count = 1
    while True:
        yield scope
        inner = {n: makers[n].scope for n in tensors(scope) if n in makers}
        count += len(inner)
        if not inner or count > MOST_NODES or written_out(scope) > MOST_WRITTEN:
            return
        scope = exchange_in(scope, inner)


def written_out(scope: Scope) -> int:
    """Reads of an expression, those of nested scopes as often as these are read."""
    return sum(len(reads(s.body)) for s in walk_repeated(scope))


def guess(scope: Scope) -> Scope | None:
    """The expression without inputs that has the same values at some places for other inputs, if there is one."""
    inputs = [t for t in tensors(scope).values() if not t.weight]
    if not inputs or any(t.dtype not in FLOATS for t in tensors(scope).values()) or effort(scope, PLACES) > MOST_WORK:
        return None
    where = places(scope)
    first = values_of_all(scope, where, DRAWS) if values_of_all(scope, where[:1], 2) is not None else None
    if first is None:
        return None
    value = Fraction(float(first.flat[0])).limit_denominator(LARGEST_DENOMINATOR)
    if np.abs(first - float(value)).max() <= CLOSE:
        return Scope(scope.loops, (), Const(value))
    return without_inputs(scope)


def values_of_all(scope: Scope, where: Integers, draws: int) -> Array | None:
    """The values at these places, where they are numbers, and the same for so many draws of the inputs."""
    first, *others = (values_at(scope, where, DOUBLES, partial(element, seed)) for seed in range(1, draws + 1))
    most = CLOSE * max(1.0, float(np.abs(first).max()))
    alike = np.isfinite(first).all() and all(float(np.abs(first - other).max()) <= most for other in others)
    return first if alike else None


def places(scope: Scope) -> Integers:
    """Points of the output, the first and the last among them."""
    flat = np.linspace(0, prod(scope.shape) - 1, PLACES).astype(np.int64)
    found = np.array([np.unravel_index(n, scope.shape) for n in flat], dtype=np.int64).reshape(PLACES, len(scope.loops))
    return found + np.array([i.lo for i in scope.loops], dtype=np.int64)


def element(seed: int, t: Tensor, address: Integers) -> Array:
    """Numbers from -2 to 2 that look random; weights are the same whatever the seed."""
    residues = random_function(seed_of(0 if t.weight else seed, t.name), (address,))
    return np.asarray(residues.astype(np.float64) / 2.0**59 - 2.0)


def without_inputs(scope: Scope) -> Scope:
    """The expression for inputs that are 0."""

    def value(r: Read) -> Body:
        if isinstance(r.base, Scope):
            return replace(r, base=without_inputs(r.base))
        return r if r.base.weight else ZERO

    return replace(scope, body=map_reads(scope.body, value))


def proven(before: Scope, after: Scope) -> bool:
    """The two have one normal form, or would have whatever numbers stood in place of functions of inputs."""
    for one in dict.fromkeys((before, generalised(before))):
        for alike in (same_form, bend_alike):
            with at_most(MOST_TERMS):
                if alike(one, after):
                    return True
    return False


def generalised(scope: Scope) -> Scope:
    """The expression with a tensor in place of each scope that is a function or a quotient of such, and a number whatever the inputs are: 0 times any
    other need not be 0."""
    return cut_away(scope, {s for s in scope.inside if curved(s.body) and not s.sums and total(Read(s, indices(s.loops)))})


def curved(body: Body) -> bool:
    """A function, or a quotient by more than a number."""
    return isinstance(body, Call) or isinstance(body, Div) and not isinstance(body.den, Const)
