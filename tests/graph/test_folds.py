"""Scan and Loop, and the recurrent operators that are defined by them, against ONNX Runtime: over every attribute, and at random."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

from einnet.derivation.rules.transitions import running
from einnet.expr.nodes import Scope
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.program import Node, Opaque, Program
from tests.graph.cases import build, check, compare, node, values

Arrays = dict[str, np.ndarray]

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def imported(text: str, inputs: Arrays, opaque: str = "", tolerance: float = 2e-5) -> Program:
    """The model of a text gives what ONNX Runtime gives; it has expressions alone, or one opaque node of which that is told."""
    model = parser.parse_model(f"{HEAD} {text}")
    program = load(model)
    reasons = [n.why for n in program.nodes if isinstance(n, Opaque)]
    assert (len(reasons) == 1 and opaque in reasons[0]) if opaque else not reasons, reasons
    compare(program, model, inputs, tolerance)
    return program


def scopes(program: Program) -> list[Scope]:
    return [n.scope for n in program.nodes if isinstance(n, Node)]


def walks(program: Program) -> int:
    """How many expressions one walk along time computes."""
    return sum(running(s) is not None for s in scopes(program))


def mean(gate: str, more: str = "", constants: str = "", steps: int = 12, ends: str = "") -> str:
    """h = gate*h + x over rows of x, where the lines `more` make the gate of the slices xt and zt."""
    return f"""g (float[{steps},3] x, float[{steps},3] z, float[3] h0) => (float[3] hn, float[{steps},3] y) <float one = {{1.0}}{constants}> {{
      hn, y = Scan <num_scan_inputs = 2{ends}, body = s (float[3] h, float[3] xt, float[3] zt) => (float[3] h1, float[3] yt)
        {{ {more} p = Mul (h, {gate}) h1 = Add (p, xt) yt = Identity (h1) }}> (h0, x, z) }}"""


ROWS = {"x": values((12, 3), 1), "z": values((12, 3), 2), "h0": values((3,), 3)}

POSITIVE = {
    "a number": ("a", "", ", float a = {0.5}"),
    "weights": ("a", "", ", float[3] a = {0.5, 0.25, 1.5}"),
    "an exponential": ("g", "g = Exp (zt)", ""),
    "a sigmoid": ("g", "g = Sigmoid (zt)", ""),
    "what a sigmoid leaves": ("g", "s = Sigmoid (zt) g = Sub (one, s)", ""),
    "a product": ("g", "s = Sigmoid (zt) e = Exp (xt) g = Mul (s, e)", ""),
    "a quotient": ("g", "s = Sigmoid (zt) e = Exp (xt) g = Div (s, e)", ""),
    "nothing": ("one", "", ""),
}
"""Gates that are known to be positive, and the lines that make them."""


@pytest.mark.parametrize("kind", POSITIVE)
def test_a_state_times_a_positive_gate_is_a_closed_sum(kind: str) -> None:
    program = imported(mean(*POSITIVE[kind]), ROWS)
    assert walks(program) >= 1
    assert len(scopes(program)) < 12


def test_a_gate_may_be_made_before_the_steps() -> None:
    """Its logarithm is that of what it was made of: a sigmoid of what is far below 0 is nearly 0, and has one all the same."""
    text = """g (float[12,3] x, float[12,3] z, float[3] h0) => (float[3] hn, float[12,3] y) <float far = {-300.0}> {
      low = Mul (z, far) gates = Sigmoid (low)
      hn, y = Scan <num_scan_inputs = 2, body = s (float[3] h, float[3] xt, float[3] gt) => (float[3] h1, float[3] yt)
        { p = Mul (h, gt) h1 = Add (p, xt) yt = Identity (h1) }> (h0, x, gates) }"""
    assert walks(imported(text, ROWS)) == 2


@pytest.mark.parametrize("least", [-np.inf, -1e9])
@pytest.mark.parametrize("kind", ["an exponential", "a sigmoid"])
def test_what_forgets_its_state_starts_anew(kind: str, least: float) -> None:
    """In single precision, too: a running sum of logarithms that had taken up -1e9 would tell nothing of later gates."""
    inputs = {**ROWS, "z": ROWS["z"].copy()}
    inputs["z"][4, :2] = inputs["z"][9, 1] = least
    program = imported(mean(*POSITIVE[kind]), inputs)
    single, double = (interpret(program, inputs, dtype=f"float{bits}")["y"] for bits in (32, 64))
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("gate", "more", "constants"), [("g", "g = Tanh (zt)", ""), ("a", "", ", float[3] a = {0.5, -0.5, 0.1}"), ("zt", "", "")])
def test_a_gate_of_unknown_sign_is_written_out(gate: str, more: str, constants: str) -> None:
    assert walks(imported(mean(gate, more, constants), ROWS)) == 0


def test_few_steps_are_written_out() -> None:
    program = imported(mean("a", "", ", float a = {0.5}", 5), {"x": values((5, 3), 1), "z": values((5, 3), 2), "h0": values((3,), 3)})
    assert walks(program) == 0


def test_many_steps_of_a_gate_of_unknown_sign_stay_opaque() -> None:
    inputs = {"x": values((300, 3), 1), "z": values((300, 3), 2), "h0": values((3,), 3)}
    imported(mean("g", "g = Tanh (zt)", steps=300), inputs, opaque="300 steps of 2 expressions are too many")


@pytest.mark.parametrize(("inward", "outward"), list(product((0, 1), (0, 1))))
def test_directions(inward: int, outward: int) -> None:
    ends = f", scan_input_directions = [{inward}, 1], scan_output_directions = [{outward}]"
    for kind in ("a sigmoid", "a number"):
        imported(mean(*POSITIVE[kind], ends=ends), ROWS)
    imported(mean("zt", ends=ends), ROWS)


@pytest.mark.parametrize(("first", "second", "out"), [(0, 1, 0), (1, 2, -1), (-1, -2, 1), (2, 0, 2)])
def test_axes(first: int, second: int, out: int) -> None:
    shapes = {}
    for name, axis in (("x", first), ("z", second)):
        shape = [2, 3]
        shape.insert(axis % 3, 9)
        shapes[name] = shape
    after = [2, 3]
    after.insert(out % 3, 9)
    told = ", ".join(f"float{s} {n}" for n, s in shapes.items())
    text = f"""g ({told}) => (float[2,3] hn, float{after} y) <float[2,3] h0 = {{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}}> {{
      hn, y = Scan <num_scan_inputs = 2, scan_input_axes = [{first}, {second}], scan_output_axes = [{out}],
        body = s (float[2,3] h, float[2,3] xt, float[2,3] zt) => (float[2,3] h1, float[2,3] yt)
        {{ g = Sigmoid (zt) p = Mul (g, h) h1 = Add (p, xt) yt = Mul (h, h1) }}> (h0, x, z) }}"""
    assert walks(imported(text, {n: values(s, k) for k, (n, s) in enumerate(shapes.items())}))


@pytest.mark.parametrize("step", ["p = Mul (h, h) q = Mul (p, r)", "p = Transpose (h) q = Mul (p, r)", "p = Gather (h, turned) q = Mul (p, r)"])
def test_what_is_not_linear_in_its_own_place_is_no_closed_sum(step: str) -> None:
    text = f"""g (float[9,3,3] x, float[3,3] h0) => (float[3,3] hn) <float r = {{0.25}}, int64[3] turned = {{2, 1, 0}}> {{
      hn = Scan <num_scan_inputs = 1, body = s (float[3,3] h, float[3,3] xt) => (float[3,3] h1) {{ {step} h1 = Add (q, xt) }}> (h0, x) }}"""
    assert walks(imported(text, {"x": values((9, 3, 3)), "h0": values((3, 3), 1)})) == 0


def test_states_that_follow_from_one_another_are_closed_each() -> None:
    text = """g (float[10,3] x, float[3] a0, float[3] b0) => (float[3] an, float[3] bn, float[10,3] y) <float r = {0.9}> {
      an, bn, y = Scan <num_scan_inputs = 1, body = s (float[3] a, float[3] b, float[3] xt) => (float[3] a1, float[3] b1, float[3] yt)
        { p = Mul (a, r) a1 = Add (p, xt) q = Tanh (a1) h = Mul (b, r) b1 = Add (h, q) yt = Sub (b1, a) }> (a0, b0, x) }"""
    program = imported(text, {"x": values((10, 3)), "a0": values((3,), 1), "b0": values((3,), 2)})
    assert walks(program) == 2


def test_states_that_need_each_other_are_written_out() -> None:
    text = """g (float[10,3] x, float[3] a0, float[3] b0) => (float[3] an, float[3] bn) <float r = {0.9}> {
      an, bn = Scan <num_scan_inputs = 1, body = s (float[3] a, float[3] b, float[3] xt) => (float[3] a1, float[3] b1)
        { a1 = Mul (b, xt) b1 = Identity (a) }> (a0, b0, x) }"""
    imported(text, {"x": values((10, 3)), "a0": values((3,), 1), "b0": values((3,), 2)})


def test_a_state_that_only_waits_is_a_shift() -> None:
    text = """g (float[10,3] x, float[3] a0) => (float[3] an, float[10,3] y) {
      an, y = Scan <num_scan_inputs = 1, body = s (float[3] a, float[3] xt) => (float[3] a1, float[3] yt)
        { a1 = Identity (xt) yt = Sub (xt, a) }> (a0, x) }"""
    program = imported(text, {"x": values((10, 3)), "a0": values((3,), 1)})
    assert len(scopes(program)) <= 5


def test_products_that_need_no_state_are_one_for_all_times() -> None:
    text = """g (float[6,2,4] x, float[2,3] h0) => (float[2,3] hn) <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3,3] r = {1,2,3,4,5,6,7,8,9}> {
      hn = Scan <num_scan_inputs = 1, body = s (float[2,3] h, float[2,4] xt) => (float[2,3] h1)
        { p = MatMul (xt, w) q = MatMul (h, r) s1 = Add (p, q) h1 = Tanh (s1) }> (h0, x) }"""
    made = scopes(imported(text, {"x": values((6, 2, 4)), "h0": values((2, 3), 1)}))
    assert sorted(len(s.loops) for s in made if s.sums) == [2] * 6 + [3]


def looped(body: str, steps: int = 9, constants: str = "", states: str = "float[2,3] h", after: str = "float[2,3] h1", given: str = "h0") -> str:
    """A Loop over a state h and what else is told, which gathers of x[9,2,3]."""
    more = "".join(f", {name}_n" for name in given.split(", ")[1:])
    return f"""g (float[9,2,3] x, float[2,3] h0) => (float[2,3] hn, float[N,2,3] y)
      <int64 m = {{{steps}}}, bool go = {{1}}, int64 one = {{1}}, int64 last = {{8}}, float r = {{0.9}}{constants}> {{
      hn{more}, y = Loop <body = s (int64 i, bool c, {states}) => (bool c1, {after}, float[2,3] yt) {{ {body} }}> (m, go, {given}) }}"""


BLOCKS = {"x": values((9, 2, 3), 1), "h0": values((2, 3), 2)}

STEP = "p = Mul (h, r) h1 = Add (p, xt) yt = Identity (h1)"

PLACES = {
    "forward": "c1 = Identity (c) xt = Gather <axis = 0> (x, i)",
    "backward": "c1 = Identity (c) k = Sub (last, i) xt = Gather <axis = 0> (x, k)",
    "in no order": "c1 = Identity (c) k2 = Mul (i, i) nine = Add (last, one) k = Mod (k2, nine) xt = Gather <axis = 0> (x, k)",
    "as long as a constant says": "c1 = Identity (go) xt = Gather <axis = 0> (x, i)",
    "while a comparison holds": "j = Add (i, one) c1 = Less (j, last) xt = Gather <axis = 0> (x, i)",
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_loop_reads_at_places_that_count(kind: str) -> None:
    steps = 8 if "while" in kind else 9
    program = imported(looped(f"{PLACES[kind]} {STEP}", steps), BLOCKS)
    assert walks(program) == 1
    assert all(s.reduce == "sum" and len(s.sums) <= 1 for s in scopes(program))


def test_a_counter_among_the_states_is_a_number_at_each_step() -> None:
    body = f"c1 = Identity (c) k1 = Sub (k, one) xt = Gather <axis = 0> (x, k) {STEP}"
    text = looped(body, constants=", int64 k0 = {8}", states="float[2,3] h, int64 k", after="float[2,3] h1, int64 k1", given="h0, k0")
    assert walks(imported(text, BLOCKS)) == 1


def test_a_counter_beside_a_state_that_begins_with_a_constant() -> None:
    body = f"c1 = Identity (c) k1 = Sub (k, one) xt = Gather <axis = 0> (x, k) {STEP}"
    constants = ", int64 k0 = {8}, float[2,3] b0 = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}"
    text = looped(body, constants=constants, states="float[2,3] h, int64 k", after="float[2,3] h1, int64 k1", given="b0, k0")
    assert walks(imported(text, BLOCKS)) == 1


def test_one_step_and_a_result_without_a_state() -> None:
    imported(looped(f"{PLACES['forward']} {STEP}", 1), BLOCKS)
    imported(looped(f"{PLACES['forward']} h1 = Identity (h) yt = Mul (xt, r)"), BLOCKS)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("s1 = ReduceSum <keepdims = 0> (h) c1 = Less (r, s1) xt = Gather <axis = 0> (x, i) " + STEP, "data may end it early"),
        ("c1 = Less (i, one) xt = Gather <axis = 0> (x, i) " + STEP, "data may end it early"),
    ],
)
def test_a_loop_that_may_end_early_stays_opaque(body: str, why: str) -> None:
    text = looped(body).replace("float[N,2,3] y", "float[2,3] yn").replace("}> (m, go, h0)", "}> (m, go, h0) yn = Identity (hn)")
    model = parser.parse_model(f"{HEAD} {text}")
    reasons = [n.why for n in load(model).nodes if isinstance(n, Opaque)]
    assert len(reasons) == 1
    assert why in reasons[0]


def test_what_a_window_has_beside_a_state_of_zeros_is_no_zero() -> None:
    """Before the first step the state is 0 everywhere, and a maximum reads the least number beside it."""
    text = """g (float[9,1,1,3,3] x) => (float[9,1,1,3,3] y) <float r = {0.75}> {
      shape = Constant <value_ints = [1, 1, 3, 3]> () h0 = ConstantOfShape (shape)
      hn, y = Scan <num_scan_inputs = 1, body = s (float[1,1,3,3] h, float[1,1,3,3] xt) => (float[1,1,3,3] h1, float[1,1,3,3] yt)
        { p = Mul (h, r) h1 = Add (p, xt) wide = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (h) yt = Sub (wide, xt) }> (h0, x) }"""
    imported(text, {"x": -np.abs(values((9, 1, 1, 3, 3)))})


def test_a_state_of_zeros_is_asked_before_the_first_step() -> None:
    """What a function makes of it is that of 0."""
    text = """g (float[12,3] x) => (float[12,3] y) <float r = {0.75}, float one = {1.0}> {
      shape = Constant <value_ints = [3]> () h0 = ConstantOfShape (shape)
      hn, y = Scan <num_scan_inputs = 1, body = s (float[3] h, float[3] xt) => (float[3] h1, float[3] yt)
        { p = Mul (h, r) h1 = Add (p, xt) e = Exp (h) yt = Sub (e, xt) }> (h0, x) }"""
    program = imported(text, {"x": values((12, 3))})
    assert not any("select(t-1" in str(s) for s in scopes(program))


# the recurrent operators

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(op: str, *, ways: int = 1, bias: bool = True, begun: bool = True, peep: bool = False, **told: Any) -> Program:
    """The operator has expressions, which give what ONNX Runtime gives."""
    steps, batch, width, hidden, gates = 4, 2, 3, 4, GATES[op]
    inputs = {"x": values((steps, batch, width))}
    weights = {"w": values((ways, gates * hidden, width), 1), "r": values((ways, gates * hidden, hidden), 2)}
    names = ["x", "w", "r", "", ""]
    if bias:
        weights["b"], names[3] = values((ways, 2 * gates * hidden), 3), "b"
    for n, name in enumerate(("h", "c") if op == "LSTM" and (begun or peep) else ("h",) if begun else ()):
        inputs[name] = values((ways, batch, hidden), 4 + n)
        names.append(name)
    if peep:
        weights["p"] = values((ways, 3 * hidden), 6)
        names.append("p")
    outputs = ["y", "yh", "yc"][: 2 + (op == "LSTM")]
    return check([node(op, names, outputs, hidden_size=hidden, **told)], inputs, weights, outputs, opset=14)


@pytest.mark.parametrize(("op", "direction"), list(product(GATES, ("forward", "reverse", "bidirectional"))))
def test_recurrent_operators(op: str, direction: str) -> None:
    ways = 1 + (direction == "bidirectional")
    recurrent(op, ways=ways, direction=direction)
    recurrent(op, ways=ways, direction=direction, bias=False, begun=False)


@pytest.mark.parametrize(
    "told",
    [
        {"op": "GRU", "linear_before_reset": 1},
        {"op": "GRU", "linear_before_reset": 1, "bias": False},
        {"op": "GRU", "clip": 0.3},
        {"op": "RNN", "clip": 0.3},
        {"op": "LSTM", "clip": 0.3},
        {"op": "LSTM", "peep": True},
        {"op": "LSTM", "input_forget": 1},
        {"op": "LSTM", "input_forget": 1, "peep": True, "clip": 0.4},
        {"op": "RNN", "activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]},
        {"op": "RNN", "activations": ["Elu"]},
        {"op": "RNN", "activations": ["Softplus"]},
        {"op": "RNN", "activations": ["ThresholdedRelu"], "activation_alpha": [0.2]},
        {"op": "GRU", "activations": ["HardSigmoid", "Softsign"]},
        {
            "op": "LSTM",
            "activations": ["HardSigmoid", "ScaledTanh", "LeakyRelu"],
            "activation_alpha": [0.3, 0.7, 0.05],
            "activation_beta": [0.4, 1.2],
        },
        {"op": "RNN", "ways": 2, "direction": "bidirectional", "activations": ["Relu", "Sigmoid"]},
    ],
    ids=str,
)
def test_attributes_of_recurrent_operators(told: dict[str, Any]) -> None:
    recurrent(**told)


def test_batches_first() -> None:
    """ONNX Runtime has this layout for no operator: it is that of the other with its operands turned."""
    x, w, r = values((2, 4, 3)), values((2, 12, 3), 1), values((2, 12, 4), 2)
    h = values((2, 2, 4), 3)
    told = {"hidden_size": 4, "direction": "bidirectional"}
    first = load(
        build([node("GRU", ["x", "w", "r", "", "", "h"], ["y", "yh"], layout=1, **told)], {"x": x, "h": h}, ("y", "yh"), {"w": w, "r": r}, 14)
    )
    turned = {"x": x.transpose(1, 0, 2).copy(), "h": h.transpose(1, 0, 2).copy()}
    second = load(build([node("GRU", ["x", "w", "r", "", "", "h"], ["y", "yh"], **told)], turned, ("y", "yh"), {"w": w, "r": r}, 14))
    got, wanted = interpret(first, {"x": x, "h": h}), interpret(second, turned)
    np.testing.assert_allclose(got["y"], wanted["y"].transpose(2, 0, 1, 3), rtol=1e-9)
    np.testing.assert_allclose(got["yh"], wanted["yh"].transpose(1, 0, 2), rtol=1e-9)


def test_lengths_of_sequences_are_refused() -> None:
    inputs = {"x": values((4, 2, 3)), "n": np.array([4, 2], np.int64)}
    cast = node("Cast", ["n"], ["n32"], to=6)
    run = node("RNN", ["x", "w", "r", "", "n32"], ["y", "yh"], hidden_size=4)
    program = load(build([cast, run], inputs, ("y", "yh"), {"w": values((1, 4, 3)), "r": values((1, 4, 4))}, 14))
    assert any("sequence_lens is given" in n.why for n in program.nodes if isinstance(n, Opaque))


# at random


@st.composite
def loops(draw: st.DrawFn) -> tuple[str, Arrays]:
    """A Loop of a few steps that reads rows at a place that is linear in the step's number, forwards or backwards."""
    steps = draw(st.integers(1, 9))
    stride = draw(st.sampled_from([n for n in (-2, -1, 0, 1, 2) if abs(n) * (steps - 1) < 9]))
    begin = draw(st.integers(max(0, -stride * (steps - 1)), min(8, 8 - stride * (steps - 1))))
    places = "c1 = Identity (c) j = Mul (i, stride) k = Add (j, begin) xt = Gather <axis = 0> (x, k)"
    gate = draw(st.sampled_from(("g = Sigmoid (xt)", "g = Identity (r)", "g = Tanh (xt)", "g = Sigmoid (h)")))
    coming = draw(st.sampled_from(("k1 = Abs (xt)", "k1 = Mul (xt, r)", "k1 = Tanh (h)", "f = Cast <to = 1> (i) k1 = Mul (xt, f)")))
    result = draw(st.sampled_from(("yt = Sub (h1, h)", "yt = Exp (xt)", "yt = Identity (h)")))
    body = f"{places} {gate} {coming} p = Mul (g, h) h1 = Add (p, k1) {result}"
    return looped(body, steps, f", int64 stride = {{{stride}}}, int64 begin = {{{begin}}}"), BLOCKS


