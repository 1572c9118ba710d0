"""What guards ask for and what moves are made of, against their definitions: every value of every iterator is tried."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest

from einnet.derivation import rules
from einnet.derivation.facts import is_transform, zero_outside
from einnet.derivation.moves.block_product import block_products
from einnet.derivation.moves.generalise import Seam, common_index
from einnet.derivation.moves.pairing import pairings
from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.moves.spread import conditions, spread
from einnet.derivation.rules.band import unconditional
from einnet.derivation.rules.forced.merge import merge_guarded
from einnet.derivation.rules.relayout import factor
from einnet.derivation.rules.transitions import Recurrence, recurrences, running
from einnet.expr.algebra import product_growth, strassen
from einnet.expr.index import Index, substitute, var
from einnet.expr.nodes import Body, Cond, Const, Iter, Scope, Select, make_add, make_mul, reads, substitute_body
from einnet.expr.values.points import evaluate_at
from tests.derivation.generators import all_points, same_tensor
from tests.derivation.test_rules import expression, sources


def value(e: Index, **values: int) -> int:
    found = substitute(e, {name: Index((), v) for name, v in values.items()})
    assert found.is_const and found.den == 1
    return found.const


def test_a_common_index_is_one_side_below_the_seam_and_the_other_beyond() -> None:
    """Every index over two iterators with small numbers; where a multiple of the seam's iterator would do for two single values, one is found."""
    rng, found = Random(0), 0
    forms = [a * var("k") + b * var("x") + c for a, b, c in product((0, 1, -1, 2), (0, 1), range(-1, 4))]
    for _ in range(600):
        seam, a, b = Seam("k", rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))), rng.choice(forms), rng.choice(forms)
        common = common_index(a, b, seam, {"k": seam.joined.range, "x": (0, 3)})
        found += common is not None
        for k, x in product(range(seam.first + seam.second), range(3)) if common is not None else ():
            assert value(common, k=k, x=x) == value(a if k < seam.first else b, k=k, x=x), (a, b, seam, common)
        if seam.first == seam.second == 1 and a.coefficient("x") == b.coefficient("x"):
            assert common is not None
    assert found > 60


@pytest.mark.parametrize(("index", "fits"), [
    (4 * var("h") + 4 * var("r") + 3 * var("q"), {1: 4, 2: 4, 3: 0}), (2 * var("h") + 2 * var("r") + var("q"), {1: 2, 2: 2, 3: 0}),
    (4 * var("h") + 3 * var("q"), {1: 0, 2: 0}), (4 * var("h") - 4 * var("r") - var("q"), {1: 4, 4: 4, 5: 0}),
])  # fmt: skip
def test_digits_are_seen_where_the_smaller_ones_reach_less_far(index: Index, fits: dict[int, int]) -> None:
    for extent, d in fits.items():
        assert factor(index, {"h": (0, 3), "r": (0, 2), "q": (2, 2 + extent)}) == d


def test_conditions_are_those_beyond_which_the_body_is_a_number() -> None:
    body = expression("L[h<8,x<3] select(h-x>=0 & h-2==0, V[h], 0)").body
    assert conditions(body) == {var("h") - var("x")}
    assert not conditions(expression("L[h<8,x<3] select(h-x>=0, V[h], W[h])").body)
    assert not conditions(expression("L[h<8] V[h]").body)


@pytest.mark.parametrize("text", [
    "{L[x<8] V[x] + 1}[h-1]", "{L[x<8] V[x] + 1}[h]", "{L[x<8] V[x] + 1}[h]*{L[x<8] exp(W[x])}[h+2]", "{L[x<8] V[x]}[h-1]",
])  # fmt: skip
def test_what_is_spread_is_what_it_was_where_it_was_asked_for(text: str) -> None:
    """Over h from -2: what is read beyond its box by the given scope is 0 there, and stays so."""
    given = expression(f"L[h<8] {text}")
    wide = spread(given.body, {"h": (-2, 10)}, given)
    assert same_tensor(given, Scope(given.loops, (), wide))
    inside = [all(ix.const >= 0 and ix.const + 8 <= 8 for ix in r.index) for r in reads(given.body)]
    for r, new, within in zip(reads(given.body), reads(wide), inside, strict=True):
        computed = isinstance(r.base, Scope) and isinstance(r.base.body, (type(make_add((r, r))),)) or "exp" in str(r.base)
        assert (new.base.box == ((-2, 10),)) == (within and computed), (r, new)


