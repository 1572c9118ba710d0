"""Every function's record: its number systems agree, and its facts are true."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from einnet.errors import UsageError
from einnet.expr.functions import FUNCTIONS, modular, record
from einnet.expr.functions.ends import UNDEFINED, interval
from einnet.expr.functions.exact import NAN, NONE, missing
from einnet.expr.functions.record import Mirror, ScalarFunction, Span

GRID = np.array([-30, -7, -2.5, -2, -1.75, -1, -0.5, -1e-3, 0, 1e-3, 0.25, 0.5, 1, 1.5, 2, 3, 7.5, 30])
TRUTHS = np.array([0.0, 1.0])


def arguments(f: ScalarFunction) -> tuple[np.ndarray, ...]:
    """A grid of arguments; a condition is a truth value."""
    axes = [TRUTHS if f.arity == 3 and n == 0 else GRID for n in range(f.arity)]
    return tuple(np.array(column) for column in zip(*product(*axes)))


def value(f: ScalarFunction, *args: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(f.machine(*args)).astype(np.float64)


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid", "exp"])
def test_values_at_the_infinities_are_one_in_every_number_system(name: str) -> None:
    """As far as they are told: exp is a number at -inf only."""
    f = FUNCTIONS[name]
    assert f.rational is not None
    for end, code in ((-np.inf, modular.MINUS_INFINITY), (np.inf, modular.PLUS_INFINITY))[: 1 if name == "exp" else 2]:
        told = f.rational(float(end))
        assert told == value(f, np.array(end)), "as floats have it"
        assert int(f.residue(np.array([code]))[0]) == int(told) % modular.P


def within(span: Span, y: np.ndarray) -> np.ndarray:
    """Open ends may be met where a value rounds to them."""
    return (y >= float(span.lo)) & (y <= float(span.hi))


def wrong_facts(f: ScalarFunction) -> Iterator[str]:
    """The facts that do not hold on the grid."""
    args = arguments(f)
    y = value(f, *args)
    if f.arity == 1:
        yield from wrong_of_one(f, args[0], y)
    yield from wrong_ranges(f, args, y)
    single = [a.astype(np.float32) for a in args]
    if f.accurate and not np.array_equal(value(f, *single), value(f, *(a.astype(np.float64) for a in single))):
        yield "accurate"
    below = value(f, *(np.array(1.0 if f.arity == 3 and n == 0 else -np.inf) for n in range(f.arity)))
    if f.below == "finite" and not np.isfinite(below) or f.below in ("greatest", "least", "chosen") and below != -np.inf:
        yield "below"


def wrong_of_one(f: ScalarFunction, x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    """Facts of functions of one argument: where they exist, their ranges at single numbers, symmetry, order."""
    points = [Span(Fraction(a), False, Fraction(a)) for a in GRID.tolist()]
    exists = np.array([f.total(p) for p in points])
    if not np.array_equal(exists, np.isfinite(y)):
        yield "exists"
    if not all(within(f.range(p), v) for p, v, e in zip(points, y, exists, strict=True) if e):
        yield "span"
    if f.mirror is not None and not np.allclose(y, f.mirror.scale * value(f, -x) + f.mirror.constant + f.mirror.slope * x, atol=1e-12):
        yield "mirror"
    if f.nondecreasing and not (np.diff(y) >= 0).all():
        yield "nondecreasing"
    if f.keeps_zero != bool(value(f, np.array(0.0)) == 0) and f.name not in ("isnan",):
        yield "keeps_zero"
    if f.strict and not f.truth and not np.isnan(value(f, np.array(np.nan))):
        yield "strict"


def wrong_ranges(f: ScalarFunction, args: Sequence[np.ndarray], y: np.ndarray) -> Iterator[str]:
    """Facts of what values there are."""
    wide = [Span(Fraction(0), False, Fraction(1)) if f.arity == 3 and n == 0 else record.ANY for n in range(f.arity)]
    if not within(f.range(*wide), y[np.isfinite(y)]).all():
        yield "span of all"
    if f.truth and not set(y.tolist()) <= {0.0, 1.0}:
        yield "truth"
    if f.within and not (np.abs(y) <= np.max(np.abs(args[-2:]), axis=0)).all():
        yield "within"
    if f.whole and not (y == np.rint(y)).all():
        yield "whole"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_facts(name: str) -> None:
    assert list(wrong_facts(FUNCTIONS[name])) == []


@pytest.mark.parametrize(("name", "facts"), [
    ("sigmoid", {"mirror": record.ODD}), ("softplus", {"mirror": Mirror(1)}), ("cos", {"mirror": record.ODD}), ("sin", {"nondecreasing": True}),
    ("cos", {"keeps_zero": True}), ("tanh", {"keeps_zero": False}), ("tanh", {"span": record.ABOVE_0}), ("exp", {"span": record.UNIT}),
    ("sqrt", {"exists": None}), ("log", {"exists": lambda x: x.lo >= 0}), ("floor", {"truth": True}), ("exp", {"within": True}),
    ("abs", {"truth": True}),
    ("sqrt", {"whole": True}), ("exp", {"accurate": True}), ("tanh", {"below": "least"}), ("min", {"below": "finite"}),
    ("max", {"span": record.FROM_0}),
    ("choose", {"within": True, "machine": lambda c, x, y: c + x + y}), ("isnan", {"strict": True, "truth": False}),
])  # fmt: skip
def test_a_wrong_fact_is_noticed(name: str, facts: dict[str, object]) -> None:
    assert list(wrong_facts(replace(FUNCTIONS[name], **facts))) != []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_enclosures_hold_the_value_and_are_narrow(name: str) -> None:
    f, args = FUNCTIONS[name], arguments(FUNCTIONS[name])
    y = value(f, *args)
    with np.errstate(all="ignore"):
        found = f.enclosure(*(interval(a, a) for a in args))
        condition = [f.arity == 3 and n == 0 for n in range(f.arity)]
        wide = f.enclosure(*(interval(a, a) if c else interval(a - 0.5, a + 0.25) for a, c in zip(args, condition, strict=True)))
    there = np.isfinite(y)
    assert (np.isnan(found.real) | there).all()
    assert (found.real <= y)[there].all() and (y <= found.imag)[there].all()
    assert (found.imag - found.real <= 1e-9 * (1 + np.abs(y)))[there].all()
    known = there & np.isfinite(wide)
    assert (wide.real <= y)[known].all() and (y <= wide.imag)[known].all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_exact_values_are_the_machines(name: str) -> None:
    f = FUNCTIONS[name]
    known = 0
    for at in zip(*(a.tolist() for a in arguments(f)), strict=True):
        try:
            exact = f.rational(*map(Fraction, at)) if f.rational else None
        except UsageError:
            continue
        if exact is None or missing(exact):
            continue
        known += 1
        np.testing.assert_allclose(float(exact), value(f, *map(np.array, at)), rtol=1e-12)
    assert known or f.rational is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_exact_argument_has_the_error_of_one_result(name: str) -> None:
    f, args = FUNCTIONS[name], arguments(FUNCTIONS[name])
    with np.errstate(all="ignore"):
        y, error = f.bounded(*(part for a in args for part in (a, np.zeros(a.shape))))
    there = np.isfinite(value(f, *args))
    np.testing.assert_allclose(np.asarray(y, np.float64)[there], value(f, *args)[there], rtol=1e-9)
    assert (np.asarray(error)[there] <= 1e-3 * (1 + np.abs(y[there]))).all()
    if f.accurate:
        assert not np.any(np.asarray(error)[there])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_of_an_argument_is_handed_on(name: str) -> None:
    f, args = FUNCTIONS[name], arguments(FUNCTIONS[name])
    errors = [np.zeros(a.shape) if f.arity == 3 and n == 0 else np.full(a.shape, 1e-3) for n, a in enumerate(args)]
    with np.errstate(all="ignore"):
        y, error = f.bounded(*(part for a, e in zip(args, errors, strict=True) for part in (a, e)))
        for sign in (-1, 1):
            moved = value(f, *(a + sign * e for a, e in zip(args, errors, strict=True)))
            known = np.isfinite(moved) & np.isfinite(y) & np.isfinite(error)
            assert (np.abs(moved - y) <= np.asarray(error) * (1 + 1e-9))[known].all()


def test_residues_keep_what_is_exact() -> None:
    zero, one, two = (np.array([n], dtype=np.uint64) for n in (0, 1, 2))
    assert FUNCTIONS["choose"].residue(one, two, zero) == 2
    assert FUNCTIONS["choose"].residue(zero, two, one) == 1
    assert FUNCTIONS["isnan"].residue(two) == 0
    assert FUNCTIONS["less"].residue(one, two) == 1
    assert FUNCTIONS["exp"].residue(zero) == 1
    assert FUNCTIONS["exp"].residue(one) != FUNCTIONS["log"].residue(one) == 0


def test_what_does_not_exist() -> None:
    """Whether a value that does not exist is NaN is told only of what is NaN for sure; what is not chosen need not exist."""
    isnan, choose = FUNCTIONS["isnan"], FUNCTIONS["choose"]
    assert isnan.rational(NAN) == 1
    assert isnan.rational(Fraction(3)) == 0 == isnan.rational(float("-inf"))
    with pytest.raises(UsageError):
        isnan.rational(NONE)
    assert choose.rational(Fraction(1), Fraction(5), NONE) == 5
    assert missing(choose.rational(Fraction(0), Fraction(5), NONE))
    gone, there = np.array([UNDEFINED]), interval([2.0], [3.0])
    assert isnan.enclosure(gone) == [0 + 1j]
    assert isnan.enclosure(there) == [0j]
    assert choose.enclosure(interval([1.0], [1.0]), there, gone) == [2 + 3j]
    assert np.isnan(choose.enclosure(interval([0.0], [1.0]), there, gone).real)
    assert choose.enclosure(interval([0.0], [1.0]), there, interval([7.0], [8.0])) == [2 + 8j]


def test_names_are_the_languages() -> None:
    assert all(f.name == name for name, f in FUNCTIONS.items())
    operators = [f.onnx for f in FUNCTIONS.values() if f.onnx]
    assert len(set(operators)) == len(operators)


ONE_FILE = '''
import numpy as np
from einnet.expr.functions import ends, modular, rounding
from einnet.expr.functions.record import ODD, ScalarFunction

SINH = ScalarFunction(
    "sinh", 1, np.sinh, ends.monotone(np.sinh, ((0.0, 0.0),), -np.inf, np.inf), modular.drawn("sinh", (0, 0)), rounding.monotone(np.sinh),
    keeps_zero=True, nondecreasing=True, mirror=ODD, costly=True, library="sinh", onnx="Sinh",
)
'''
USED = '''
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper
from einnet.expr.functions import library
library.__path__.append(sys.argv[1])
import importlib, einnet.expr.functions
importlib.reload(einnet.expr.functions)
from einnet.derivation.checker.check import check_equal
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.instantiate.codegen import build, lower
from tests.instantiate.compiled import call, dense

x = np.linspace(-3, 3, 37, dtype=np.float32)
info = helper.make_tensor_value_info
graph = helper.make_graph([helper.make_node("Sinh", ["x"], ["y"])], "g", [info("x", 1, [37])], [info("y", 1, [37])])
program = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
(node,) = program.nodes
assert node.scope.text() == "L[n<37] sinh(x[n])", node
assert check_equal(node.scope, parse("x : f32[37]\\nL[n<37] -1*sinh(-1*x[n])")).method == "inline"
op = dense(node.scope)
kernel = lower(op, "f")
np.testing.assert_allclose(call(build([kernel]), kernel, op, {"x": x}), np.sinh(x), rtol=1e-6)
print("done")
'''


def test_a_function_is_one_file(tmp_path: Path) -> None:
    """The importer, the checker and the code generator take it from there."""
    pytest.importorskip("tvm")
    (tmp_path / "hyperbolic.py").write_text(ONE_FILE)
    found = subprocess.run([sys.executable, "-c", USED, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert found.stdout == "done\n", found.stderr