@settings(max_examples=40, deadline=None, derandomize=True)
@given(loops())
def test_random_loops(drawn: tuple[str, Arrays]) -> None:
    text, inputs = drawn
    imported(text, inputs, tolerance=2e-4)


UNARY, BINARY = ("Tanh", "Sigmoid", "Identity", "Neg", "Abs"), ("Add", "Sub", "Mul")


def drawn_node(draw: st.DrawFn, name: str, names: list[str]) -> str:
    """The lines of a node, or of a few, over values of these names."""
    one, two, three = (draw(st.sampled_from(names)) for _ in range(3))
    kind = draw(st.sampled_from((*UNARY, *BINARY, "MatMul", "Gate")))
    if kind == "Gate":
        return f"{name}s = Sigmoid ({one}) {name}p = Mul ({name}s, {two}) {name} = Add ({name}p, {three})"
    return f"{name} = {kind} ({one}{'' if kind in UNARY else ', w' if kind == 'MatMul' else f', {two}'})"


@st.composite
def folds(draw: st.DrawFn) -> tuple[str, Arrays]:
    """A Scan of a few states over a few slices, whose step is made of a few nodes."""
    steps, states, slices = draw(st.integers(1, 11)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    axes = draw(st.lists(st.integers(0, 2), min_size=slices, max_size=slices))
    names = ["outer", *(f"h{n}" for n in range(states)), *(f"x{n}" for n in range(slices))]
    lines: list[str] = []

    def one() -> str:
        return draw(st.sampled_from(names))

    for n in range(draw(st.integers(0, 6))):
        lines.append(drawn_node(draw, f"v{n}", names))
        names.append(f"v{n}")
    for n in range(states):
        gates = {"decay": "r", "gate": draw(st.sampled_from(names[1 + states :])), "any": one()}
        how = draw(st.sampled_from(sorted(gates)))
        gate = f"g{n} = {'Identity' if how == 'decay' else 'Sigmoid'} ({gates[how]})"
        lines.append(f"{gate} d{n} = Mul ({one() if how == 'any' else f'h{n}'}, g{n}) k{n} = Tanh ({one()}) e{n} = Add (d{n}, k{n})")
    lines.append(f"y0 = Sub ({one()}, {one()})")
    back = [draw(st.integers(0, 1)) for _ in range(slices)], draw(st.integers(0, 1)), draw(st.integers(0, 2))
    shapes = {"outer": (2, 3), **{f"b{n}": (2, 3) for n in range(states)}}
    shapes |= {f"xs{n}": tuple(np.insert((2, 3), a, steps).tolist()) for n, a in enumerate(axes)}
    after = np.insert((2, 3), back[2], steps).tolist()
    told = f"scan_input_axes = {axes}, scan_input_directions = {back[0]}, scan_output_directions = [{back[1]}], scan_output_axes = [{back[2]}]"
    inner = ", ".join(f"float[2,3] {n}" for n in (*(f"h{n}" for n in range(states)), *(f"x{n}" for n in range(slices))))
    ends = ", ".join(f"float[2,3] e{n}" for n in range(states))
    results = ", ".join(f"f{n}" for n in range(states))
    given_in = ", ".join(f"float{list(s)} {n}" for n, s in shapes.items())
    text = f"""g ({given_in}) => ({", ".join(f"float[2,3] f{n}" for n in range(states))}, float{after} y)
      <float r = {{0.75}}, float[3,3] w = {{0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, -0.8, 0.9}}> {{
      {results}, y = Scan <num_scan_inputs = {slices}, {told}, body = s ({inner}) => ({ends}, float[2,3] y0) {{ {" ".join(lines)} }}>
        ({", ".join(f"b{n}" for n in range(states))}, {", ".join(f"xs{n}" for n in range(slices))}) }}"""
    return text, {name: values(shape, n) for n, (name, shape) in enumerate(shapes.items())}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(folds())
def test_random_scans(drawn: tuple[str, Arrays]) -> None:
    text, inputs = drawn
    imported(text, inputs, tolerance=2e-4)
