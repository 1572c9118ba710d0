"""Models on float64: nodes that ONNX Runtime runs, or where an error is named, expressions that float32 computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import einnet
from benchmarks.models import build as model_of
from einnet.cli import main
from einnet.evidence.error_limits import bounded_at
from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import GIVEN_OUT, load
from einnet.graph.program import Opaque, Program
from tests.graph.cases import build, node, reference, run_opaque, values
from tests.graph.networks import network
from tests.graph.test_bfloat16 import MODELS
from tests.graph.typed_models import in_type
from tests.models import random_inputs

F64 = TensorProto.DOUBLE


def kept(program: Program) -> set[str]:
    """The operators that have no expression, but for what gives out the results."""
    return {n.origin[0].split()[0] for n in program.nodes if isinstance(n, Opaque) and n.why != GIVEN_OUT}


@pytest.mark.parametrize("seed", range(8))
def test_a_network_of_float64(seed: int) -> None:
    """Against ONNX Runtime in float32 on the same numbers: it has no convolutions of float64."""
    single, inputs = network(seed)
    model, given = in_type(single, F64, 17), {n: x.astype(np.float64) for n, x in inputs.items()}
    program, wanted = load(model, doubles=True), reference(single, inputs)
    assert kept(program) <= {"TopK"}
    found = interpret(program, given, run_opaque)
    for name, y in wanted.items():
        np.testing.assert_allclose(found[name], y, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(y).max(initial=0))))


@pytest.mark.parametrize("name", MODELS)
def test_every_node_of_a_network_is_an_expression_where_an_error_is_named(name: str) -> None:
    model = in_type(model_of(name, seed=0, **MODELS[name]), F64, 17)
    assert not kept(load(model, doubles=True))
    assert kept(load(model)), "without it, ONNX Runtime computes in float64"


def test_casts_comparisons_and_what_float32_has_not() -> None:
    """Integers become numbers as in a cast to float32, and casts between the floats are none."""
    casts = [node("Cast", ["x"], ["a"], to=F64), node("Cast", ["i"], ["b"], to=F64), node("Mul", ["a", "b"], ["c"]),
             node("Less", ["c", "a"], ["l"]), node("Where", ["l", "c", "a"], ["d"]), node("Cast", ["d"], to=1)]  # fmt: skip
    inputs = {"x": values((5,)), "i": np.arange(5).astype(np.uint8)}
    program = load(model := build(casts, inputs))
    assert {"Cast", "Mul", "Less", "Where"} <= kept(program)
    program = load(model, doubles=True)
    assert not kept(program)
    np.testing.assert_allclose(interpret(program, inputs)["y"], reference(model, inputs)["y"], rtol=1e-6)


def test_reading_what_float32_has_not_errs_by_its_rounding() -> None:
    x = np.array([1.0, 0.1, -1 / 3, 2.0**-160, 1e300, np.inf, -0.0])
    points = np.arange(len(x)).reshape(-1, 1)
    copy = parse("x : f64[7]\nL[i<7] x[i]")
    value, error = bounded_at(copy, points, {"x": x}, {})
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    np.testing.assert_array_equal(value, x)
    np.testing.assert_array_equal(error[:4], np.abs(single[:4] - x[:4]))
    assert error[0] == error[5] == error[6] == 0 and 0 < error[1] < 2**-27 and error[4] == np.inf
    assert not bounded_at(copy, points, {"x": single}, {})[1].any()


def test_a_program_of_float64(tmp_path: Path) -> None:
    """It takes and gives float64, and errs by what float32 errs; without a budget it does not."""
    model = in_type(model_of("mlp", size=32, classes=8, seed=0), F64, 17)
    onnx.save(model, path := tmp_path / "m.onnx")
    inputs = {n: x.astype(np.float64) * (1 + 2.0**-30) for n, x in random_inputs(model, 3).items()}
    (wanted,) = reference(model, inputs).values()
    for error, least, most in ((1e-4, 1e-9, 1e-5), (None, 0.0, 1e-12)):
        made = einnet.optimize(path, time_budget=2, threads=1, max_error=error)
        made.save(stored := tmp_path / "m.einnet")
        (found,) = einnet.load(stored)(inputs).values()
        assert found.dtype == np.float64
        assert least <= np.abs(found - wanted).max() / np.abs(wanted).max() <= most
        assert main(["verify", str(path), str(stored)]) == 0


def test_an_onnx_model_of_a_program_of_float64(tmp_path: Path) -> None:
    model = in_type(model_of("mlp", size=32, classes=8, seed=0), F64, 17)
    made = einnet.optimize(model, time_budget=2, threads=1, max_error=1e-3)
    made.save(written := tmp_path / "out.onnx")
    inputs = {n: x.astype(np.float64) for n, x in random_inputs(model, 3).items()}
    (wanted,), (found,) = reference(model, inputs).values(), reference(onnx.load(written), inputs).values()
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
