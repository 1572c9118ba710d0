"""What has an order, a tie or an edge in it: false pairs are refuted by values that show it, true ones never are."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from einnet.derivation.checker.check import Difference, check_equal
from einnet.derivation.checker.draws import GENERIC, SMALL, Choice, Draw
from einnet.derivation.checker.oracle import Witness
from einnet.errors import CertificateError
from einnet.expr.functions.ends import interval
from einnet.expr.nodes import Add, Body, Call, Const, Div, Iter, Mul, Read, Scope, Select, Tensor, children, functions_in, rebuild, tensors, walk
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import by_bends
from einnet.expr.notation.text import parse
from einnet.expr.values.arithmetic import Machine, Strict
from einnet.expr.values.intervals import Enclosures, apart
from einnet.expr.values.points import values_at, work
from tests.derivation.further_pairs import further_false_pairs, further_true_pairs
from tests.derivation.pairs import Pair, false_pairs, proven_pairs, true_pairs
from tests.expr.brute import FUNCTIONS, Brute

FALSE, TRUE = {**dict(false_pairs()), **dict(further_false_pairs())}, {**dict(true_pairs()), **dict(further_true_pairs())}
PROVEN = dict(proven_pairs())
FEW, MANY = range(48), range(48, 1000)
FEW_POINTS = 4000


def sides(pair: Pair) -> tuple[Scope, Scope]:
    declared, before, after = pair
    return parse(declared + before), parse(declared + after)


def test_there_are_enough_of_them() -> None:
    assert len(set(FALSE.values())) >= 200 and len(set(TRUE.values())) >= 100


@pytest.mark.parametrize("name", FALSE)
def test_false_pairs_are_refuted_by_values(name: str) -> None:
    before, after = sides(FALSE[name])
    with pytest.raises(Difference, match="the two sides differ at ") as caught:
        check_equal(before, after)
    witness = caught.value.witness
    assert witness is not None and witness.point == caught.value.point
    assert f"{witness.left} before, {witness.right} after" in str(caught.value)
    left, right = (value(s, witness) for s in (before, after))
    assert left != right and not (math.isnan(left) and math.isnan(right))


@pytest.mark.parametrize("name", TRUE)
def test_true_pairs_are_not_refuted(name: str) -> None:
    before, after = sides(TRUE[name])
    assert check_equal(before, after).method in ("inline", "random")
    assert check_equal(after, before).method in ("inline", "random")


@pytest.mark.parametrize("name", PROVEN)
def test_what_the_order_of_numbers_says_is_proven(name: str) -> None:
    before, after = sides(PROVEN[name])
    assert check_equal(before, after).method == "inline"


def test_forms_by_bends_keep_every_value() -> None:
    """Of random expressions with functions in them, at ties, zeros and generic values, in doubles."""
    for seed in FEW:
        scope = random_scope(Random(seed))
        with by_bends():
            flat = inline(scope)
        points = np.argwhere(np.ones(scope.shape))
        for palette in (SMALL, GENERIC):
            draw = Draw("", Choice(palette, f"bends {seed}"))
            left, right = (values_at(s, points, Strict(), draw.floats) for s in (scope, flat))
            whole = np.isnan(left) & np.isnan(right) | ~np.isfinite(left) | (np.abs(left - right) <= 1e-9 * (1 + np.abs(left)))
            assert whole.all() or has_steps(scope), f"seed {seed}: {scope.text()} is no {flat.text()}"


def has_steps(scope: Scope) -> bool:
    """A function that jumps where its argument is rounded."""

    def steps(body: Body) -> bool:
        return (isinstance(body, Call) and body.name in ("floor", "sign", "less", "equal", "not")) or any(map(steps, children(body)))

    return any(steps(s.body) for s in walk(scope))


def value(scope: Scope, witness: Witness) -> float:
    """The value at a witness's point; of small rational expressions by another evaluator, exactly. NaN where there is none."""
    if rational(scope) and work(scope, 1) < FEW_POINTS and math.prod(scope.shape) < FEW_POINTS:
        try:
            given = {n: np.asarray(t.values, dtype=object).reshape(t.shape) for n, t in tensors(scope).items() if t.values is not None}
            return float(Brute({**witness.arrays(scope), **given}).at(scope, witness.point))
        except ZeroDivisionError:
            return math.nan
    asks = any("isnan" in functions_in(s.body) for s in walk(scope))  # of what does not exist IEEE 754 alone says whether it is NaN
    system = Machine("float64") if asks else Strict()
    found = values_at(scope, np.asarray([witness.point]).reshape(1, -1), system, witness.draw.floats)
    return float(found[0]) if math.isfinite(found[0]) else math.nan


