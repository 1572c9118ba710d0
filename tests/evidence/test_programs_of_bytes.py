"""Programs of bytes: the numbers of the model's own expressions bit for bit, proven, run kernel by kernel; and changed ones, which are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import onnx
import pytest

from einnet.derivation.steps import Derivation
from einnet.evidence.examine import proven, told_kernels, told_lifting
from einnet.evidence.running import OnProcessor
from einnet.expr.nodes import Read, Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.graph.dtypes import NUMPY
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.instantiate.build import builds
from einnet.instantiate.kernels import EOperator, Kernel, Plan
from einnet.instantiate.kernels.arithmetics import U8I8
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime import machine
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl_kernels import refusal
from einnet.runtime.cpu.program import Executable
from einnet.search.choosing.candidate import OUT
from einnet.search.forms import Form
from einnet.search.outcome import canonical
from einnet.search.plan import Assembly
from einnet.search.space import Options, deepen
from tests.graph.cases import build, node, reference
from tests.graph.quantised_networks import attention, dynamic, network

pytestmark = pytest.mark.skipif(
    bool(dnnl.available() or dnnl.limit() or U8I8.missing(machine.cpu_features())), reason="no products of bytes on this processor"
)

CASES = [("uint8", (128, 0), 1, 1), ("uint8", (3, 117), 1, 2), ("int8", (-128, -128), 1, 1), ("int8", (0, 5), 0, 2)]


def in_bytes(form: Form) -> bool:
    return any(isinstance(m.kernel, Contraction) and m.kernel.arithmetic.whole for _, m in form.matches)


@cache
def drawn(case: tuple[str, tuple[int, int], int, int]) -> tuple[Program, Plan, list[Derivation]]:
    """The prepared program, a plan of products of bytes for it where there are any, and the derivations of its parts."""
    return planned(prepare(load(network(*case)), in_bytes=True))


def planned(program: Program) -> tuple[Program, Plan, list[Derivation]]:
    """The program, with a plan of products of bytes where there are any, and the derivations of its parts."""
    assembly, used = Assembly(program), []
    for part in subprograms(program):
        expression = canonical(part.expression)
        found = deepen(expression, Options(max_depth=2, states=30))[0]
        form = next(filter(in_bytes, found), found[0])
        used += [form.derivation] if form.steps else []
        ways = (build for epilogues in (True, False) for build in builds(form.tree, dict(form.matches), OUT, epilogues))
        known = {t.name for t in tensors(expression).values() if t.weight}
        build = next(b for b in ways if all(refusal(k, known | b.weights.keys()) is None for k in b.kernels if isinstance(k, Contraction)))
        assembly.add(build, dict(zip(tensors(expression), part.inputs, strict=True)), part.output.name)
    return program, assembly.finish(), used


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_expressions(case: tuple[str, tuple[int, int], int, int]) -> None:
    """Scales are powers of two: single precision has every number on the way."""
    program, plan, _ = drawn(case)
    products = [k for k in plan.kernels if isinstance(k, Contraction) and k.arithmetic.whole]
    assert products
    assert all(refusal(k, plan.constants.keys()) is None for k in products)
    stored = {b.name: b.dtype for b in plan.buffers}
    assert sum(kind == "u8" for kind in stored.values()) >= 5
    executable, rng = Executable(plan, 2, strict=True), np.random.default_rng(5)
    shape = plan.inputs[0][1].shape
    for scale in (0.01, 1, 5, 1000):
        x = rng.uniform(-scale, scale, shape).astype(np.float32)
        (wanted,), (got,) = interpret(program, {"x": x}).values(), executable({"x": x}).values()
        assert np.array_equal(got, wanted)


def quantised_operators() -> dict[str, onnx.ModelProto]:
    """Models of operators on integers with zero points of data, of weights, and of each run; scales are powers of two."""
    rng = np.random.default_rng(7)

    def whole(*shape: int, kind: str = "uint8") -> np.ndarray:
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)

    def single(exponent: int) -> np.ndarray:
        return np.array(2.0**exponent, np.float32)

    back = [node("DequantizeLinear", ["i", "r", "m"], ["y"])]
    held = {"s": single(-4), "z": np.array(117, np.uint8), "t": single(-6), "v": np.array(140, np.uint8), "r": single(1), "m": np.array(9, np.uint8)}
    product = node("QLinearMatMul", ["x", "s", "z", "w", "t", "v", "r", "m"], ["i"])
    many = {"t": (2.0 ** -rng.integers(5, 8, 8)).astype(np.float32), "v": np.zeros(8, np.int8), "w": whole(8, 4, 3, 3, kind="int8") // 2 * 2}
    fields = ["x", "s", "z", "w", "t", "v", "r", "m"]
    signed = {**held, "z": np.array(-9, np.int8), "m": np.array(4, np.int8), "v": np.array(-3, np.int8)}
    image, kernels = {"x": whole(1, 4, 7, 7)}, {**held, "w": whole(8, 4, 3, 3)}
    number = node("Cast", ["i"], ["y"], to=1)

    def model(nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
        return build(nodes, inputs, constants=constants, opset=21)

    return {
        "weights": model([product, *back], {"x": whole(3, 32)}, {**held, "w": whole(32, 8)}),
        "signed": model([product, *back], {"x": whole(3, 32, kind="int8")}, {**signed, "w": whole(32, 8, kind="int8")}),
        "two inputs": model([product, *back], {"x": whole(2, 3, 32), "w": whole(2, 32, 8)}, held),
        "convolution": model([node("QLinearConv", fields, ["i"], pads=[1] * 4), *back], image, kernels),
        "channels": model([node("QLinearConv", fields, ["i"], strides=[2, 2]), *back], image, {**held, **many}),
        "integers": model([node("MatMulInteger", ["x", "w", "z", "v"], ["i"]), number], {"x": whole(3, 32)}, {**held, "w": whole(32, 8)}),
        "integers of a convolution": model([node("ConvInteger", ["x", "w", "z", "v"], ["i"], pads=[1] * 4), number], image, kernels),
        "each run": dynamic(40, 120, "uint8"), "attention": attention((117, 3, 0, 255)),
    }  # fmt: skip


OPERATORS = quantised_operators()


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_on_integers_are_those_of_onnxruntime_bit_for_bit(name: str) -> None:
    program, plan, used = planned(prepare(load(OPERATORS[name]), in_bytes=True))
    products = [k for k in plan.kernels if isinstance(k, Contraction)]
    assert products and all(k.arithmetic.whole for k in products), [k.arithmetic.name for k in products]
    executable, rng = Executable(plan, 1, strict=True), np.random.default_rng(2)
    for _ in range(4):
        x = {t.name: drawn_like(t, rng) for t in program.inputs}
        given = {program.names.get(name, name): value for name, value in x.items()}
        wanted, found = reference(OPERATORS[name], given), executable(x)
        for output, tensor in program.outputs:
            assert found[output].dtype == wanted[output].dtype
            np.testing.assert_array_equal(found[output], wanted[output], err_msg=tensor)
    assert told_lifting(program, proven(program, plan, used))["problems"] == []


def drawn_like(tensor: Tensor, rng: np.random.Generator) -> np.ndarray:
    """Values of a tensor's type, of all sizes."""
    if tensor.dtype == "f32":
        return rng.uniform(-4, 4, tensor.shape).astype(np.float32)
    return rng.integers(np.iinfo(NUMPY[tensor.dtype]).min, np.iinfo(NUMPY[tensor.dtype]).max + 1, tensor.shape).astype(NUMPY[tensor.dtype])


