"""Random scopes that look like tensor operators: windows, strides, dilations, transposed windows, floors, nested scopes, padding."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
from hypothesis import strategies as st

from einnet.expr.functions.modular import Residues
from einnet.expr.index import Index, bounds, var
from einnet.expr.nodes import (
    INF,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Iter,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    make_add,
    make_mul,
    neutral,
    substitute_body,
    tensors,
    used_names,
)  # fmt: skip
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.points import evaluate_at

LOOPS, SUMS = ("h", "w", "f"), ("r", "s", "c")
LOWS = (0, 0, 0, 0, 1, -1, 2)


def all_points(scope: Scope) -> np.ndarray:
    """Every point of the box and a border of one around it, where the scope is 0."""
    sides = [range(lo - 1, hi + 1) for lo, hi in scope.box]
    points = list(product(*sides))
    return np.asarray(points, dtype=np.int64).reshape(len(points), len(sides))


def same_tensor(before: Scope, after: Scope, seed: int = 0) -> bool:
    """Equal boxes, and equal values everywhere modulo 2^61 - 1; of exponentials, whose laws do not hold there, in double precision."""
    if before.box != after.box:
        return False
    same = np.array_equal(values_everywhere(before, seed), evaluate_at(after, all_points(before), seed))
    return bool(same) or nearly_same(before, after, seed)


@lru_cache(maxsize=1 << 10)
def values_everywhere(scope: Scope, seed: int) -> Residues:
    """The values of a scope modulo 2^61 - 1, once for all that is compared with it."""
    return evaluate_at(scope, all_points(scope), seed)


def nearly_same(before: Scope, after: Scope, seed: int) -> bool:
    """Exponentials have equal values but for rounding. Modulo a prime an exponential is any function, so that exp(x)*exp(y) is not exp(x+y) there."""
    if "exp(" not in before.text():
        return False
    rng = np.random.default_rng(seed)
    given = {t.name: rng.uniform(-1, 1, t.shape) for t in {**tensors(before), **tensors(after)}.values() if t.values is None}
    with np.errstate(all="ignore"):
        left, right = evaluate(before, given), evaluate(after, given)
        largest = np.abs(left[np.isfinite(left)]).max(initial=0.0)
        return np.allclose(left, right, rtol=1e-9, atol=1e-9 * largest, equal_nan=True)


@st.composite
def iterators(draw: st.DrawFn, names: Sequence[str], least: int, most: int, extents: Sequence[int]) -> tuple[Iter, ...]:
    count = draw(st.integers(least, most))
    lows = [draw(st.sampled_from(LOWS)) for _ in range(count)]
    return tuple(Iter(n, lo, lo + draw(st.sampled_from(extents))) for n, lo in zip(names, lows, strict=False))


@st.composite
def index(draw: st.DrawFn, loops: Sequence[str], sums: Sequence[str]) -> Index:
    """One dimension of a read: plain, window, skewed, transposed window, floor, remainder, constant."""
    names = (*loops, *sums)
    if not names:
        return Index((), draw(st.integers(0, 1)))
    kind = draw(st.sampled_from(("plain",) * 3 + ("window",) * 3 + ("transposed",) * 2 + ("skew", "floor", "mod", "constant")))
    one, two = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    shift = draw(st.sampled_from((0, 0, -1, 1, 2)))
    match kind:
        case "plain":
            return var(one)
        case "window":
            return draw(st.sampled_from((1, 1, 2, 3))) * var(one) + draw(st.sampled_from((1, 1, 2, 3, -1))) * var(two) + shift
        case "skew":
            return var(one) + var(two) + var(draw(st.sampled_from(names))) + shift
        case "transposed":
            return (var(one) - draw(st.sampled_from((1, 1, 2))) * var(two) + shift) / draw(st.sampled_from((2, 2, 3)))
        case "floor":
            return (var(one) + draw(st.sampled_from((0, 0, 1))) * var(two) + shift) // draw(st.sampled_from((2, 3)))
        case "mod":
            return (var(one) + shift) % draw(st.sampled_from((2, 3)))
    return Index((), shift)


@st.composite
def operands(draw: st.DrawFn, outer: Sequence[Iter], sums: Sequence[Iter], depth: int) -> Read:
    """A read of a tensor about as large as its indices reach, or of a scope."""
    loop_names, sum_names = [i.name for i in outer], [i.name for i in sums]
    fill = draw(st.sampled_from((Fraction(0),) * 9 + (Fraction(1, 2),)))
    if depth and draw(st.integers(0, 2)) == 0:
        inner = draw(scopes(depth=depth - 1))
        return Read(inner, tuple(draw(index(loop_names, sum_names)) for _ in inner.loops), fill)
    functions = tuple(draw(index(loop_names, sum_names)) for _ in range(draw(st.sampled_from((1, 1, 2, 2, 2, 3)))))
    ranges = {i.name: i.range for i in (*outer, *sums)}
    shape = tuple(max(1, bounds(e, ranges)[1] + draw(st.sampled_from((1, 1, 1, 0, 2, -1)))) for e in functions)
    name = draw(st.sampled_from("AB")) + "x".join(map(str, shape))
    return Read(Tensor(name, shape), functions, fill)


@st.composite
def bodies(draw: st.DrawFn, loops: Sequence[Iter], sums: Sequence[Iter], depth: int) -> Body:
    some = operands(loops, sums, depth)
    reads: Body = make_mul(draw(st.lists(some, min_size=1, max_size=3)))
    match draw(st.sampled_from(("product",) * 8 + ("add", "relu", "scale", "quotient", "select", "repeat", "unit"))):
        case "add":
            return make_add((reads, draw(some)))
        case "relu":
            return Call("relu", (reads,))
        case "scale":
            return make_mul((Const(draw(st.sampled_from((Fraction(0), Fraction(1), Fraction(3, 2))))), reads))
        case "quotient":
            return Div(reads, make_add((Const(Fraction(2)), Call("abs", (draw(some),)))))
        case "select":
            names = [i.name for i in (*loops, *sums)]
            cond = Cond(draw(index(names, ())), draw(st.booleans()))
            return Select((cond,), reads, draw(st.sampled_from((Const(Fraction(0)), Const(Fraction(1))))))
        case "repeat":
            return make_mul((reads, reads))
        case "unit":
            return make_add((reads, Const(Fraction(0))))
    return reads


@st.composite
def scopes(draw: st.DrawFn, depth: int = 1) -> Scope:
    """A scope; mostly a sum of products of reads."""
    loops = draw(iterators(LOOPS, 0 if draw(st.integers(0, 9)) == 0 else 1, 3 if depth else 2, (2, 3, 4, 5, 1)))
    sums = draw(iterators(SUMS, 0, 3 if depth else 2, (2, 3, 1, 4, 5)))
    reduce = draw(st.sampled_from(("sum",) * 6 + ("max", "min"))) if sums else "sum"
    body = draw(bodies(loops, sums, depth))
    if reduce == "max" and isinstance(body, Read) and draw(st.booleans()):
        body = Read(body.base, body.index, -INF)
    return Scope(loops, sums, body, reduce)


@st.composite
def readers(draw: st.DrawFn) -> Scope:
    """A scope that reads another one at shifted, scaled, fractional or skewed indices: what merge, tighten and normalisation decide on."""
    loops = draw(iterators(("h", "w"), 1, 2, (2, 3, 4, 5)))
    sums = draw(iterators(("r",), 0, 1, (2, 3)))
    own = draw(iterators(("x", "y"), 1, 2, (2, 3, 4)))
    under = draw(iterators(("k",), 0, 1, (2, 3)))
    reduce = draw(st.sampled_from(("sum", "sum", "sum", "max"))) if sums or under else "sum"
    inner = Scope(own, under, draw(plain_products(own, under)), reduce if under else "sum")
    functions = tuple(draw(index([i.name for i in loops], [i.name for i in sums])) for _ in own)
    fill = draw(st.sampled_from((Fraction(0),) * 5 + (Fraction(1),)))
    factors: list[Body] = [Read(inner, functions, fill)]
    if draw(st.booleans()):
        factors.append(draw(operands(loops, sums, 0)))
    return Scope(loops, sums, make_mul(factors), reduce if sums else "sum")


@st.composite
def plain_products(draw: st.DrawFn, loops: Sequence[Iter], sums: Sequence[Iter]) -> Body:
    """A product of reads whose indices are mostly sums of loops, so that it vanishes outside boxes."""
    names = [i.name for i in (*loops, *sums)]
    ranges = {i.name: i.range for i in (*loops, *sums)}
    factors: list[Body] = []
    for _ in range(draw(st.integers(1, 2))):
        functions: list[Index] = []
        for _ in range(draw(st.integers(1, 2))):
            e = Index((), draw(st.sampled_from((0, 0, 1, -1))))
            for n in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
                e = e + draw(st.sampled_from((1, 1, 1, -1, 2))) * var(n)
            functions.append(e // draw(st.sampled_from((1, 1, 1, 1, 2))))
        shape = tuple(max(1, bounds(e, ranges)[1] + draw(st.sampled_from((1, 0, -1, -2)))) for e in functions)
        factors.append(Read(Tensor("C" + "x".join(map(str, shape)), shape), tuple(functions)))
    return Call("relu", (make_mul(factors),)) if draw(st.integers(0, 7)) == 0 else make_mul(factors)


@st.composite
def correlations(draw: st.DrawFn) -> Scope:
    """Sums of products of two reads as operators have them: convolutions with stride, dilation and groups, forward and transposed, and Matmuls."""
    rank = draw(st.integers(1, 2))
    loops: list[Iter] = []
    sums: list[Iter] = []
    data: list[Index] = []
    weight: list[Index] = []
    for n in range(rank):
        h, r = f"h{n}", f"r{n}"
        low = draw(st.sampled_from((0, 0, 0, -1, 1)))
        loops.append(Iter(h, low, low + draw(st.integers(2, 7))))
        sums.append(Iter(r, 0, draw(st.sampled_from((1, 2, 3, 3, 4, 5)))))
        stride, dilation, shift = draw(st.sampled_from((1, 1, 2, 3))), draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((0, -1, 1, -2)))
        if draw(st.integers(0, 2)) == 0:
            if draw(st.booleans()):
                sums[-1] = Iter(r, 0, max(stride, 2))
            data.append((var(h) - dilation * var(r) + shift) / stride)
        else:
            data.append(stride * var(h) + dilation * var(r) + shift)
        weight.append(var(r))
    for name, where in (("c", 2), ("f", 1), ("g", 3)):
        if draw(st.booleans()):
            (sums if name == "c" else loops).append(Iter(name, 0, draw(st.integers(2, 3))))
            if where & 2:
                data.insert(draw(st.integers(0, len(data))), var(name))
            weight.insert(draw(st.integers(0, len(weight))), var(name))
    ranges = {i.name: i.range for i in (*loops, *sums)}

    def tensor(name: str, functions: Sequence[Index], less: int) -> Read:
        shape = tuple(max(1, bounds(e, ranges)[1] + 1 - less * (len(e.terms) > 1)) for e in functions)
        return Read(Tensor(name + "x".join(map(str, shape)), shape, weight=name == "K"), tuple(functions))

    order = draw(st.permutations(loops))
    return Scope(tuple(order), tuple(draw(st.permutations(sums))), make_mul((tensor("A", data, draw(st.integers(0, 2))), tensor("K", weight, 0))))


@st.composite
def band_products(draw: st.DrawFn) -> Scope:
    """Products along a band: one operand is read at m + d·w - c, the other at m, and at w where that is summed."""
    rows, window = Iter("m", 0, draw(st.integers(5, 9))), Iter("w", 0, draw(st.integers(4, 6)))
    sign, dilation = draw(st.sampled_from((1, 1, -1))), draw(st.sampled_from((1, 1, 1, 2)))
    place = var("m") + sign * dilation * var("w") - draw(st.integers(-1, 4))
    inner = Iter("k", 0, draw(st.integers(2, 3)))
    batch = (Iter("b", 0, 2),) if draw(st.booleans()) else ()
    summed = draw(st.booleans())
    b = tuple(var(i.name) for i in batch)
    left = Tensor("A", (*(i.hi for i in batch), rows.hi, window.hi if summed else inner.hi))
    right = Tensor("C", (*(i.hi for i in batch), rows.hi + draw(st.sampled_from((0, 0, 9))), inner.hi))
    first = Read(left, (*b, var("m"), var("w" if summed else "k")))
    loops, sums = ((*batch, rows, inner), (window,)) if summed else ((*batch, rows, window), (inner,))
    return Scope(tuple(draw(st.permutations(loops))), sums, make_mul((first, Read(right, (*b, place, var("k"))))))


@st.composite
def tables(draw: st.DrawFn) -> Scope:
    """Products with a table that is a sum of products over digits of its rows and columns, whichever digit is summed first; some rows are missing."""
    k1, n1, n2 = (draw(st.integers(3, 4)) for _ in range(3))
    rank = draw(st.integers(1, 2))
    blocks, short, beside = draw(st.integers(3, 4)), draw(st.integers(0, 1)), draw(st.booleans())
    k, n, m = Iter("k", 0, k1 * blocks - short), Iter("n", 0, n1 * n2), Iter("m", 0, 4)
    low, high = draw(st.booleans()), draw(st.booleans())
    row = (var("i") % k1, var("i") // k1) if low else (var("i") // blocks, var("i") % blocks)
    column = (var("j") // n2, var("j") % n2) if high else (var("j") % n1, var("j") // n1)
    first = Read(Tensor("A", (k1, n2, rank, n1), "f32", True), (row[0], column[1], var("r"), column[0]))
    second = Read(Tensor("B", (k1, blocks, n2, rank), "f32", True), (*row, column[1], var("r")))
    table = Scope((Iter("i", 0, k.hi), Iter("j", 0, n.hi)), (Iter("r", 0, rank),), make_mul((first, second)))
    place = 2 * var("m") + var("n") if beside else var("m")
    data = Read(Tensor("X", (9, n.hi) if not beside else (n.hi + 5,)), (place, *(() if beside else (var("n"),))))
    return Scope(tuple(draw(st.permutations((m, k)))), (n,), make_mul((data, Read(table, (var("k"), var("n"))))))


@st.composite
def masked_reductions(draw: st.DrawFn) -> Scope:
    """Reductions whose terms are neutral outside a band, maybe of every other element, directly or through a scope that is read."""
    m, k = Iter("m", 0, draw(st.integers(4, 8))), Iter("k", 0, draw(st.integers(5, 8)))
    low, high, step = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.sampled_from((1, 1, 2)))
    distance = var("k") - var("m")
    conds = (Cond(distance + low), Cond(-1 * distance + high), *((Cond((distance + draw(st.integers(0, 1))) % step, True),) if step > 1 else ()))
    scores: Body = Read(Tensor("S", (m.hi, k.hi)), (var("m"), var("k")))
    if draw(st.booleans()):
        depth = Iter("x", 0, 2)
        left, right = (Read(Tensor(n, (i.hi, 2)), (var(i.name), var("x"))) for n, i in (("Q", m), ("R", k)))
        scores = Read(Scope((m, k), (depth,), make_mul((left, right))), (var("m"), var("k")))
    kind = draw(st.sampled_from(("max", "sum", "exp", "scope")))
    if kind == "max":
        return Scope((m,), (k,), Select(conds, scores, Const(-INF)), "max")
    masked: Body = Select(conds, Call("tanh", (scores,)), Const(Fraction(0)))
    if kind == "exp":
        masked = Call("exp", (make_add((scores, Select(conds, Const(Fraction(0)), Const(-INF)))),))
    if kind in ("exp", "scope"):
        masked = Read(Scope((m, k), (), masked), (var("m"), var("k")))
    return Scope((m, Iter("c", 0, 2)), (k,), make_mul((masked, Read(Tensor("V", (k.hi, 2)), (var("k"), var("c"))))))


@st.composite
def equations(draw: st.DrawFn) -> Scope:
    """Reductions of which an equation leaves one term, or the terms of one quotient or remainder, directly or in a scope that is read."""
    low = draw(st.sampled_from((0, 0, 0, 1, -1)))
    m, k = Iter("m", 0, draw(st.integers(2, 8))), Iter("k", low, low + draw(st.integers(2, 8)))
    d, sign, shift = draw(st.sampled_from((2, 3))), draw(st.sampled_from((1, -1))), draw(st.integers(-2, 2))
    left, right = {
        "plain": (var("k"), var("m")), "skew": (var("k"), draw(st.sampled_from((2, -1))) * var("m")), "block": (var("k") // d, var("m") // d),
        "rest": (var("k") % d, var("m") % d), "mixed": (var("k") % d, var("m") // d), "wide": (var("k") // d, var("m")),
    }[draw(st.sampled_from(("plain", "skew", "block", "rest", "mixed", "wide")))]  # fmt: skip
    conds = (Cond(sign * (left - right + shift), True), *((Cond(var("m") - 1),) if draw(st.integers(0, 3)) == 0 else ()))
    reach = max(k.hi, 1)
    given = Read(Tensor(f"U{m.hi}x{reach}", (m.hi, reach)), (var("m"), var("k")))
    if draw(st.integers(0, 3)) == 0:
        return Scope((m,), (k,), Select(conds, given, Const(-INF)), "max")
    chosen: Body = Select(conds, draw(st.sampled_from((given, Call("tanh", (given,)), make_mul((given, given))))), Const(Fraction(0)))
    if draw(st.booleans()):
        chosen = Read(Scope((m, k), (), chosen), (var("m"), var("k")))
    return Scope((m, Iter("c", 0, 2)), (k,), make_mul((chosen, Read(Tensor(f"V{reach}", (reach, 2)), (var("k"), var("c"))))))


@st.composite
def cascades(draw: st.DrawFn) -> Scope:
    """A window at which two or three taps and a loop are added up, each tap with a weight or without; another dimension likewise, or plain."""
    h, r, p, c = (Iter(n, lo, lo + draw(st.integers(2, 4))) for n, lo in (("h", 0), ("r", draw(st.integers(-1, 1))), ("p", 0), ("c", 0)))
    a, b, s = draw(st.sampled_from((1, 2))), draw(st.sampled_from((1, 1, 2, -1))), draw(st.sampled_from((1, 2, 3)))
    place = s * var("h") + a * var("r") + b * var("p") + draw(st.integers(-2, 2))
    other = draw(st.sampled_from((var("c"), var("c") + var("h"), var("r"))))
    _, most = zip(*(bounds(e, {i.name: i.range for i in (h, r, p, c)}) for e in (place, other)))
    data = Read(Tensor(f"X{max(most)}", (max(most[0], 1), max(most[1], 1))), (place, other))
    weights: list[Body] = [Read(Tensor(f"W{r.extent}", (4, c.extent), weight=True), (var("r"), var("c")))]
    if draw(st.booleans()):
        weights.append(Read(Tensor("V", (4, 2)), (var("p"), var("f"))))
    body = make_mul((data, *weights))
    used = {name for e in (place, other, var("c")) for name in e.names()} | {"f"}
    loops = (h, *((Iter("f", 0, 2),) if len(weights) > 1 else ()))
    return Scope(loops, tuple(i for i in (r, p, c) if i.name in used), body if draw(st.integers(0, 4)) else Call("relu", (body,)))


@st.composite
def raised(draw: st.DrawFn) -> Scope:
    """A sum of exponentials of scores less their maximum, or that of others, times something or not."""
    m, k = Iter("m", 0, draw(st.integers(1, 3))), Iter("k", low := draw(st.sampled_from((0, 0, 1))), low + draw(st.integers(3, 8)))
    last = draw(st.sampled_from((var("k"), var("k") + var("m"), 2 * var("k") - 1)))
    scores: Body = Read(Tensor("S", (3, 9)), (var("m"), last))
    if draw(st.integers(0, 3)) == 0:
        scores = make_add((scores, Select((Cond(var("m") - var("k")),), Const(Fraction(0)), Const(draw(st.sampled_from((-INF, Fraction(1))))))))
    top = Scope((m,), (k,), scores if draw(st.booleans()) else Read(Tensor("R", (3, 9)), (var("m"), var("k"))), "max")
    power = Call("exp", (make_add((scores, make_mul((Const(Fraction(-1)), Read(top, (var("m"),)))))),))
    values = Read(Tensor("V", (9, 2)), (var("k"), var("n")))
    weighted = draw(st.booleans())
    loops = (m, Iter("n", 0, 2)) if weighted else (m,)
    return Scope(loops, (k,), make_mul((power, values)) if weighted else power)


@st.composite
def choices(draw: st.DrawFn) -> Scope:
    """A choice by what is compared, or by whether it is a number; some conditions are known."""
    scope = draw(scopes(depth=1))
    loops = draw(st.sampled_from((scope.loops, scope.loops, scope.loops[:1])))
    other = draw(bodies(loops, (), 0)) if loops else Const(Fraction(1, 2))
    zero, one, body = Const(Fraction(0)), Const(Fraction(1)), scope.body
    positive = make_add((one, Call("abs", (body,))))
    conditions: tuple[Body, ...] = (
        Call("isnan", (body,)), Call("isnan", (Div(body, other),)), Call("less", (body, zero)), Call("less", (positive, zero)),
        Call("not", (positive,)), make_mul((Call("less", (body, other)), Call("isnan", (positive,)))), one, zero,
    )  # fmt: skip
    condition = draw(st.sampled_from(conditions))
    sides = draw(st.sampled_from(((body, other), (other, body), (body, body), (zero, body), (Const(-INF), other))))
    return Scope(scope.loops, scope.sums, Call("choose", (condition, *sides)), scope.reduce)


@st.composite
def recurrences(draw: st.DrawFn, apart: bool = False) -> Scope:
    """A sum over the times before one, or after it: what is asked, what is left of what came in (exponentials), what comes in, in any order.

    What else is summed is a sum of its own where it is to stand `apart`."""
    length = draw(st.integers(8, 21))
    t, s = Iter("t", 0, length), Iter("s", 0, length)
    inner = (Iter("c", 0, 2),)
    loops, sums = [t, *draw(st.sampled_from(((), (Iter("d", 0, 3),))))], [s, *draw(st.sampled_from((inner,) if apart else ((), inner)))]
    late, forward = draw(st.integers(0, 1)), draw(st.sampled_from((1, -1)))
    others = [i.name for i in (*loops, *sums) if i not in (t, s)]

    def factor(name: str, time: str) -> Read:
        own = draw(st.lists(st.sampled_from(others), unique=True, min_size=int(apart))) if others else []
        places = (var(time), *map(var, own))
        extents = {i.name: i.extent for i in (*loops, *sums)}
        return Read(Tensor(name, tuple(extents[next(iter(p.names()))] for p in places)), places)

    between = draw(st.sampled_from(("none", "constant", "data", "no product")))
    parts: list[Body] = [factor("K", "s"), *draw(st.sampled_from(([], [factor("Q", "t")], [factor("Q", "t"), factor("V", "s")])))]
    if between == "constant":
        parts.append(Call("exp", (make_mul((Const(Fraction(-1, 7)), Val((var("t") - var("s")) * forward))),)))
    elif between == "data":
        p = factor("P", "t")
        parts.append(Call("exp", (make_add((p, make_mul((Const(Fraction(-1)), substitute_body(p, {"t": var("s")}))))),)))
    elif between == "no product":
        parts.append(Read(Tensor("N", (length, length)), (var("t"), var("s"))))
    summed = [p for p in parts if "c" in used_names(p)]
    if summed and apart:
        product = make_mul(summed)
        around = tuple(i for i in (*loops, s) if i.name in used_names(product))
        parts = [p for p in parts if p not in summed] + [Read(Scope(around, tuple(sums[1:]), product), tuple(var(i.name) for i in around))]
        sums = [s]
    body = Select((Cond((var("t") - var("s")) * forward - late),), make_mul(draw(st.permutations(parts))), Const(Fraction(0)))
    return Scope(tuple(draw(st.permutations(loops))), tuple(draw(st.permutations(sums))), body)


@st.composite
def long_sums(draw: st.DrawFn) -> Scope:
    """Sums and maxima over one iterator of many values, which operands read at places of it."""
    low = draw(st.sampled_from((0, 0, 2, -3)))
    k = Iter("k", low, low + draw(st.sampled_from((15, 16, 18, 24, 32, 40))))
    loops = tuple(Iter(name, 0, draw(st.integers(1, 3))) for name in draw(st.sampled_from(((), ("m",), ("m", "n")))))
    ranges = {i.name: i.range for i in (*loops, k)}

    def operand(name: str, own: Sequence[Iter]) -> Read:
        along = draw(st.sampled_from((var("k") - low, var("k") // 2, 2 * var("k") - 3, var("k") + sum((var(i.name) for i in loops), Index(())))))
        places = (*(var(i.name) for i in own), along)
        return Read(Tensor(name, tuple(max(1, bounds(ix, ranges)[1]) for ix in places)), places)

    parts = [operand("A", loops[:1]), *([operand("B", loops[1:])] if draw(st.booleans()) else [])]
    return Scope(loops, (k,), make_mul(parts), draw(st.sampled_from(("sum", "sum", "max"))))


@st.composite
def moved_sums(draw: st.DrawFn) -> Scope:
    """A sum over places h of what is read at (±h + g)/d, g of a tap and maybe a loop: over all places that anything reaches, or nearly all."""
    d, sign, extent = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((1, 1, -1))), draw(st.integers(1, 4))
    r, m = Iter("r", 0, draw(st.integers(1, 3))), Iter("m", 0, draw(st.integers(1, 2)))
    ranges = {"r": r.range, "m": m.range}
    g = draw(st.sampled_from((-1 * var("r"), var("r") + 1, var("m") - 2 * var("r"), Index((), 1))))
    low, high = bounds(g, ranges)  # d*u = ±h + g for u in [0, extent): h = ±(d*u - g)
    ends = (-high, d * (extent - 1) - low)
    lo, hi = ends if sign > 0 else (-ends[1], -ends[0])
    h = Iter("h", lo + (draw(st.integers(0, 5)) == 0), hi + 1 + draw(st.integers(0, 1)))
    parts = [Read(Tensor("A", (extent,)), ((sign * var("h") + g) / d,), draw(st.sampled_from((Fraction(0),) * 7 + (Fraction(1),))))]
    parts.append(Read(Tensor("B", (3, 3)), (var("r"), draw(st.sampled_from((var("m"), Index(), Index(), var("h")))))))
    return Scope((m,), (h, r) if h.lo < h.hi else (r,), make_mul(parts) if h.lo < h.hi else parts[1], draw(st.sampled_from(("sum",) * 5 + ("max",))))


@st.composite
def sums_of_sums(draw: st.DrawFn) -> Scope:
    """What reads long sums and maxima as a factor: at places of its own iterators, some of them outside, beside a factor of its own or none."""
    inner = draw(long_sums())
    places, used = list[Index](), [Iter("y", 0, draw(st.integers(1, 3)))]
    loops = (Iter("k", 0, draw(st.integers(1, 4))), Iter("p", 0, 2))
    for i in inner.loops:
        places.append(draw(st.sampled_from((var("y"), var("k"), var("k") - var("y"), (var("k") + var("y")) / 2, 2 * var("p") - 1))) + i.lo)
    fill = draw(st.sampled_from((neutral(inner.reduce), neutral(inner.reduce), Fraction(1))))
    aside = Read(Tensor("C", (4, 3)), (var("k"), var("y")), neutral(inner.reduce))
    reduce = inner.reduce if draw(st.integers(0, 4)) else draw(st.sampled_from(("sum", "max")))
    parts: list[Body] = [Read(inner, tuple(places), fill), *([aside] if draw(st.booleans()) else [])]
    return Scope(loops, tuple(used), make_mul(draw(st.permutations(parts))), reduce)


@st.composite
def pixels(draw: st.DrawFn) -> Scope:
    """Transposed and other windows over operands that have one element along some dimensions."""
    loops, sums = [Iter("f", 0, 2)], [Iter("c", 0, 2)]
    data, shape = [var("c")], [2]
    for n in range(draw(st.integers(1, 2))):
        h, r = f"h{n}", f"r{n}"
        loops.append(Iter(h, draw(st.sampled_from((0, 0, -1))), draw(st.integers(2, 5))))
        sums.append(Iter(r, draw(st.sampled_from((0, 0, 1))), draw(st.integers(2, 4))))
        stride, sign = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((1, -1)))
        data.append((stride * var(h) + sign * var(r) + draw(st.integers(-1, 1))) / draw(st.sampled_from((1, 1, 2))))
        shape.append(draw(st.sampled_from((1, 1, 1, 2))))
    weight = Read(Tensor("K", tuple(max(1, i.hi) for i in (loops[0], *sums)), weight=True), tuple(var(i.name) for i in (loops[0], *sums)))
    parts = [Read(Tensor("A", tuple(shape)), tuple(data)), weight]
    return Scope(tuple(draw(st.permutations(loops))), tuple(draw(st.permutations(sums))), make_mul(draw(st.permutations(parts))))