def rational(scope: Scope) -> bool:
    """Functions of the other evaluator alone."""

    def known(body: Body) -> bool:
        return (not isinstance(body, Call) or body.name in FUNCTIONS) and all(map(known, children(body)))

    return all(known(s.body) and not any(math.prod(t.shape) > FEW_POINTS for t in tensors(s).values()) for s in walk(scope))


def test_a_difference_survives_a_process_boundary() -> None:
    before, after = sides(FALSE["clip 0"])
    with pytest.raises(Difference) as caught:
        check_equal(before, after)
    witness = pickle.loads(pickle.dumps(caught.value.witness))
    assert value(before, witness) != value(after, witness)


def test_values_of_whole_numbers_are_whole() -> None:
    """floor(N) is N for a tensor of integers, and not for one of reals."""
    for dtype in ("i64", "i32", "bool"):
        check_equal(*sides((f"N : {dtype}[8]\n", "L[i<8] floor(N[i])", "L[i<8] N[i]")))
    with pytest.raises(Difference):
        check_equal(*sides(("N : f32[8]\n", "L[i<8] floor(N[i])", "L[i<8] N[i]")))


def test_what_nothing_is_known_of_is_not_accepted() -> None:
    """A root of what is negative everywhere has no value to compare."""
    with pytest.raises(CertificateError, match="no value"):
        check_equal(*sides(("A : f32[4]\n", "L[i<4] sqrt(-1-A[i]*A[i])", "L[i<4] log(-2-A[i]*A[i])")))


NAMES = ("A", "B", "X")
SHAPES = {"A": (6,), "B": (6,), "X": (6, 5)}
ONE, TWO = ("relu", "abs", "tanh", "sigmoid", "exp", "sign", "floor", "not"), ("max", "min", "less", "equal")


def random_value(rng: Random, level: int) -> Body:
    """A scalar expression with functions in it, over i and j."""
    if not level or rng.random() < 0.15:
        leaf = rng.choice(("A[i]", "B[i]", "X[i,j]", "X[i,4-j]", "A[i-1]", "val(j-2)"))
        return parse(f"A : f32[6]\nB : f32[6]\nX : f32[6,5]\nL[i<6,j<5] {leaf}").body
    below = [random_value(rng, level - 1) for _ in range(2)]
    match rng.randrange(6):
        case 0:
            return Add((*below, Const(small(rng))))
        case 1:
            return Mul((below[0], Const(small(rng)))) if rng.random() < 0.5 else Mul(tuple(below))
        case 2 | 3:
            return Call(rng.choice(ONE), (below[0],))
    return Call(rng.choice(TWO), tuple(below))


def small(rng: Random) -> Fraction:
    return Fraction(rng.choice((-3, -1, 1, 2, 5)), rng.choice((1, 1, 2, 3)))


def random_scope(rng: Random) -> Scope:
    body = random_value(rng, 3)
    i, j = Iter("i", 0, 6), Iter("j", 0, 5)
    return Scope((i, j), (), body) if rng.random() < 0.4 else Scope((i,), (j,), body, rng.choice(("max", "min", "sum")))


def rewritten(rng: Random, body: Body) -> Body:
    """The same function of reals, written otherwise."""
    args = tuple(rewritten(rng, a) for a in children(body))
    body = rebuild(body, args) if args else body
    if not isinstance(body, Call) or rng.random() < 0.3:
        return body
    zero, one, minus = Const(Fraction(0)), Const(Fraction(1)), Const(Fraction(-1))
    scale = Const(abs(small(rng)))
    x = body.args[0]
    y = body.args[-1]
    match body.name:
        case "relu":
            return rng.choice((
                Call("max", (zero, x)), Mul((Const(1 / scale.value), Call("relu", (Mul((scale, x)),)))), Add((x, Call("relu", (Mul((minus, x)),)))),
            ))  # fmt: skip
        case "abs":
            return rng.choice((Call("max", (x, Mul((minus, x)))), Add((Call("relu", (x,)), Call("relu", (Mul((minus, x)),))))))
        case "max":
            return rng.choice((Add((y, Call("relu", (Add((x, Mul((minus, y)))),)))), Mul((minus, Call("min", (Mul((minus, x)), Mul((minus, y))))))))
        case "min":
            return rng.choice((Add((x, Mul((minus, Call("relu", (Add((x, Mul((minus, y)))),)))))), Call("min", (y, x))))
        case "less":
            return rng.choice((Call("less", (Add((x, Mul((minus, y)))), zero)), Call("less", (Mul((scale, x)), Mul((scale, y))))))
        case "not":
            return Call("equal", (x, zero))
        case "sigmoid":
            return Div(one, Add((one, Call("exp", (Mul((minus, x)),)))))
    return body


