"""Random expressions that are copies of one by construction, for a size that stands for any: along a dimension of their own, or within an old one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from einnet.derivation.ranged import RangedFile, ranged
from einnet.derivation.steps import Derivation, Step
from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, children, rebuild, substitute_body
from tests.derivation.generators import correlations, readers, scopes

AT = 101
"""A prime above all numbers of the generators: what it divides follows the size."""

SIZES = (1, 2, 3)
COPY = "n'"

Way = tuple[str, int]
"""How and where copies lie along a dimension: it is "more", or an old one with whole copies behind one another ("outer") or in turns ("inner")."""


class _Copies:
    """AT copies of scopes and of the tensors that they read, laid out as drawn; a tensor is seldom read by all copies alike."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.ways: dict[Tensor, Way | None] = {}

    def scope(self, scope: Scope, way: Way) -> Scope:
        kind, d = way
        loops, copy, old = list(scope.loops), var(COPY), {}
        if kind == "more":
            loops.insert(d, Iter(COPY, 0, AT))
        else:
            i = loops[d]
            loops[d] = Iter(COPY, 0, i.hi * AT)
            copy, place = (copy // i.hi, copy % i.hi) if kind == "outer" else (copy % AT, copy // AT)
            old = {i.name: place}
        return Scope(tuple(loops), scope.sums, self.body(substitute_body(scope.body, old), copy), scope.reduce)

    def body(self, body: Body, copy: Index) -> Body:
        if not isinstance(body, Read):
            return rebuild(body, tuple(self.body(a, copy) for a in children(body)))
        base = body.base
        extents = [hi if lo == 0 else 0 for lo, hi in base.box]
        way = self.way(extents) if isinstance(base, Scope) else self.ways.setdefault(base, self.way(extents, seldom=True))
        if way is None:
            return body
        index, (kind, d) = list(body.index), way
        if kind == "more":
            index.insert(d, copy)
        else:
            index[d] = copy * extents[d] + index[d] if kind == "outer" else index[d] * AT + copy
        return Read(self.scope(base, way) if isinstance(base, Scope) else _longer(base, way), tuple(index), body.fill)

    def way(self, extents: Sequence[int], seldom: bool = False) -> Way:
        own = [("more", d) for d in range(len(extents) + 1)]
        within = [(kind, d) for d, n in enumerate(extents) if n > 0 for kind in ("outer", "inner")]
        return self.draw(st.sampled_from([*own, *own, *within, *([None] if seldom else [])]))


def _longer(tensor: Tensor, way: Way) -> Tensor:
    kind, d = way
    shape = list(tensor.shape)
    if kind == "more":
        shape.insert(d, AT)
    else:
        shape[d] *= AT
    return Tensor(f"{tensor.name}_{kind}{d}", tuple(shape), tensor.dtype, tensor.weight)


@st.composite
def copies(draw: st.DrawFn) -> Scope:
    """AT copies of a random scope."""
    scope = draw(st.one_of(scopes(depth=1), readers(), correlations()))
    made = _Copies(draw)
    return made.scope(scope, made.way([i.hi if i.lo == 0 else 0 for i in scope.loops]))


def written(start: Scope, *steps: Step) -> RangedFile:
    """A derivation at AT as one for every size."""
    return ranged(Derivation(start, steps), [], AT, "N", (1, 32), SIZES)
