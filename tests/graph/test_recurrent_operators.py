"""RNN, GRU and LSTM of more steps than are written out: as equations along time they are what ONNX Runtime computes, whatever the attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.derivation.fewer_equations import check_recursions, inlined
from einnet.expr.recursions.recursion import Recursion
from einnet.expr.recursions.recursion_text import parse_recursion, recursion_text
from einnet.graph.folds import unfold
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque
from einnet.instantiate.recursions.panels import relaid
from einnet.instantiate.recursions.time_schedule import schedule
from einnet.runtime.cpu.along_time import settled
from einnet.runtime.cpu.program import Executable
from einnet.runtime.ort import Session
from einnet.search.plan import Assembly
from tests.graph.cases import build, node, values
from tests.graph.cases import compare as compare_program
from tests.graph.test_recursive_folds import compare, node_of

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model(
    op: str, *, hidden: int = 3, batch: int = 2, width: int = 3, steps: int = 30, ways: int = 1, bias: bool = True, begun: bool = True,
    peep: bool = False, lengths: list[int] | None = None, data: bool = False, **told: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A node of these sizes; its weights are constants, or inputs where they are `data`."""
    gates = GATES[op]
    arrays: dict[str, np.ndarray] = {"w": values((ways, gates * hidden, width), 1), "r": values((ways, gates * hidden, hidden), 2)}
    names = ["x", "w", "r", "", ""]
    if bias:
        arrays["b"], names[3] = values((ways, 2 * gates * hidden), 3), "b"
    if lengths is not None:
        arrays["lens"], names[4] = np.array(lengths, np.int32), "lens"
    for n, name in enumerate(("h", "c") if op == "LSTM" and (begun or peep) else ("h",) if begun else ()):
        arrays[name] = values((ways, batch, hidden), 4 + n)
        names.append(name)
    if peep:
        arrays["p"] = values((ways, 3 * hidden), 6)
        names.append("p")
    outputs = ["y", "yh", "yc"][: 2 + (op == "LSTM")]
    direction = told.pop("direction", "bidirectional" if ways == 2 else "forward")
    run = node(op, names, outputs, hidden_size=hidden, direction=direction, **told)
    inputs = {"x": values((steps, batch, width)), **{n: a for n, a in arrays.items() if n in ("h", "c") or (data and n != "lens")}}
    return build([run], inputs, tuple(outputs), {n: a for n, a in arrays.items() if n not in inputs}, 14)


@pytest.mark.parametrize(
    "told",
    [
        {"op": "LSTM", "steps": 70, "direction": "reverse"},
        {"op": "LSTM", "ways": 2, "peep": True, "clip": 0.4, "hidden": 16},
        {"op": "LSTM", "input_forget": 1, "bias": False, "begun": False, "hidden": 40, "batch": 9},
        {"op": "GRU", "ways": 2, "hidden": 8, "data": True},
        {"op": "GRU", "linear_before_reset": 1, "batch": 1, "hidden": 32, "begun": False},
        {"op": "RNN", "steps": 300, "ways": 2, "activations": ["Relu", "Sigmoid"]},
        {"op": "RNN", "steps": 300, "lengths": [300, 300], "bias": False},
        {"op": "RNN", "steps": 300, "ways": 2, "lengths": [7, 300]},
        {"op": "LSTM", "ways": 2, "lengths": [30, 1], "peep": True},
        {"op": "GRU", "lengths": [11, 29, 30], "batch": 3, "direction": "reverse", "begun": False},
    ],
    ids=str,
)
def test_more_steps_than_are_written_out(told: dict[str, Any]) -> None:
    recursion = compare(model(**told))
    assert parse_recursion(recursion_text(recursion)) == recursion


FEW_STEPS = 10
"""Of random nodes: from so many on a state in closed form is tried, and the times before the first and after the last are in another order."""


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(st.sampled_from(sorted(GATES)))
    ways = draw(st.integers(1, 2))
    told: dict[str, Any] = {"op": op, "ways": ways, "steps": FEW_STEPS, "hidden": draw(st.integers(1, 4))}
    told |= {"batch": draw(st.integers(1, 3)), "width": draw(st.integers(1, 4)), "bias": draw(st.booleans()), "begun": draw(st.booleans())}
    told["direction"] = "bidirectional" if ways == 2 else draw(st.sampled_from(("forward", "reverse")))
    if draw(st.booleans()):
        told["lengths"] = draw(st.lists(st.integers(1, told["steps"]), min_size=told["batch"], max_size=told["batch"]))
    if draw(st.booleans()):
        told["clip"] = draw(st.sampled_from((0.3, 1.0)))
    if op == "GRU":
        told["linear_before_reset"] = draw(st.integers(0, 1))
    if op == "LSTM":
        told |= {"peep": draw(st.booleans()), "input_forget": draw(st.integers(0, 1))}
    return told


