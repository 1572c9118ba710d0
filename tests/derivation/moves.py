"""Random scopes in which an element function stands before or behind a layout move."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from einnet.expr.index import var
from einnet.expr.nodes import Body, Call, Const, Iter, Read, Scope, Tensor, make_mul


@st.composite
def layout_moves(draw: st.DrawFn) -> Scope:
    """L[i] Σ[j] f({L[x,y] A[y,x+d]}[i+a,j+b])*B[i,j], or with f in the scope; the move may be read outside its box, where its fill is 0 or 1."""
    rows, columns = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    loops, sums = (Iter("i", 0, rows),), (Iter("j", 0, columns),)
    shift = draw(st.sampled_from((-1, 0, 0, 1)))
    index = (var("y"), var("x") + shift) if draw(st.booleans()) else (var("x") + shift, var("y"))
    source = Read(Tensor("A", (4, 5)), index, draw(st.sampled_from((Fraction(0), Fraction(0), Fraction(2)))))
    within = draw(st.booleans())
    box = (Iter("x", 0, rows), Iter("y", 0, columns))
    moved = Scope(box, (), function(draw, source) if within else source)
    fill = draw(st.sampled_from((Fraction(0), Fraction(0), Fraction(1))))
    read = Read(moved, tuple(var(n) + draw(st.sampled_from((0, 0, 0, 1, -1))) for n in "ij"), fill)
    whole = read if within else function(draw, read)
    other = Read(Tensor("B", (rows, columns)), (var("i"), var("j")))
    return Scope(loops, sums, make_mul((whole, other)) if draw(st.booleans()) else whole, draw(st.sampled_from(("sum", "sum", "max"))))


def function(draw: st.DrawFn, of: Body) -> Body:
    """A function of one argument, or of another constant one."""
    name = draw(st.sampled_from(("relu", "abs", "exp", "not", "max", "less")))
    return Call(name, (of, Const(Fraction(draw(st.integers(-1, 1)))))) if name in ("max", "less") else Call(name, (of,))