@pytest.mark.parametrize("case", CASES[:2])
def test_they_are_proven_and_their_kernels_exact(case: tuple[str, tuple[int, int], int, int]) -> None:
    program, plan, used = drawn(case)
    assert told_lifting(program, proven(program, plan, used))["problems"] == []
    assert told_kernels(plan, OnProcessor(Executable(plan, 1)))["problems"] == []


def wider(kernel: EOperator) -> EOperator:
    """Bytes up to 256, which wrap."""
    return replace(kernel, scope=parse(kernel.scope.text().replace(", 255)", ", 256)")))


def unlike(kernel: EOperator) -> EOperator:
    """What stands around an image is another number than the zero point."""
    body = kernel.scope.body
    return replace(kernel, scope=replace(kernel.scope, body=Read(body.base, body.index, Fraction(9)))) if isinstance(body, Read) else kernel


def coarse(kernel: EOperator) -> EOperator:
    """Rounding that is left out."""
    return replace(kernel, scope=parse(kernel.scope.text().replace("round(", "relu(")))


@pytest.mark.parametrize("change", [wider, unlike, coarse])
def test_a_changed_program_is_found(change: Callable[[EOperator], EOperator]) -> None:
    program, plan, used = drawn(CASES[1])

    def one(kernel: Kernel) -> Kernel:
        return change(kernel) if isinstance(kernel, EOperator) and kernel.dtype == "u8" else kernel

    changed = replace(plan, kernels=tuple(map(one, plan.kernels)))
    assert changed.kernels != plan.kernels
    assert told_lifting(program, proven(program, changed, used))["problems"]
