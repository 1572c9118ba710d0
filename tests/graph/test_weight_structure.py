"""What the values of weights show: the program with it computes what the program without it does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from einnet.expr.nodes import Mul, Read, Scope, Select, Tensor, reads, tensors
from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.passes.table_factors import ROUNDING
from einnet.graph.passes.weight_structure import factored, may_be_factored, recover_structure
from einnet.graph.program import Node, Program

LETTERS = "ijk"


def reading(values: np.ndarray) -> Program:
    """A program that adds a weight to its input."""
    loops = ",".join(f"{n}<{extent}" for n, extent in zip(LETTERS, values.shape))
    index, shape = ",".join(LETTERS[: values.ndim]), ",".join(map(str, values.shape))
    scope = parse(f"X : f32[{shape}]\nW : weight f32[{shape}]\nL[{loops}] X[{index}] + W[{index}]")
    x, y = Tensor("X", values.shape), Tensor("Y", values.shape)
    return Program((x,), (Node(y, scope, ("n",)),), (("Y", "Y"),), {"W": values.astype(np.float32)})


def structure(values: np.ndarray) -> Scope | None:
    """What the weight is read as; None where it stays a tensor. The program's results are the weight, as they were."""
    program = reading(values)
    found = recover_structure(program)
    zero = {"X": np.zeros(values.shape, np.float32)}
    (before,), (after,) = interpret(program, zero).values(), interpret(found, zero).values()
    (base,) = (r.base for r in reads(found.nodes[0].scope.body) if getattr(r.base, "name", "") != "X")
    error = ROUNDING * np.abs(values).max() if isinstance(base, Scope) and not isinstance(base.body, Select) else 0.0
    assert np.abs(before - after).max() <= error, f"{values} became {base}"
    return base if isinstance(base, Scope) else None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(arrays(np.float32, array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6), elements=st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.5])))
def test_the_program_computes_what_it_did(values: np.ndarray) -> None:
    structure(values)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.data())
def test_blocks_may_have_zeros(count: int, high: int, wide: int, data: st.DataObject) -> None:
    inside = np.kron(np.eye(count), np.ones((high, wide)))
    structure(inside * data.draw(arrays(np.float32, inside.shape, elements=st.sampled_from([0.0, 1.0, 1.0, 1.0, 3.0]))))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.eye(4), Select),
        (np.diag([1.0, 1.0, 0.0, 1.0]), Select),
        (np.array([[1.0, 0.0], [0.0, 0.0]]), Select),
        (np.kron(np.eye(3), np.ones((2, 2))), Select),
        (np.outer([1.0, 2.0, 3.0], [5.0, 7.0, 11.0]), Mul),
        (np.array([[1.0, 2.0], [3.0, 5.0]]), None),
    ],
    ids=["diagonal", "diagonal with a zero", "a corner", "blocks", "product", "none"],
)
def test_what_is_found(values: np.ndarray, kind: type | None) -> None:
    found = structure(values)
    assert found is None if kind is None else found is not None and isinstance(found.body, kind)


def test_what_gains_nothing_leaves_no_weights_behind() -> None:
    """Two vectors of two numbers have as many as their product."""
    assert recover_structure(reading(np.outer([1.0, 2.0], [3.0, 5.0]))).weights.keys() == {"W"}


def test_a_number_stands_for_the_region_only_where_it_is_that_throughout() -> None:
    full, gap = structure(np.eye(4)), structure(np.diag([1.0, 1.0, 0.0, 1.0]))
    assert full is not None and not [r for r in reads(full.body) if isinstance(r, Read)]
    assert gap is not None and [r for r in reads(gap.body) if isinstance(r, Read)]


HOLE = np.where(np.arange(6)[None, :] == 2, 5.0, 3.0) * np.ones((6, 1))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (np.eye(8) - 1 / 8, "(-0.125) + select(i0-i1==0, 1, 0)"),
        (1 - np.eye(6), "1 + select(i0-i1==0, -1, 0)"),
        (np.diag(np.arange(1.0, 7.0)) + 0.25, "0.25 + select(i0-i1==0, W_factor[i0,i1], 0)"),
        (HOLE, None),
        (np.where(np.random.default_rng(0).random((9, 9)) < 0.2, 2.0, 1.0), None),
    ],
    ids=["centring", "all others", "diagonal", "a column of its own", "no region"],
)
def test_one_number_outside_a_region_is_told_of_what_a_sum_reads(values: np.ndarray, shown: str | None) -> None:
    """A column that has hardly any of that number is none: the little that differs would be what is left of two large sums."""
    size = len(values)
    scope = parse(f"X : f32[3,{size}]\nW : weight f32[{size},{size}]\nL[m<3,n<{size}] Σ[k<{size}] X[m,k]*W[k,n]")
    x, y = Tensor("X", (3, size)), Tensor("Y", (3, size))
    program = Program((x,), (Node(y, scope, ("n",)),), (("Y", "Y"),), {"W": values.astype(np.float32)})
    found = recover_structure(program)
    text = found.nodes[0].scope.text()
    assert shown in text if shown else " + select" not in text, text
    given = {"X": np.random.default_rng(1).standard_normal((3, size)).astype(np.float32)}
    (before,), (after,) = interpret(program, given).values(), interpret(found, given).values()
    assert np.abs(before - after).max() <= 1e-6 * np.abs(before).max()
    assert structure(values) is None or " + select" not in str(structure(values)), "what is added reads the weight as it is"