def test_conditions_that_always_hold_go_and_no_other() -> None:
    rng = Random(1)
    ranges = {"h": (-1, 2), "r": (0, 1)}
    body: Body = expression("L[-1<=h<2] V[h+1]").body
    for _ in range(200):
        e = rng.choice((0, 1, -1, 2)) * var("h") + rng.choice((0, 1)) * var("r") + rng.randint(-2, 2)
        equal = rng.random() < 0.5
        values = [value(e, h=h, r=0) for h in range(*ranges["h"])]
        holds = all(v == 0 if equal else v >= 0 for v in values)
        left = unconditional(Select((Cond(e, equal),), body, Const(Fraction(3))), ranges)
        assert (left == body) == holds, (e, equal)


@pytest.mark.parametrize("text", [
    "L[h<8] relu({L[2<=x<7] exp(V[x])}[h])", "L[-2<=h<12] {L[x<8] V[x] + 1}[h-1]|2", "L[h<8] {L[x<8] V[x] + 1}[7-h]",
    "L[h<4,w<4] {L[x<3,-1<=y<2] M[x,y+1] + 1}[h-w,w-2]*V[h]", "L[h<8] {L[x<3] V[x] + 1}[h//2]",
])  # fmt: skip
def test_a_scope_that_is_merged_under_a_guard_is_0_beyond_its_box(text: str) -> None:
    e = expression(text)
    merged = merge_guarded(e, next(r for r in reads(e.body) if isinstance(r.base, Scope)))
    assert merged is not None and not merged.nested and same_tensor(e, merged)


@pytest.mark.parametrize(("text", "kind"), [
    ("L[h<8] relu({L[x<8] 2*V[x]}[h])", "exact"),
    ("L[h<8] 2*{L[x<8] 3*V[x]}[h]", "reassociation"),
    ("L[h<8] W[h]*{L[x<8] V[x]*W[x]}[h]", "reassociation"),    ("L[h<8] W[h] + {L[x<8] V[x]*W[x]}[h]", "exact"),
    ("L[h<8] {L[x<8] Σ[k<3] V[x]*w3[k]}[h]", "exact"),
    ("L[h<8] W[h]*{L[x<8] Σ[k<3] w3[k]}[h]", "reassociation"),
])  # fmt: skip
def test_what_is_grouped_otherwise_is_no_exact_step(text: str, kind: str) -> None:
    (merge,) = [r for r in rules.RULES if r.name == "merge"]
    assert [o.kind for o in merge.rewrites(expression(text))] == [kind]


def test_two_loops_on_each_side_are_not_laid_end_to_end() -> None:
    one = expression("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]")
    assert [[i.name for own in p.own for i in own] for p in pairings(one, expression("L[x<4,y<3] Σ[z<6] M[x,z]*R[z,y]"))] == [["n", "y"]]
    assert len(pairings(one, expression("L[x<4,y<3] Σ[z<6] O[x,z]*R[z,y]"))) == 1
    assert not pairings(one, expression("L[x<6,y<3] Σ[z<6] Y[x,z]*R[z,y]"))


def test_a_transform_is_of_one_operand_by_matrices_that_are_known() -> None:
    e = expression("L[h<6] Σ[r<3] V[h+r-1]*w3[r]")
    (bilinear,) = [r for r in rules.RULES if r.name == "bilinear"]
    (tiled,) = [o.scope for o in bilinear.rewrites(e) if o.parameters.startswith("F(2,3)")]
    transforms = [is_transform(s) for s in tiled.parts]
    assert transforms == [True, False, True, True], "of the products, of the data and of the taps; the products themselves are none"
    assert not is_transform(e)
    nested = next(bilinear.rewrites(expression("L[h<6,w<6] Σ[r<3,s<3] Y[h+r,w+s]*K[r,s,0,0]"))).scope
    assert [is_transform(s) for s in nested.parts] == [True, False, True, True], "by two matrices each"


def test_blocks_of_an_odd_depth_round_as_those_of_the_next_even_one() -> None:
    (odd,) = [o for o in block_products(expression("L[m<33,n<40] Σ[k<35] S[m,k]*T[k,n]")) if isinstance(o, Rewrite)]
    assert odd.bound == pytest.approx(product_growth(strassen()) * 18 / 35)


