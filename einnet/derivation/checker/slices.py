"""One proof for every size: an expression of N equal slices is N copies of one function.

A tensor or scope with a dimension of k·N elements has N slices: element (a·N + s)·t + b of it is of slice s, and (a, b) is its place there, for a
stride t that divides k. With t = k, slices are adjacent; with t = 1, N is innermost. A scope is *sliced* for such a dimension of its result where it
sums over nothing that follows N, and at every N >= 1, every slice s, and all values x of its iterators within a slice
  - each read is inside or outside of what it reads as it is at N = 1 and s = 0; inside, it is of slice s, at the place of N = 1 and s = 0
    (what has no dimension that follows N is read at the elements of N = 1 and s = 0),
  - each condition holds, and each value of an index is, as at N = 1 and s = 0,
  - and the scopes that it reads are sliced as they are read.

Theorem. Slice s of a sliced scope of size N is that scope of size 1 on slice s of its tensors. Proof, by induction on nesting: at (s, x) the body
combines the numbers that it combines at x for N = 1, and the elements of slice s at the same places; what is outside, and its fill, are the same;
sums run over the same ranges. For a tensor that is read it is the definition of its slice; for a scope, the induction.

So where all expressions of a derivation are sliced, tensors and result in one way throughout, what the checker proves of it at N = 1, equality and
also which numbers are added together, holds at every N >= 1. The conditions are equalities of relations with N as a parameter: where their two sides
are not written alike, isl decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from einnet.derivation.checker.slice_places import Place, condition, dimension_of, parts, places, plain, points, same
from einnet.errors import ParseError
from einnet.expr.index import Index, floor_div, var
from einnet.expr.nodes import Body, Cond, Read, Scope, Select, Tensor, Val, children
from einnet.expr.notation.printing import print_index
from einnet.expr.notation.sized_text import SIZE, follows, multiple, value
from einnet.expr.sets import PARAMETER
from einnet.expr.sized import SLICE, Frame, Sized, Unsliced


class Slices(NamedTuple):
    """Where the slices of the result lie, and those of the tensors that follow N."""

    result: Place
    tensors: dict[str, Place]


def sliced(states: Sequence[Scope]) -> Slices:
    """How expressions (`parse_sized`) are sliced, their tensors and results in one way. Raises Unsliced, or ParseError for an index, where not."""
    dimension = dimension_of(states[0].box, "the result")
    if dimension is None:
        raise Unsliced("the result has no dimension that follows the size")
    if any(state.box != states[0].box for state in states):
        raise Unsliced("the results have different shapes")
    refusals: list[Unsliced | ParseError] = []
    for place in places(dimension, states[0].loops[dimension].hi):
        slicing = _Slicing()
        try:
            for state in states:
                slicing.scope(state, place)
        except (Unsliced, ParseError) as reason:
            refusals.append(reason)
        else:
            return Slices(place, {t.name: found for t, found in slicing.tensors.items()})
    raise refusals[0]


def told(reason: Exception, name: str) -> str:
    """The first line of a reason, with a name for the size."""
    line = str(reason).partition("\n")[0]
    return re.sub(r"\d{19,}", lambda m: name if int(m[0]) == SIZE else f"{multiple(int(m[0]))}*{name}", line)


class _Slicing:
    """One attempt: how the tensors are divided, and the scopes that are sliced as said."""

    def __init__(self) -> None:
        self.tensors: dict[Tensor, Place] = {}
        self.done: set[tuple[Scope, Place | None]] = set()

    def scope(self, scope: Scope, place: Place | None) -> None:
        """Nothing, where the scope is sliced for a place; None: it does not follow N."""
        if (scope, place) in self.done:
            return
        if follows(tuple(i.range for i in scope.sums)):
            raise Unsliced(f"it reduces over what follows the size: {scope.reduce}[{', '.join(f'{i.name}<{i.hi}' for i in scope.sums)}]")
        self.body(scope.body, points(scope, place))
        self.done.add((scope, place))

    def body(self, body: Body, frame: Frame) -> None:
        """The conditions of the definition for all that stands in a body."""
        match body:
            case Read(base, index, _):
                name = base.name if isinstance(base, Tensor) else "a scope"
                with _named(f"the read {name}[{','.join(map(print_index, index))}]"):
                    place = self.read(body, frame)
                if isinstance(base, Scope):
                    self.scope(base, place)
            case Val(e):
                with _named(f"val({print_index(e)})"):
                    rest = plain(value(e, frame))
                    same(frame, (Index(rest.terms, rest.const),), set(), None)
            case Select(conds, _, _):
                for c in conds:
                    with _named(f"the condition {print_index(c.index)} {'==' if c.equal else '>='} 0"):
                        same(frame, (), condition(frame, c), None)
        for part in children(body):
            self.body(part, frame)

    def read(self, read: Read, frame: Frame) -> Place | None:
        """How slices lie in what is read, None where it does not follow N."""
        index, box = [value(e, frame) for e in read.index], read.base.box
        dimension = dimension_of(box, "what is read")
        place = None if dimension is None else self.place(read.base, dimension, index[dimension])
        image: list[Index] = []
        conds: set[Cond] = set()
        for n, (e, (lo, hi)) in enumerate(zip(index, box, strict=True)):
            if place is not None and n == dimension:
                block, within = parts(frame, e, place)
                image = [floor_div(within, place.stride), *image, block, within % place.stride]
                conds |= {Cond(block), Cond(place.blocks - 1 - block), Cond(within), Cond(place.stride * var(PARAMETER) - 1 - within)}
            else:
                rest = plain(e)
                element = floor_div(rest, 1)
                image.append(element)
                conds |= {Cond(element - lo), Cond(hi - 1 - element), Cond((rest - element) * rest.den, True)}
        same(frame, tuple(image), conds, place)
        return place

    def place(self, base: Tensor | Scope, dimension: int, index: Sized) -> Place:
        """How slices lie in what is read: the stride is the step from slice to slice. The same for all reads of a tensor."""
        stride, extent = abs(index.rest.coefficient(SLICE)), multiple(base.box[dimension][1])
        if not stride or index.den != 1:
            raise Unsliced("it does not follow the slices")
        if extent % stride:
            raise Unsliced(f"it follows the slices in steps of {stride}, along {extent * SIZE} elements")
        place = Place(dimension, extent // stride, stride)
        if isinstance(base, Tensor) and self.tensors.setdefault(base, place) != place:
            raise Unsliced("it divides the tensor otherwise than another read")
        return place


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Reasons say of what they are."""
    try:
        yield
    except Unsliced as reason:
        raise Unsliced(f"{what}: {reason}") from None