TAP = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (np.eye(4)[:, :, None] * TAP[1], "select(i2-1>=0 & -i2+1>=0 & i0-i1==0, 1, 0)"),
        (np.random.default_rng(0).standard_normal((4, 4))[:, :, None] * TAP[1], "select(i2-1>=0 & -i2+1>=0, W[i0,i1,i2], 0)"),
        (np.pad(np.arange(9.0).reshape(3, 3), ((2, 2), (0, 0))), "select(i0-2>=0 & -i0+4>=0, W[i0,i1], 0)"),
    ],
    ids=["a tap of each channel", "a tap of all channels", "ends with a zero inside"],
)  # fmt: skip
def test_ends_of_zeros_are_told_with_what_is_between_them(values: np.ndarray, shown: str) -> None:
    found = structure(values)
    assert found is not None and shown in found.text(), found


def decaying(rates: np.ndarray, starts: np.ndarray, late: int = 0, forward: bool = True) -> np.ndarray:
    """starts[.., s]*exp(rates[..]*(t - s)) where t - s >= late; the other way round where not forward."""
    distance = np.arange(starts.shape[-1])[:, None] - np.arange(starts.shape[-1])
    distance = distance if forward else -distance
    return np.where(distance >= late, starts[..., None, :] * np.exp(rates[..., None, None] * np.maximum(distance, 0)), 0.0)


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("rates", "starts"),
    [
        (np.array(-0.1), np.ones(9)), (np.array(0.2), np.full(7, 3.0)),
        (np.array([-0.1, -0.02, -1.5]), np.ones((3, 8))), (np.array(-0.3), np.arange(1.0, 9.0)),
    ],
    ids=["one rate", "growing", "rates of heads", "starts"],
)  # fmt: skip
def test_what_decays_along_a_diagonal_is_powers(rates: np.ndarray, starts: np.ndarray, late: int, forward: bool) -> None:
    values = decaying(rates, starts, late, forward)
    program = reading(values)
    found = recover_structure(program)
    (base,) = (r.base for r in reads(found.nodes[0].scope.body) if isinstance(r.base, Scope))
    assert isinstance(base.body, Select) and "exp(" in base.text() and "W[" not in base.text()
    (after,) = interpret(found, {"X": np.zeros(values.shape, np.float32)}).values()
    assert np.abs(after - values.astype(np.float32)).max() <= ROUNDING * values.max()


def test_one_rate_is_as_exact_as_many_steps_need() -> None:
    """The power of 512 steps is that of the table, to rounding: the rate is a number of float64's digits."""
    values = decaying(np.array(np.log(0.97)), np.ones(512)).astype(np.float32)
    (after,) = interpret(recover_structure(reading(values)), {"X": np.zeros(values.shape, np.float32)}).values()
    assert (np.abs(after - values) <= 2e-6 * values).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v * (1 + 1e-5 * np.eye(9, k=-3)), lambda v: v + np.eye(9, k=-8) * 1e-3,
        lambda v: v - 2 * v * np.eye(9, k=-2), lambda v: np.triu(np.tril(v), -3),
    ],
    ids=["one diagonal is more", "the corner is another", "a sign", "what underflows is 0"],
)  # fmt: skip
def test_what_is_nearly_powers_stays_as_it_is(change) -> None:  # type: ignore[no-untyped-def]
    found = structure(change(decaying(np.array(-0.1), np.ones(9))))
    assert found is None or "exp(" not in found.text()


def test_rows_that_are_taken_by_their_numbers_stay_as_they_are() -> None:
    """A table of rank two: a product with it may be two thin ones, but a row of it that is taken is that row."""
    table = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    scopes = [
        parse("i : i64[4]\nT : weight f32[64,32]\nL[m<4,n<32] Σ[v<64] choose(equal(i[m], val(v)), T[v,n], 0)"),
        parse("x : f32[4,64]\nT : weight f32[64,32]\nL[m<4,n<32] Σ[v<64] x[m,v]*T[v,n]"),
    ]
    kept = []
    for scope in scopes:
        given = tuple(t for t in tensors(scope).values() if not t.weight)
        program = Program(given, (Node(Tensor("y", (4, 32)), scope),), (("y", "y"),), {"T": table})
        kept.append(set(recover_structure(program).weights) == {"T"})
    assert kept == [True, False]


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 150), st.integers(1, 150), st.floats(1e-30, 1e30), st.sampled_from([0.0, 0.3, 0.9, 1.1, 3.0]))
def test_few_elements_refute_no_product(seed: int, rows: int, columns: int, scale: float, apart: float) -> None:
    """Of vectors with zeros and of any magnitude, whose product's elements are as far away as rounding lets them, or a little farther."""
    rng = np.random.default_rng(seed)
    u, v = (rng.standard_normal(n) * 10 ** rng.uniform(-3, 3, n) * (rng.random(n) < 0.8) for n in (rows, columns))
    exact = np.outer(u * scale, v)
    values = exact + apart * ROUNDING * np.abs(exact).max() * rng.uniform(-1, 1, exact.shape)
    assert factored(values) is None or may_be_factored(values, float(np.abs(values).max()))


def test_few_elements_show_that_numbers_are_no_product() -> None:
    values = np.random.default_rng(0).standard_normal((3, 64, 48)).astype(np.float32)
    assert not may_be_factored(values, float(np.abs(values).max())) and may_be_factored(values, np.inf)
    assert not may_be_factored(np.concatenate([np.zeros((40, 50)), np.eye(40, 50)]), 1.0)
