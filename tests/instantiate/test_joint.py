"""Products of one operand with several weights as one product: the same numbers, and what cannot be joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Scope, Tensor
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import Build, builds
from einnet.instantiate.joint import COLUMNS, ROWS, Joined, joined, shown, with_group
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, Post, View, dense_view
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import execute, integers

HEADS = """X : f32[6,8]
Q : weight f32[8,12]
K : weight f32[8,12]
V : weight f32[8,12]
b : weight f32[12]
d : weight f32[12]
L[c<3,h<6,w<4] Σ[v<6]
    {L[c<3,h<6,v<6] relu({L[c<3,h<6,v<6] Σ[k<4]
        {L[m<6,n<12] {L[m<6,n<12] Σ[k<8] X[m,k]*Q[k,n]}[m,n] + b[n]}[h,4*c+k]
        *{L[m<6,n<12] {L[m<6,n<12] Σ[k<8] X[m,k]*K[k,n]}[m,n] + d[n]}[v,4*c+k]}[c,h,v])}[c,h,v]
    *{L[m<6,n<12] {L[m<6,n<12] Σ[k<8] X[m,k]*V[k,n]}[m,n] + b[n]}[v,4*c+w]"""


def ways(source: Scope) -> list[Build]:
    """All ways to run the plain form."""
    forms = Space(Options(max_depth=0)).forms(source)
    return [made for form in forms if not form.steps for made in builds(form.tree, dict(form.matches), "out")]


def computed(build: Build, values: dict[str, np.ndarray], size: int) -> np.ndarray:
    buffers = {n: np.asarray(v, dtype=np.float64).reshape(-1) for n, v in values.items()}
    buffers.update({n: np.asarray(evaluate(s, values), dtype=np.float64).reshape(-1) for n, s in build.weights.items()})
    buffers.update({n: np.zeros(b.size) for n, b in build.temporaries.items()})
    buffers["out"] = np.zeros(size)
    for k in build.kernels:
        execute(k, buffers)
    return buffers["out"]


def products(kernels: Sequence[Kernel]) -> list[Matmul]:
    return [k for k in kernels if isinstance(k, Matmul)]


def test_queries_keys_and_values_are_one_product() -> None:
    source = parse(HEADS)
    values = integers(source)
    wanted = evaluate(source, values)
    found = ways(source)
    for build in found:
        np.testing.assert_array_equal(computed(build, values, wanted.size).reshape(wanted.shape), wanted)
    shapes = {tuple(k.b.shape for k in products(b.kernels)) for b in found}
    scores, weighed = (3, 4, 6), (3, 6, 4)
    assert ((8, 12), (8, 12), scores, (8, 12), weighed) in shapes
    assert ((8, 36), scores, weighed) in shapes


T = {"A": Tensor("A", (7, 4), "f32", True), "B": Tensor("B", (6, 7), "f32", True), "C": Tensor("C", (7, 9), "f32", True)}
WEIGHTS = {**T, "r": Tensor("r", (9,), "f32", True), "s": Tensor("s", (1,), "f32", True)}
A, B, C = dense_view("A", (7, 4)), View("B", (7, 6), (1, 7)), View("C", (7, 3), (9, 1), 4)
"""Weights as they are, transposed, and some columns of wider ones."""


def product(b: View, out: str, *posts: Post) -> Matmul:
    return Matmul(dense_view("X", (5, 7)), b, dense_view(out, (5, b.shape[1])), posts)


def add(view: View) -> Post:
    return Post("add", view)


def twice(name: str, width: int, out: str) -> EOperator:
    return EOperator(parse(f"P : f32[5,{width}]\nL[m<5,n<{width}] 2*P[m,n]"), (("P", dense_view(name, (5, width))),), dense_view(out, (5, width)))


def temporaries(**widths: int) -> dict[str, Buffer]:
    return {name: Buffer(name, 5 * width, "f32", "temporary") for name, width in widths.items()}


def run(kernels: Sequence[Kernel], made: dict[str, Buffer], weights: dict[str, Scope], *outs: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    values = {n: rng.integers(-4, 5, t.shape).astype(np.float64) for n, t in {"X": Tensor("X", (10, 7)), **WEIGHTS}.items()}
    buffers = {n: v.reshape(-1) for n, v in values.items()}
    buffers.update({n: np.asarray(evaluate(s, values), dtype=np.float64).reshape(-1) for n, s in weights.items()})
    buffers.update({n: np.zeros(b.size) for n, b in made.items()}, **{n: np.zeros(64) for n in outs})
    for k in kernels:
        execute(k, buffers)
    return {n: buffers[n] for n in outs}


Y = View("X", (5, 7), (7, 1), 35)
"""Another operand."""
CASES = [
    ([product(A, "a"), product(B, "b")], 1),
    ([product(A, "a"), product(B, "b"), product(C, "c")], 1),
    ([product(A, "a", Post("relu")), product(B, "b", Post("relu")), product(C, "c")], 2),
    ([product(A, "a", add(View("r", (1, 4), (9, 1), 2))), product(C, "c", add(View("s", (1, 1), (1, 1)))), product(B, "b")], 2),
    ([product(A, "a", Post("linear", None, 2.0, 0.0)), product(B, "b", Post("linear", None, 3.0, 0.0))], 2),
    ([product(A, "a", Post("relu")), product(B, "b")], 2),
    ([product(A, "a"), replace(product(B, "b"), a=Y)], 2),
    ([product(A, "a"), replace(product(A, "d"), a=Y), product(B, "b"), replace(product(C, "c"), a=Y)], 2),
    ([product(A, "a", Post("relu")), product(A, "d"), product(B, "b", Post("relu")), product(C, "c")], 2),
    ([product(A, "a"), product(A, "a"), product(B, "b")], 3),
]


@pytest.mark.parametrize("axis", [ROWS, COLUMNS])
@pytest.mark.parametrize("posts", [False, True])
def test_products_of_equal_widths_are_a_batch_or_one_wide_product(axis: int, posts: bool) -> None:
    """What reads their results reads windows of whole rows, or of columns."""
    rows = [add(View("r", (1, 4), (9, 1), 2)), add(View("s", (1, 1), (1, 1))), add(View("r", (1, 4), (9, 1), 5))]
    views = {"a": A, "b": View("B", (7, 4), (1, 7)), "c": View("C", (7, 4), (9, 1), 3)}
    group = [product(v, name, *[row] * posts) for (name, v), row in zip(views.items(), rows, strict=True)]
    plan, made = [*group, *(twice(name, 4, f"o{name}") for name in views)], temporaries(a=4, b=4, c=4)
    found = with_group(Joined(plan, made), group, WEIGHTS, axis)
    assert found is not None and [k.c.shape for k in products(found.kernels)] == [(3, 5, 4) if axis == ROWS else (5, 12)]
    outs = [f"o{name}" for name in views]
    before, after = run(plan, made, {}, *outs), run(found.kernels, dict(found.temporaries), dict(found.weights), *outs)
    assert all(np.array_equal(before[n], after[n]) and np.any(before[n]) for n in outs)
    assert with_group(Joined(plan, made), [group[0], product(C, "c")], WEIGHTS, ROWS) is None, "widths differ"


@pytest.mark.parametrize(("kernels", "left"), CASES, ids=range(len(CASES)))
def test_what_is_joined_computes_the_same(kernels: list[Matmul], left: int) -> None:
    widths = {k.c.buffer: k.c.shape[1] for k in kernels}
    plan = [*kernels, *(twice(name, width, f"o{name}") for name, width in widths.items())]
    made = temporaries(**widths)
    found = joined(plan, made, WEIGHTS)
    assert (len(products(plan)) if found is None else len(products(found.kernels))) == left
    if found is None:
        return
    outs = [f"o{name}" for name in widths]
    before, after = run(plan, made, {}, *outs), run(found.kernels, dict(found.temporaries), dict(found.weights), *outs)
    assert all(np.array_equal(before[n], after[n]) for n in outs)
    assert sum(k.c.shape[1] for k in products(found.kernels)) == sum(widths.values())


@pytest.mark.parametrize("lost", ["out", "data", "residual", "flat"])
def test_what_is_not_joined(lost: str) -> None:
    """A result that leaves, an operand that is no weight, a post that reads data, a reader that runs over the end of rows."""
    made, kernels = temporaries(a=4, b=6), [product(A, "a"), product(B, "b"), twice("a", 4, "oa"), twice("b", 6, "ob")]
    weights: dict[str, Tensor | Scope] = dict(WEIGHTS)
    if lost == "out":
        del made["b"]
    if lost == "data":
        del weights["B"]
    if lost == "residual":
        kernels[:2] = [product(A, "a", add(dense_view("Y", (5, 4)))), product(B, "b", add(dense_view("Z", (5, 6))))]
    if lost == "flat":
        kernels[2] = EOperator(parse("P : f32[20]\nL[m<20] 2*P[m]"), (("P", dense_view("a", (20,))),), dense_view("oa", (20,)))
    assert joined(kernels, made, weights) is None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_what_a_view_of_weights_shows(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    values = np.arange(np.prod(shape), dtype=np.float64)
    m, n = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    sm, sn = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    reach = sm * (m - 1) + sn * (n - 1)
    if reach >= values.size:
        return
    begin = data.draw(st.integers(0, values.size - 1 - reach))
    tensor = Tensor("W", shape, "f32", True)
    found = evaluate(shown(View("W", (m, n), (sm, sn), begin), tensor), {"W": values.reshape(shape)})
    np.testing.assert_array_equal(found, [[values[begin + sm * i + sn * j] for j in range(n)] for i in range(m)])


def test_an_operand_that_is_written_between_is_another_one() -> None:
    again = EOperator(parse("T : f32[5,7]\nL[m<5,k<7] 3*T[m,k]"), (("T", dense_view("Y", (5, 7))),), dense_view("X", (5, 7)))
    first, second, *readers = product(A, "a"), product(B, "b"), twice("a", 4, "oa"), twice("b", 6, "ob")
    made = temporaries(a=4, b=6)
    assert joined([again, first, again, second, *readers], made, WEIGHTS) is None
    assert joined([first, again, second, *readers], made, WEIGHTS) is None
    assert joined([again, first, second, *readers], made, WEIGHTS) is not None