@settings(max_examples=25, deadline=None, derandomize=True)
@given(nodes())
def test_random_attributes(told: dict[str, Any]) -> None:
    """Values of the equations as they are, and of fewer, in exact steps along time; code is generated for those above.

    Fewer steps are written out, so that those of a small operator are not either: each step takes its time here.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unfold, "MOST_WRITTEN", FEW_STEPS - 1)
        compare(model(**told), compiled=False)


def recursion_of(told: dict[str, Any]) -> Recursion:
    found = node_of(model(**told)).recursion
    assert found is not None
    return found


def test_products_with_the_inputs_leave_the_fold() -> None:
    """A step is one product of the state and element functions; all else is done before and afterwards."""
    for op, products in (("RNN", 1), ("LSTM", 1), ("GRU", 2)):
        found = inlined(recursion_of({"op": op, "steps": 300, "hidden": 32}))
        assert [bool(e.scope.sums) for e in found.before] == [True]
        assert sum(bool(e.scope.sums) for e in found.steps) == products
        assert len(found.steps) == {"RNN": 2, "LSTM": 3, "GRU": 5}[op]
        assert not any(e.scope.sums for e in found.after)
        assert len(found.after) == {"RNN": 2, "LSTM": 3, "GRU": 2}[op]


def test_weights_are_stored_in_the_order_in_which_a_step_reads_them() -> None:
    """Panels of two vectors, of one, and of all columns; the checker proves the recursion with them to be the one without."""
    for told, panels in (
        ({"op": "LSTM", "steps": 30, "hidden": 8, "batch": 2}, (1, 8, 32)),
        ({"op": "LSTM", "steps": 30, "hidden": 8, "batch": 8}, (2, 8, 16)),
        ({"op": "LSTM", "steps": 30, "hidden": 5}, (1, 5, 20)),
    ):
        fewer = inlined(recursion_of(told))
        laid = relaid(fewer)
        check_recursions(laid, fewer)
        assert panels in [e.tensor.shape for e in laid.before]


@pytest.mark.parametrize("told", [{"op": "LSTM", "hidden": 8}, {"op": "GRU", "ways": 2, "hidden": 16, "lengths": [30, 12]}], ids=str)
def test_panels_of_constant_weights_are_made_once(told: dict[str, Any]) -> None:
    """Before the first run; a run has no such kernel, and gives the same after its memory was given back."""
    made = model(**told, begun=False)
    program = load(made)
    (found,) = [n for n in program.nodes if isinstance(n, Opaque)]
    assembly = Assembly(program)
    assembly.opaque(found)
    plan = assembly.finish()
    assert found.recursion is not None
    whole = schedule(found.recursion)
    assert whole is not None
    weights = [t.name for t, name in zip(found.recursion.inputs, found.inputs, strict=True) if name in program.weights]
    once = settled(whole, weights)
    assert once and set(once) < {c.places[-1].tensor for c in whole.before}
    assert not any(p.tensor in weights for c in settled(whole, ()).values() for p in c.places), "what is given in a run is not known before"
    executable = Executable(plan, 1)
    for seed in range(3):
        x = values((30, 2, 3), seed)
        for name, wanted in Session(made.SerializeToString(), 1)({"x": x}).items():
            np.testing.assert_allclose(executable({"x": x})[name], wanted, rtol=2e-5, atol=2e-5)
        executable.release()


def test_directions_go_through_all_times_one_after_the_other() -> None:
    """They do not read one another, and the weights of one direction are read again while they are near."""
    found = schedule(recursion_of({"op": "LSTM", "ways": 2}))
    assert found is not None
    assert len(found.lanes) == 2


def test_a_batch_is_no_lane_where_each_would_read_all_weights_again() -> None:
    many = schedule(recursion_of({"op": "RNN", "steps": 300, "hidden": 72, "batch": 40}))
    few = schedule(recursion_of({"op": "RNN", "steps": 300, "hidden": 60, "batch": 40}))
    assert many is not None
    assert few is not None
    assert [len(many.lanes), len(few.lanes)] == [1, 40]


def test_sequences_that_end_early_are_written_out() -> None:
    """A sequence's last state is that of its last time, and its results are 0 from there on."""
    made = model("GRU", steps=5, ways=2, batch=3, lengths=[1, 4, 5])
    program = load(made)
    assert not any(isinstance(n, Opaque) for n in program.nodes)
    compare_program(program, made, {"x": values((5, 3, 3)), "h": values((2, 3, 3), 4)})


def test_sequences_of_no_time_stay_with_onnx_runtime() -> None:
    (found,) = [n for n in load(model("RNN", steps=9, lengths=[9, 0])).nodes if isinstance(n, Opaque)]
    assert "sequence_lens ends a sequence of 9 times after 0, 9" in found.why
    assert found.recursion is None


def test_full_sequences_that_are_written_out() -> None:
    assert not any(isinstance(n, Opaque) for n in load(model("GRU", steps=4, lengths=[4, 4])).nodes)
