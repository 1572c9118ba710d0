"""Conditions on the loops around a body that imply those inside of it: where they hold, a body without guards computes the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random

import pytest

from einnet.expr.index import Index, Range, substitute, var
from einnet.expr.nodes import Cond
from einnet.expr.notation.text import parse
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.ir import Choose, Load, Number, Reduce, conditions, decide, walk
from einnet.instantiate.codegen.pieces import interior, least, located, unguarded
from einnet.instantiate.codegen.reductions import to_unroll
from einnet.instantiate.codegen.resolve import resolve
from tests import strategies
from tests.instantiate.compiled import dense

RANGES: dict[str, Range] = {"a": (0, 4), "b": (1, 4), "x": (0, 3), "y": (-1, 2)}


def holds(c: Cond, place: Mapping[str, int]) -> bool:
    value = substitute(c.index, {n: Index((), v) for n, v in place.items()})
    assert not value.terms
    return value.const == 0 if c.equal else value.const >= 0


def places(ranges: Mapping[str, Range]) -> Iterator[dict[str, int]]:
    return (dict(zip(ranges, values)) for values in product(*(range(*r) for r in ranges.values())))


def drawn(rng: Random) -> Cond:
    names = sorted(RANGES)
    index = Index((), rng.randint(-4, 4))
    for _ in range(rng.randint(1, 3)):
        index = index + rng.choice((1, 2, -1, -2)) * var(rng.choice(names))
    if rng.random() < 0.3:
        index = index + (var(rng.choice(names)) + rng.randint(0, 1)) // 2
    return Cond(index, rng.random() < 0.1)


@pytest.mark.parametrize("seed", range(60))
def test_the_hardest_condition_says_whether_all_hold(seed: int) -> None:
    rng = Random(seed)
    cond, inner = drawn(rng), rng.sample(sorted(RANGES), 2)
    found = least(cond, RANGES, inner)
    floors = [n for a, _ in cond.index.terms if not isinstance(a, str) for n in a.num.names()]
    assert (found is None) == (cond.equal or any(n in inner for n in floors))
    outer = {n: r for n, r in RANGES.items() if n not in inner}
    inside = {n: RANGES[n] for n in inner}
    for place in places(outer) if found is not None else ():
        assert holds(found, place) == all(holds(cond, place | other) for other in places(inside)), (str(cond.index), place)


@pytest.mark.parametrize("seed", range(40))
def test_inside_of_the_borders_all_conditions_hold(seed: int) -> None:
    rng = Random(seed)
    nest = normalise(resolve(dense(strategies.random_scope(rng, depth=0))))
    names = [i.name for i in nest.loops]
    lane = rng.choice(names) if names else ""
    inner = [n for n in names if n != lane and rng.random() < 0.4]
    found = interior(nest, nest.expr, nest.ranges, lane, inner)
    for cond, ranges in (*located(nest.expr, nest.ranges), *((c, nest.ranges) for c in nest.guards)):
        if found is not None and lane not in cond.index.names():
            assert all(holds(cond, place) for place in places(ranges) if all(holds(c, place) for c in found))
    plain = unguarded(nest.expr, lane)
    wanted = {c for e in walk(nest.expr) for c in conditions(e) if lane in c.index.names()}
    assert {c for e in walk(plain) for c in conditions(e)} <= wanted


def test_conditions_along_the_lanes_stay() -> None:
    along, across = Cond(var("a") - 1), Cond(var("b") - 2)
    load = Load("A", var("a"), (along, across))
    chosen = Choose((along, across), load, Number(1.0))
    assert unguarded(chosen, "a") == Choose((along,), Load("A", var("a"), (along,)), Number(1.0))
    assert unguarded(chosen, "x") == Load("A", var("a"), ())
    assert decide(along, {"a": (1, 4)})


@pytest.mark.parametrize(("text", "limit", "names"), [
    ("L[h<20,f<64] Σ[k<4,r<4] A[(h+r)//2,f]*B[k,f]", 4, ["r"]), ("L[h<20,f<64] Σ[k<4,r<4] A[h,f]*B[k//2,f]*C[r,f]", 4, ["k"]),
    ("L[h<20,f<64] Σ[k<4,r<4] A[(h+r)//2,f]*B[k,f]", 16, ["r", "k"]), ("L[h<20,f<64] Σ[k<4,r<4] A[(h+r)//2,f]*B[k,f]", 3, []),
])  # fmt: skip
def test_sums_inside_of_floor_divisions_are_written_out_first(text: str, limit: int, names: list[str]) -> None:
    nest = resolve(dense(parse(f"A : f32[20,64]\nB : f32[4,64]\nC : f32[4,64]\n{text}")))
    reduce = next(e for e in walk(nest.expr) if isinstance(e, Reduce))
    assert [i.name.rstrip("0123456789") for i in to_unroll(reduce, nest.ranges, [{}], limit, ())] == names
