"""Folds of which no state has a closed form: as equations along time, evaluated and compiled, they are what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from benchmarks.algorithms.mixers import MIXERS
from einnet.derivation.fewer_equations import check_recursions, inlined
from einnet.expr.nodes import Tensor
from einnet.expr.recursions.recursion import Recursion
from einnet.expr.recursions.recursion_text import parse_recursion, recursion_text
from einnet.expr.recursions.recursion_values import evaluate_recursion
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque, Program
from einnet.instantiate.kernels import OpaqueCall, Plan
from einnet.instantiate.recursions.panels import relaid
from einnet.instantiate.recursions.time_schedule import schedule
from einnet.runtime.cpu.program import Executable
from einnet.runtime.onnx.same import parsed
from einnet.runtime.ort import Session
from einnet.search.plan import Assembly

HEAD = '<ir_version: 8, opset_import: ["": 17]>'

def scan(step: str, states: str, slices: str, result: str, count: int, constants: str = "", more: str = "") -> onnx.ModelProto:
    """A Scan whose step makes n1 of each state n and y of all; slices are inputs, and states begin with inputs n0."""
    named = [x.split(":") for x in states.split()]
    read = [x.split(":") for x in slices.split()]
    given = ", ".join([*(f"float[{d}] {n}0" for n, d in named), *(f"float[{count},{d}] {n}s" for n, d in read)])
    inner = ", ".join([*(f"float[{d}] {n}" for n, d in named), *(f"float[{d}] {n}" for n, d in read)])
    after = ", ".join(f"float[{d}] {n}1" for n, d in named)
    ends = ", ".join(f"float[{d}] {n}_end" for n, d in named)
    return parser.parse_model(f"""{HEAD} g ({given}) => ({ends}, float[{count},{result}] ys) <{constants}> {{
      {", ".join(f"{n}_end" for n, _ in named)}, ys = Scan <num_scan_inputs = {len(read)}{more}, body = s ({inner}) => ({after}, float[{result}] y)
        {{ {step} }}> ({", ".join([*(f"{n}0" for n, _ in named), *(f"{n}s" for n, _ in read)])}) }}""")


R = ", ".join(f"{x:.3f}" for x in np.linspace(-0.4, 0.4, 25))

STEPS = {
    "a matrix": (
        "a = MatMul (h, r) h1 = Add (a, x) y = Identity (h1)", "h:2,5", "x:2,5", "2,5", f"float[5,5] r = {{{R}}}"),
    "a matrix that is data": (
        "a = MatMul (h, x) h1 = Tanh (a) y = ReduceMax <axes = [1], keepdims = 0> (h1)", "h:3,3", "x:3,3", "3", ""),
    "two states each in the step of the other": (
        "a = Mul (q, few) p1 = Sub (p, a) b = Mul (p1, few) c = Add (q, b) q1 = Add (c, x) y = Mul (p1, q1)", "p:7 q:7", "x:7", "7",
        "float few = {0.125}"),
    "an oscillator of complex numbers as pairs": (
        "a = Mul (u, c) b = Mul (v, s) u1 = Sub (a, b) d = Mul (u, s) e = Mul (v, c) f = Add (d, e) v1 = Add (f, x) y = Identity (v1)",
        "u:4 v:4", "x:4 c:4 s:4", "4", ""),
    "a logistic map": ("a = Sub (one, h) b = Mul (h, a) h1 = Mul (b, x) y = Identity (h1)", "h:6", "x:6", "6", "float one = {1.0}"),
    "a gate of the state": (
        "a = Sigmoid (h) b = Mul (a, h) h1 = Add (b, x) y = Tanh (h1)", "h:2,3", "x:2,3", "2,3", ""),
    "a scalar": ("a = Sin (h) h1 = Add (a, x) y = Identity (h1)", "h:1", "x:1", "1", ""),
    "a state turned round": (
        "a = Transpose <perm = [1, 0]> (h) b = Mul (a, few) h1 = Add (b, x) y = Identity (h1)", "h:3,3", "x:3,3", "3,3", "float few = {0.5}"),
    "the greatest so far, softened": (
        "a = Max (h, x) b = ReduceSum (a, last) c = Div (a, b) h1 = Add (c, x) y = Identity (b)", "h:3,4", "x:3,4", "3,1", "int64[1] last = {-1}"),
    "a shift register": (
        "a = Slice (h, zero, three, zero) x1 = Unsqueeze (x, zero) b = Concat <axis = 0> (x1, a) c = Tanh (b) h1 = Identity (c) "
        "y = ReduceSum (h1, zero)", "h:4,3", "x:3", "1,3", "int64[1] zero = {0}, int64[1] three = {3}"),
}  # fmt: skip


def node_of(model: onnx.ModelProto) -> Opaque:
    (node,) = [n for n in load(model).nodes if isinstance(n, Opaque)]
    assert node.recursion is not None
    return node


def plan_of(node: Opaque, arrays: list[np.ndarray]) -> Plan:
    """The node alone, of inputs that are constants."""
    inputs = tuple(Tensor(name, a.shape) for name, a in zip(node.inputs, arrays, strict=True))
    assembly = Assembly(Program(inputs, (node,), tuple((t.name, t.name) for t in node.outputs)))
    assembly.opaque(node)
    return assembly.finish()


def compare(model: onnx.ModelProto, tolerance: float = 2e-5, most: float = 0.9, compiled: bool = True) -> Recursion:
    """The recursion, as it is and with fewer equations, and the node where it is compiled give what ONNX Runtime gives of the node's own model."""
    program = load(model)
    (node,) = [n for n in program.nodes if isinstance(n, Opaque)]
    assert node.recursion is not None
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in parsed(node.model).graph.input}
    rng = np.random.default_rng(1)
    names = list(shapes)
    arrays = [
        np.asarray(program.weights[n]) if n in program.weights else rng.uniform(0.02, most, shapes[own]).astype(np.float32)
        for n, own in zip(node.inputs, names, strict=True)
    ]
    session = Session(node.model, 1)
    wanted = list(session(dict(zip(names, arrays))).values())
    given = {t.name: a for t, a in zip(node.recursion.inputs, arrays, strict=True)}
    fewer = inlined(node.recursion)
    check_recursions(node.recursion, fewer)
    laid = relaid(fewer)
    check_recursions(laid, fewer)
    for r in (node.recursion, laid):  # the one between is proven equal to both
        found = evaluate_recursion(r, given)
        for name, array in zip(r.outputs, wanted, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance)
    plan = plan_of(node, arrays)
    (call,) = plan.kernels
    assert isinstance(call, OpaqueCall)
    assert call.recursion == node.recursion
    if not compiled:
        return node.recursion
    for got, array in zip(Executable(plan, 1).run(*arrays), wanted, strict=True):
        np.testing.assert_allclose(got, array, rtol=tolerance, atol=tolerance)
    return node.recursion


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_have_no_closed_form(name: str) -> None:
    step, states, slices, result, constants = STEPS[name]
    recursion = compare(scan(step, states, slices, result, 259, constants), 2e-4)
    assert parse_recursion(recursion_text(recursion)) == recursion


