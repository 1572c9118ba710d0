"""Sums of integers that are scaled, moved and rounded: scaled once, and then equal to what ONNX Runtime computes with integers, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from einnet.expr.nodes import reads
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.integers.as_bytes import as_bytes
from einnet.graph.passes.integers.integer_sums import integer_sums
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Node, Program
from einnet.instantiate.kernels.arithmetics import U8I8
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime import machine
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.program import Executable
from tests.evidence.test_programs_of_bytes import planned
from tests.graph.cases import build, node, reference, values
from tests.graph.quantised_networks import quantised

CHANNELS, SIZE = 16, 12


def network(biases: tuple[float, float] = (1.0, 1.0), read: str = "") -> onnx.ModelProto:
    """Two convolutions of any scales. A bias is so many times as far apart as products of the scales are; a tensor to be `read` is given out, too."""
    rng = np.random.default_rng(5)
    sx, sy, sz = (np.float32(s) for s in (0.0277, 0.0319, 0.0583))
    constants: dict[str, np.ndarray] = {"sx": np.array(sx), "sy": np.array(sy), "sz": np.array(sz)}
    constants |= {name: np.array(zero, np.uint8) for name, zero in (("zx", 126), ("zy", 0), ("zz", 122))}
    nodes = quantised("x", "qx", "sx", "zx")
    for n, (data, side, step) in enumerate((("qx", 3, sx), ("qc0", 1, sy))):
        weight = rng.uniform(0.002, 0.01, CHANNELS).astype(np.float32)
        constants |= {
            f"w{n}": rng.integers(-127, 128, (CHANNELS, 8 if n == 0 else CHANNELS, side, side)).astype(np.int8), f"s{n}": weight,
            f"z{n}": np.zeros(CHANNELS, np.int8), f"b{n}": rng.integers(-9000, 9000, CHANNELS).astype(np.int32),
            f"t{n}": (np.float32(biases[n]) * step * weight).astype(np.float32), f"o{n}": np.zeros(CHANNELS, np.int32),
        }  # fmt: skip
        nodes += [
            node("DequantizeLinear", [f"w{n}", f"s{n}", f"z{n}"], [f"dw{n}"], axis=0),
            node("DequantizeLinear", [f"b{n}", f"t{n}", f"o{n}"], [f"db{n}"], axis=0),
            node("Conv", [data, f"dw{n}", f"db{n}"], [f"c{n}"], pads=[side // 2] * 4),
            *quantised(f"c{n}", f"qc{n}", *(("sy", "zy") if n == 0 else ("sz", "zz"))),
        ]
    outputs = ("qc1", *([read] if read else []))
    return build(nodes, given(0), outputs=outputs, constants=constants, opset=21)


def given(seed: int) -> dict[str, np.ndarray]:
    return {"x": values((1, 8, SIZE, SIZE), seed, -3, 3)}


def roundings(program: Program) -> list[str]:
    """What is rounded to bytes after a sum of them."""
    return [n.scope.text() for n in program.nodes if isinstance(n, Node) and "round(" in n.scope.text() and len(list(reads(n.scope.body))) > 1]


def prepared(model: onnx.ModelProto) -> Program:
    return prepare(load(model), in_bytes=True)


def test_a_sum_is_moved_by_an_integer_and_scaled_once() -> None:
    """b/a is the bias of the model, beside what its zero point adds."""
    program = prepared(network())
    found = roundings(program)
    assert len(found) == 2 and all(" / " not in text and text.count("*") == 1 for text in found)
    (added,) = (v for name, v in program.weights.items() if name.endswith("added") and "c1" in name)
    model = {t.name: onnx.numpy_helper.to_array(t) for t in network().graph.initializer}
    assert np.array_equal(added, model["b1"])
    (factor,) = (v for name, v in program.weights.items() if name.endswith("factor") and "c1" in name)
    assert np.allclose(factor, model["sy"] * model["s1"] / model["sz"], rtol=2.0**-22, atol=0)


@pytest.mark.parametrize(
    ("changed", "left"), [({"biases": (1.0, 0.37)}, 1), ({"biases": (0.37, 0.37)}, 0), ({"read": "c1"}, 1), ({"biases": (1.0, 40.0)}, 2)]
)
def test_what_is_no_integer_or_read_elsewhere_stays(changed: dict[str, object], left: int) -> None:
    """A bias that is no integer of the sum; a sum that is wanted as a float, too. A multiple of the products of scales is one."""
    found = roundings(prepared(network(**changed)))  # type: ignore[arg-type]
    assert sum(" / " not in text for text in found) == left


def test_numbers_are_those_of_the_expressions_before() -> None:
    """Up to a step, where float32 rounds next to the middle of two integers."""
    model = network()
    program = as_bytes(load(model))
    after = integer_sums(program)
    assert roundings(after) != roundings(program)
    for seed in range(3):
        before, found = (interpret(p, given(seed), None)["qc1"] for p in (program, after))  # type: ignore[arg-type]
        apart = np.abs(before - found) / np.float32(0.0583)
        assert np.rint(apart).max() <= 1 and (apart > 0.5).mean() < 1e-3
        assert np.abs(before).max() > 1


def test_a_sum_that_is_not_of_bytes_or_scaled_by_nothing_is_none() -> None:
    """Products of floats that are rounded, and a channel whose weights and scale are 0."""
    model = network()
    floats = [n for n in model.graph.node if n.output[0] != "dw0"]
    plain = onnx.ModelProto.FromString(model.SerializeToString())
    del plain.graph.node[:]
    plain.graph.node.extend(floats)
    weights = np.random.default_rng(1).standard_normal((CHANNELS, 8, 3, 3)).astype(np.float32)
    plain.graph.initializer.append(onnx.numpy_helper.from_array(weights, "dw0"))
    assert sum(" / " not in text for text in roundings(prepared(plain))) == 1
    for t in model.graph.initializer:
        if t.name in ("s1", "t1"):
            t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(t) * (np.arange(CHANNELS) > 0).astype(np.float32), t.name))
    program = prepared(model)
    found, wanted = interpret(program, given(0), None), reference(model, given(0))  # type: ignore[arg-type]
    assert np.abs(found["qc1"] - wanted["qc1"]).max() <= 0.0584


@pytest.mark.skipif(bool(dnnl.available() or dnnl.limit() or U8I8.missing(machine.cpu_features())), reason="no products of bytes on this processor")
def test_integers_are_those_of_onnx_runtime_bit_for_bit() -> None:
    """Between layers, too: a step in the first would be seen behind the second."""
    model = network()
    _, plan, _ = planned(prepared(model))
    assert sum(isinstance(k, Contraction) and k.arithmetic.whole and [p.kind for p in k.post] == ["add", "mul", "u8"] for k in plan.kernels) == 2
    program = Executable(plan, 1)
    for seed in range(60):
        assert np.array_equal(program(given(seed))["qc1"], reference(model, given(seed))["qc1"])
    program.release()