def test_an_even_part_of_a_longer_sum_is_cut_in_blocks() -> None:
    e = expression("L[m<33,n<40] Σ[k<34] S2[m,k]*T2[k,n]")
    assert [o.parameters for o in block_products(e) if isinstance(o, Rewrite)] == ["blocks=m,n,k"]


def test_a_body_is_0_outside_of_a_range_whatever_its_own_range_is() -> None:
    """Of random scopes: where it is said of a loop, the scope over a longer one is 0 there; the loop's range makes no difference to what is said."""
    said = 0
    for source in sources(400)[:60]:
        for i in source.loops:
            wide = {**source.ranges, i.name: (i.lo - 3, i.hi + 3)}
            told = zero_outside(source.body, i.name, i.range, source.ranges)
            assert told == zero_outside(source.body, i.name, i.range, wide)
            if told and source.reduce == "sum" and prod(source.shape) <= 60:
                said += 1
                longer = Scope(tuple(Iter(i.name, i.lo - 2, i.hi + 2) if k == i else k for k in source.loops), source.sums, source.body)
                at = [k.name for k in source.loops].index(i.name)
                points = all_points(longer)
                beyond = points[(points[:, at] < i.lo) | (points[:, at] >= i.hi)]
                assert not np.asarray(evaluate_at(longer, beyond, 0)).any(), source
    assert said >= 10


@pytest.mark.parametrize("text", [
    "L[t<9] Σ[s<9] select(t-s>=0, W[s], 0)", "L[t<9] Σ[s<9] select(s-t>=0, W[s], 0)", "L[t<9] Σ[s<9] select(t-s-1>=0, W[s], 0)",
    "L[t<9] Σ[s<9] select(s-t-1>=0, W[s], 0)", "L[t<9] Σ[s<9] select(t-s-2>=0, W[s]*V[t], 0)",
    "L[t<9] Σ[s<9] select(t-s>=0, exp(Y[t,0]-Y[s,0])*W[s], 0)", "L[t<9] Σ[s<9] select(s-t>=0, exp(Y[s,0]-Y[t,0])*W[s], 0)",
    "L[t<9] Σ[s<9] select(s-t-1>=0, exp(val(s-t)*(-1)/8)*W[s]*V[t], 0)", "L[2<=t<9] Σ[2<=s<9] select(t-s-1>=0, exp(val(t-s)*(-1)/8)*W[s], 0)",
])  # fmt: skip
def test_a_walk_along_the_times_computes_the_sum(text: str) -> None:
    """What the state is at a time: what is left of it and what enters, told by the recurrence for each time as an expression of that time."""
    e = expression(text)
    (r,) = [r for r in recurrences(e) if isinstance(r, Recurrence)]
    times = range(r.t.lo, r.t.hi) if r.forward > 0 else range(r.t.hi - 1, r.t.lo - 1, -1)
    state: Body = Const(Fraction(0))
    for t in times:
        at = {r.t.name: Index((), t), r.s.name: Index((), t)}
        gate, entering, asking = (substitute_body(b, at) for b in (r.gate(), r.entering(), r.asking()))
        state = make_mul((gate, make_add((state, entering)))) if r.late else make_add((make_mul((gate, state)), entering))
        walked = Scope((Iter(r.t.name, t, t + 1),), (), make_mul((asking, state)))
        assert same_tensor(Scope((Iter(r.t.name, t, t + 1),), e.sums, e.body), walked), t


@pytest.mark.parametrize(("text", "reduce"), [
    ("L[t<9] max[s<9] select(t-s>=0, W[s], -inf)", "max"), ("L[t<9] min[s<9] select(s-t>=0, W[s], inf)", "min"),
    ("L[t<9] Σ[s<9] select(t-s>=0, W[s], 0)", "sum"), ("L[t<7] max[s<7] select(t-s>=0, W[s], -inf)", ""),
    ("L[t<9] max[s<9] select(t-s>=0, W[s], 0)", ""), ("L[t<9] max[s<9] select(t-s>=0 & s-3>=0, W[s], -inf)", ""),
    ("L[t<9] max[s<9] select(t-s>=0, W[s]*V[t], -inf)", ""), ("L[t<9] max[s<9,c<5] select(t-s>=0, D[s,c], -inf)", ""),
])  # fmt: skip
def test_reductions_of_what_came_before_are_walks(text: str, reduce: str) -> None:
    found = running(expression(text))
    assert (found.reduce if found is not None else "") == reduce