def check_true_rewrites(seeds: range) -> None:
    for seed in seeds:
        rng = Random(seed)
        scope = random_scope(rng)
        assert verdict(scope, replace(scope, body=rewritten(rng, scope.body))) != "refuted", f"seed {seed}: {scope.text()}"


def verdict(before: Scope, after: Scope) -> str:
    try:
        return "proven" if check_equal(before, after).method == "inline" else "tested"
    except Difference:
        return "refuted"
    except CertificateError:
        return "not told"


def test_random_true_rewrites_are_never_refuted() -> None:
    check_true_rewrites(FEW)


@pytest.mark.slow
def test_more_random_true_rewrites_are_never_refuted() -> None:
    check_true_rewrites(MANY)


def mutated(rng: Random, body: Body) -> Body:
    """One function, constant or index is another one."""
    spots = count(body)
    return changed(body, rng.randrange(spots), rng)[0]


def count(body: Body) -> int:
    return 1 + sum(map(count, children(body)))


def changed(body: Body, at: int, rng: Random) -> tuple[Body, int]:
    if at == 0:
        return other(body, rng), -1
    at -= 1
    args: list[Body] = []
    for a in children(body):
        done, at = changed(a, at, rng) if at >= 0 else (a, at)
        args.append(done)
    return (rebuild(body, tuple(args)) if args else body), at


def other(body: Body, rng: Random) -> Body:
    match body:
        case Const(v):
            return Const(v + small(rng) / 8)
        case Call(name, args):
            return Call(rng.choice([n for n in (ONE if len(args) == 1 else TWO) if n != name]), args)
        case Add(args):
            return Mul(args)
        case Read(Tensor() as base, index, fill):
            return Read(base, (index[0] + 1, *index[1:]), fill)
        case Select(conds, then, last):
            return Select(conds[1:], then, last)
    return Add((body, Const(small(rng))))


def check_mutants(seeds: range) -> None:
    """What other random values tell apart in doubles is refuted: all that is accepted agrees under values of which the oracle knows nothing."""
    refuted = 0
    for seed in seeds:
        rng = Random(seed + 1000)
        scope = random_scope(rng)
        mutant = replace(scope, body=mutated(rng, scope.body))
        found = verdict(scope, mutant)
        refuted += found == "refuted"
        assert found in ("refuted", "not told") or not differ(scope, mutant, seed), f"seed {seed}: {scope.text()} is no {mutant.text()}"
    assert refuted > len(seeds) // 2


def test_random_mutants_that_differ_are_refuted() -> None:
    check_mutants(FEW)


@pytest.mark.slow
def test_more_random_mutants_that_differ_are_refuted() -> None:
    check_mutants(MANY)


def differ(scope: Scope, mutant: Scope, seed: int) -> bool:
    """The two differ over the reals. Doubles find the points, intervals decide: tanh(-30) is -1 in doubles, and greater than that."""
    generator = np.random.default_rng(seed)
    points = np.argwhere(np.ones(scope.shape))
    for size in (0.1, 1.0, 3.0, 30.0):
        values = {n: generator.normal(0, size, math.prod(s)).round(2) for n, s in SHAPES.items()}
        left, right = (values_at(s, points, Machine("float64"), lambda t, a: values[t.name][a]) for s in (scope, mutant))  # noqa: B023
        with np.errstate(all="ignore"):
            far = points[np.abs(left - right) > 1e-6 * (1 + np.abs(left))]
        enclosed = {n: interval(v, v) for n, v in values.items()}
        one, other = (values_at(s, far, Enclosures(), lambda t, a: enclosed[t.name][a]) for s in (scope, mutant))  # noqa: B023
        if apart(one, other).any():
            return True
    return False


def test_what_rounding_alone_tells_apart_does_not_differ() -> None:
    """tanh(A) + 2 is greater than 1 at all numbers, and 1 in doubles where A is -30: no truth value is equal to it."""
    declared = "A : f32[6]\nB : f32[6]\n"
    left, right = sides((declared, "L[i<6] equal(tanh(20*A[i]) + 2, less(B[i], 1))", "L[i<6] equal(tanh(20*A[i]) + 2, less(B[i], -1))"))
    assert not any(differ(left, right, seed) for seed in range(8))
    assert verdict(left, right) in ("proven", "tested")
    below = sides((declared, "L[i<6] less(tanh(A[i]), B[i])", "L[i<6] less(tanh(A[i]), B[i] + 1/8)"))
    assert any(differ(*below, seed) for seed in range(8))
