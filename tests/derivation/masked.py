"""Random products under a mask: what is 0 outside a band of two loops, maybe as a factor, in a scope that is read, or of a sum."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from einnet.expr.index import var
from einnet.expr.nodes import Body, Call, Cond, Const, Iter, Read, Scope, Select, Tensor, indices, make_mul


@st.composite
def masked_products(draw: st.DrawFn) -> Scope:
    """A product of rows and columns of which a band is asked for, of slope one or two, with its own ranges and maybe another loop."""
    m, n = (Iter(name, low, low + draw(st.integers(3, 7))) for name, low in (("m", draw(st.integers(0, 1))), ("n", draw(st.integers(0, 1)))))
    others = draw(st.sampled_from(((), (Iter("h", 0, 2),))))
    loops, depth = (*others, m, n), Iter("x", 0, 2)
    distance = var("n") - draw(st.sampled_from((1, 1, 2, -1))) * var("m")
    low = draw(st.integers(-2, 2))
    conds = (Cond(distance - low), Cond(low + draw(st.integers(0, 3)) - distance))
    sides = [Read(Tensor(name, (i.hi, 2)), (var(i.name), var("x"))) for name, i in (("Q", m), ("R", n))]
    product = make_mul((*sides, *(Read(Tensor("H", (2, 2)), (var("h"), var("x"))) for _ in others)))
    one, zero = Const(Fraction(1)), Const(Fraction(0))
    kind = draw(st.sampled_from(("sum", "read", "factor", "function")))
    if kind == "sum":
        return Scope(loops, (depth,), Select(conds, product, zero))
    scores: Body = Read(Scope(loops, (depth,), product), indices(loops))
    if kind == "factor":
        return Scope(loops, (), make_mul((scores, Read(Scope((m, n), (), Select(conds, one, zero)), (var("m"), var("n"))))))
    return Scope(loops, (), Select(conds, Call("tanh", (scores,)) if kind == "function" else scores, zero))
