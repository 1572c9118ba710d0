"""Which scopes the rule join puts together, and which parts of a joined one are read as one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.derivation.moves.rule import Refused
from einnet.derivation.rules.join import Exchanging, digits, join, joins, stitched
from einnet.expr.index import value, var
from einnet.expr.nodes import Iter, Read, Scope
from einnet.expr.notation.text import parse
from tests.derivation.generators import same_tensor
from tests.strategies import repeatable

HEAD = "x : f32[4,5]\nv : weight f32[5,3]\nw : weight f32[5,3]\nC : weight f32[3,3] = [1,2,3,4,5,6,7,8,9]\nA : f32[9,9]\nB : f32[9]\n"
FIRST, SECOND = (f"{{L[m<4,n<3] Σ[k<5] x[m,k]*{weight}[k,n]}}[m,n]" for weight in "vw")


def expression(text: str) -> Scope:
    return parse(HEAD + text)


def test_scopes_that_are_not_in_an_expression_are_not_joined() -> None:
    whole = expression(f"L[m<4,n<3] {FIRST} + {SECOND}")
    first, second = whole.nested
    assert list(joins(whole, first, second))
    other = expression("L[m<4,n<3] Σ[k<5] x[m,k]*w[k,2-n]")
    assert list(joins(expression(f"L[m<4,n<3] {FIRST} + {{{other.text()}}}[m,n]"), first, other))
    assert not list(joins(whole, first, other)) and not list(joins(whole, other, second)) and not list(joins(whole, first, first))


@pytest.mark.parametrize("text", [
    "L[m<3,n<3] {L[m<3,n<3] Σ[k<5] v[k,m]*w[k,n]}[m,n]*{L[m<3,n<3] Σ[k<5] v[k,m]*v[k,n]}[m,n]*x[m,n]",
    "L[m<4,n<3] {L[m<4,n<3] x[m,n]*v[m,n]}[m,n] + {L[m<4,n<3] x[m,n+2]*w[m,n]}[m,n]",
    "L[m<4,n<3] {L[m<4,n<3] Σ[k<3] x[m,k]*C[k,n]}[m,n] + {L[m<4,n<3] Σ[k<3] x[m,k+2]*C[n,k]}[m,n]",
])  # fmt: skip
def test_what_is_known_beforehand_or_no_sum_is_not_joined(text: str) -> None:
    """Sums of weights are computed once, copies are merged, and transforms by constant matrices have steps of their own."""
    assert [o.why for o in join(expression(text)) if isinstance(o, Refused)] == ["fewer than two different sums are read"]


@pytest.mark.parametrize("extents", [(4,), (2, 3), (2, 3, 2), (1, 4, 3, 2)])
def test_digits_walk_through_all_places_in_their_order(extents: tuple[int, ...]) -> None:
    own = [Iter(f"i{n}", n - 1, n - 1 + extent) for n, extent in enumerate(extents)]
    found = digits(own, var("n"))
    places = [tuple(value(found[i.name], {"n": n}) for i in own) for n in range(len(list(product(*map(range, extents)))))]
    assert places == list(product(*(range(i.lo, i.hi) for i in own)))


def test_scopes_are_exchanged_wherever_they_are_read() -> None:
    """What reads none of them stays."""
    text = "L[m<4,n<3] {}*relu({{L[m<4,n<3] exp({})}}[m,n]) + {{L[m<4,n<3] Σ[k<3] x[m,k]*C[k,n]}}[m,n]"
    (first,), (second,) = (expression(f"L[m<4,n<3] {side}").nested for side in (FIRST, SECOND))
    assert Exchanging({first: second}).within(expression(text.format(FIRST, FIRST))) == expression(text.format(SECOND, SECOND))


@pytest.mark.parametrize("where", ["{}", "relu({})*B[i]", "B[i] + exp({})", "{{L[i<9] relu({})}}[i]", "{{L[i<9] {}}}[i]*{{L[i<9] B[i]}}[i]"])
def test_neighbours_are_read_as_one_wherever_they_stand(where: str) -> None:
    parts, whole = "{L[n<2] relu(B[n])}[i] + {L[1<=n<4] relu(B[n+1])}[i-1]", "{L[n<5] relu(B[n])}[i]"
    assert stitched(expression(f"L[i<9] {where.format(parts)}")) == expression(f"L[i<9] {where.format(whole)}")


@dataclass(frozen=True)
class Part:
    """A function of places over a box, 0 outside of it, whose loops begin anywhere."""

    starts: tuple[int, ...]
    extents: tuple[int, ...]
    lows: tuple[int, ...]
    reduce: str = "Σ"
    terms: int = 2
    more: bool = False

    def __str__(self) -> str:
        loops = [f"{low}<={n}<{low + extent}" for n, low, extent in zip("mn", self.lows, self.extents)]
        shifts = [start - low for start, low in zip(self.starts, self.lows)]
        index = [f"{i}-({shift})" for i, shift in zip("ij", shifts)]
        here = [f"{n}+({shift})" for n, shift in zip("mn", shifts)]
        read = f"A[{','.join((*here, 'k')[:2])}]"
        extra = (["e<1"], ["0"]) if self.more else ([], [])
        return f"{{L[{','.join((*loops, *extra[0]))}] {self.reduce}[k<{self.terms}] {read}*B[{here[-1]}+k]}}[{','.join((*index, *extra[1]))}]"


@st.composite
def parts(draw: st.DrawFn) -> tuple[Part, Part]:
    """Two parts in one or two dimensions; often end to end, sometimes of other forms."""
    rank = draw(st.integers(1, 2))
    small, low = st.integers(0, 3), st.integers(-1, 2)
    start, extent, lows = (draw(st.tuples(*(some,) * rank)) for some in (small, st.integers(1, 3), low))
    along = draw(st.integers(0, rank - 1))
    step = draw(st.sampled_from((extent[along],) * 4 + (extent[along] + 1, extent[along] - 1, 0)))
    other = Part(
        tuple(s + step * (n == along) + draw(st.sampled_from((0,) * 5 + (1,))) for n, s in enumerate(start)),
        tuple(draw(st.sampled_from((e, e, 1, 2) if n == along else (e, e, e, e, 2))) for n, e in enumerate(extent)),
        tuple(draw(low) if n == along else draw(st.sampled_from((at, at, at, at, 0))) for n, at in enumerate(lows)),
        draw(st.sampled_from(("Σ",) * 7 + ("max",))), draw(st.sampled_from((2,) * 7 + (3,))), draw(st.sampled_from((False,) * 7 + (True,))),
    )  # fmt: skip
    both = Part(start, extent, lows), other
    return both if draw(st.booleans()) else both[::-1]


def end_to_end(a: Part, b: Part) -> bool:
    """The boxes are one box cut in two, and one body serves both."""
    if (a.reduce, a.terms, a.more) != (b.reduce, b.terms, b.more):
        return False
    sides = [list(zip(part.starts, part.extents, part.lows)) for part in (a, b)]
    for d in range(len(a.starts)):
        alike = all(p == q for n, (p, q) in enumerate(zip(*sides)) if n != d)
        if alike and (a.starts[d] + a.extents[d] == b.starts[d] or b.starts[d] + b.extents[d] == a.starts[d]):
            return True
    return False


def test_neighbours_are_read_as_one_and_nothing_else() -> None:
    seen: list[bool] = []

    @repeatable(100)
    @given(parts())
    def check(both: tuple[Part, Part]) -> None:
        a, b = both
        before = expression(f"L[{','.join(f'{i}<9' for i in 'ij'[: len(a.starts)])}] {a} + {b}")
        after = stitched(before)
        assert isinstance(after.body, Read) == end_to_end(a, b), str(before)
        assert same_tensor(before, after)
        seen.append(end_to_end(a, b))

    check()
    assert 20 < sum(seen) < len(seen) - 20