@pytest.mark.parametrize("more", [
    ", scan_input_directions = [1]", ", scan_output_directions = [1]", ", scan_output_axes = [1]",
    ", scan_input_directions = [1], scan_output_directions = [1], scan_output_axes = [2]",
])  # fmt: skip
def test_directions_and_axes(more: str) -> None:
    count = 130
    model = scan(STEPS["a matrix"][0], "h:2,5", "x:2,5", "2,5", count, STEPS["a matrix"][-1], more)
    axis = int(more.partition("axes = [")[2][:1] or 0)
    dims = model.graph.output[1].type.tensor_type.shape
    for d, n in zip(dims.dim, np.insert((2, 5), axis, count), strict=True):
        d.dim_value = int(n)
    compare(model)


@pytest.mark.parametrize("length", [257, 300])
def test_the_delta_rule(length: int) -> None:
    recursion = compare(MIXERS["gated delta"].model(length, {"H": 3, "K": 32, "V": 48}), most=0.2)
    found = schedule(recursion)
    assert found is not None
    assert len(found.lanes) == 3
    assert found.sizes["h1"] == 2 * 3 * 32 * 48


def test_as_many_kernels_at_every_length() -> None:
    sizes = {"H": 2, "K": 8, "V": 8}
    found = [schedule(node_of(MIXERS["gated delta"].model(n, sizes)).recursion) for n in (300, 1200)]  # type: ignore[arg-type]
    assert found[0] is not None
    assert found[1] is not None
    assert len(found[0].operators) == len(found[1].operators)
    assert [len(lane.loop) for lane in found[0].lanes] == [len(lane.loop) for lane in found[1].lanes]
    assert found[0].sizes == found[1].sizes


def loop(made: str) -> onnx.ModelProto:
    """A Loop of 300 steps; `made` makes what comes in of the step's number."""
    return parser.parse_model(f"""{HEAD} g (float[300,3] x, float[3] h0) => (float[3] hn)
      <int64 count = {{300}}, bool go = {{1}}, int64 two = {{2}}> {{ hn = Loop <body = s (int64 i, bool on, float[3] h) => (bool more, float[3] h1)
        {{ more = Identity (on) {made} t = Tanh (h) h1 = Add (t, xt) }}> (count, go, h0) }}""")


@pytest.mark.parametrize("made", [
    "half = Div (i, two) xt = Gather <axis = 0> (x, half)",
    "zt = Gather <axis = 0> (x, i) number = Cast <to = 1> (i) few = Cos (number) xt = Mul (zt, few)",
])  # fmt: skip
def test_what_each_step_knows_is_a_table(made: str) -> None:
    recursion = compare(loop(made))
    assert parse_recursion(recursion_text(recursion)) == recursion


def test_no_kernel_is_made_of_an_equation_that_asks_for_the_time() -> None:
    text = "A : f32[9]\np : f32[9]\nat each of 9 times\np = L[t<9] tanh(p[t-1] + {}) + A[t]\ngives p"
    assert schedule(parse_recursion(text.format("A[t]"))) is not None
    for other in ("val(t)", "A[t//2]", "A[8-2*t]", "{L[a<9] 2*A[a]}[t]"):
        assert schedule(parse_recursion(text.format(other))) is None
