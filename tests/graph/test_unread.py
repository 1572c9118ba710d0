"""What nobody reads is not computed: places that all readers leave out, of one row, a crop, or every second place; what is given out stays whole."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Tensor
from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.places.unread import drop_unread
from einnet.graph.passes.simplify import simplify
from einnet.graph.program import Held, Node, Opaque, Program
from tests.graph.cases import build, node, run_opaque, values


def same(a: Program, b: Program, inputs: dict[str, np.ndarray]) -> None:
    first, second = interpret(a, inputs, run_opaque), interpret(b, inputs, run_opaque)
    for name, want in first.items():
        np.testing.assert_allclose(second[name], want, rtol=1e-9, atol=1e-9)


def of_texts(*texts: str, **weights: np.ndarray) -> Program:
    """A program of expressions t0, t1, ..., each of which reads those before it, the input x and weights; the last is given out."""
    scopes = [parse(text) for text in texts]
    inputs = {t.name: t for s in scopes for t in s.read if t.name.startswith("x")}
    nodes = tuple(Node(Tensor(f"t{k}", scope.shape), scope) for k, scope in enumerate(scopes))
    return Program(tuple(inputs.values()), nodes, (("y", nodes[-1].output.name),), weights)


def shapes(program: Program) -> list[tuple[int, ...]]:
    return [n.output.shape for n in program.nodes if isinstance(n, Node)]


def held(texts: tuple[str, ...], shape: tuple[int, ...]) -> Program:
    """The program after the pass, whose first tensor has that shape; it computes the same."""
    before = of_texts(*texts)
    after = drop_unread(before)
    inputs = {t.name: values(t.shape, 3) for t in before.inputs}
    same(before, after, inputs)
    assert shapes(after)[0] == shape
    assert drop_unread(after).nodes == after.nodes
    return after


X = "x : f32[4,12]\n"
T = "t0 : f32[4,12]\n"
SQUARE = X + "L[i<4,j<12] x[i,j]*x[i,j]"


@pytest.mark.parametrize(
    ("reader", "shape"),
    [
        ("L[j<12] t0[0,j]", (1, 12)),
        ("L[j<12] t0[3,j]", (1, 12)),
        ("L[i<4,j<5] t0[i,j + 3]", (4, 5)),
        ("L[i<4,j<6] t0[i,2*j]", (4, 6)),
        ("L[i<4,j<6] t0[i,2*j + 1]", (4, 6)),
        ("L[i<4,j<4] t0[i,11 - 3*j]", (4, 4)),
        ("L[i<4,j<4] t0[i,3*j - 2]", (4, 3)),
        ("L[i<4,j<3] t0[i,5*(j//2) + 1]", (4, 2)),
        ("L[i<4,j<2] t0[i,6] + t0[i,4*j]", (4, 4)),
        ("L[i<4,j<2] t0[i,8*j] + t0[i,2*j + 8]", (4, 6)),
        ("L[i<4,j<9] t0[i,3*j/2 - 3]|5", (4, 10)),
        ("L[i<4,j<4] t0[i,j] + t0[i,j + 2]", (4, 6)),
        ("L[i<4,j<2] t0[i,4*j + 1] + t0[i,4*j + 3]", (4, 4)),
        ("L[i<4,j<2] t0[i,4*j] + t0[i,6]", (4, 4)),
        ("L[i<4,j<7] Σ[k<3] t0[i,j + k - 1]", (4, 8)),
        ("L[i<4,j<5] Σ[k<3] t0[i,2*j + k - 3]", (4, 8)),
        ("L[i<4,j<4] Σ[k<2] t0[i,4*j + 2*k - 2]", (4, 6)),
        ("L[i<4,j<7] max[k<3] t0[i,j + k - 1]|-inf", (4, 8)),
        ("L[i<4,j<6] t0[i,j/2]|5", (4, 3)),
        ("L[i<4,j<5] t0[i,j + 12]|7", (4, 1)),
        ("L[i<4,j<6] max[r<1] t0[i,2*j + r]", (4, 6)),
        ("L[i<4,j<6] Σ[r<1] t0[i,2*j + 3*r]*val(r + j)", (4, 6)),
        ("L[i<4,j<5] {L[i<4,j<12] exp(t0[i,j])}[i,j]", (4, 5)),
        ("L[j<5] {L[i<4] Σ[j<6] t0[i,j]}[1] + {L[i<4] Σ[j<6] t0[i,j]}[2]*{L[j<12] t0[2,j]}[j]", (2, 6)),
        ("L[i<4,j<8] select(5 - j>=0, t0[i,j], 1)", (4, 6)),
        ("L[i<4,j<8] select(j - 5>=0, t0[i,j], 1)", (4, 3)),
        ("L[i<4,j<8] select(2*j - 5>=0 & 6 - j>=0, t0[i,j], 1)", (4, 4)),
        ("L[i<4,j<8] select(5 - 2*j>=0, 1, t0[i,j])", (4, 5)),
        ("L[i<4,j<8] select(j - 5==0, t0[i,j], t0[i,j + 1])", (4, 8)),
        ("L[i<4,j<8] select(2*j - 10==0, t0[i,j], t0[i,2])", (4, 2)),
        ("L[i<4,j<8] select(j - 5>=0 & i - 1>=0, 1, t0[i,j])", (4, 8)),
        ("L[i<4,j<8] select(j - 9>=0, t0[i,j], t0[i,1])", (4, 1)),
        ("L[i<4,j<8] select(j - 8>=0, t0[i,j], t0[i,1])", (4, 1)),
        ("L[i<4,j<12] select(i - j>=0, t0[i,j], 0)", (4, 4)),
        ("L[i<4,j<8] select(5 - j>=0, {L[j<12] {L[i<4,j<12] t0[i,j]*t0[i,j]}[2,j]}[j], 1)", (1, 6)),
        ("L[j<5] {L[i<4] {L[i<4,j<12] t0[i,j]*t0[i,j]}[i,3]}[1]", (1, 1)),
    ],
)
def test_the_places_that_are_read_are_there(reader: str, shape: tuple[int, ...]) -> None:
    held((SQUARE, T + reader), shape)


@pytest.mark.parametrize(
    "reader",
    [
        "L[i<4,j<12] t0[i,j]",
        "L[i<4,j<11] t0[i,j + 1]",
        "L[i<4] t0[i,0] + t0[i,11] + t0[i,4]",
        "L[i<4,j<12] select(3 - j>=0, t0[i,j + 8], t0[i,j - 4])",
        "L[i<4] Σ[j<12] t0[i,j]",
    ],
)
def test_what_is_read_or_nearly_so_stays(reader: str) -> None:
    before = of_texts(SQUARE, T + reader)
    assert drop_unread(before) is before


@pytest.mark.parametrize(
    ("reader", "left", "first"),
    [
        ("L[i<4,j<12] t2[i,j + 12]", "L[i<4,j<12] t1[i,j]", set()),
        ("L[i<4,j<8] t2[i,j]", "L[i<4,j<8] {L[i<4,j<8] 2}[i,j]", set()),
        ("L[i<4,j<3] t2[i,j + 9]", "L[i<4,j<3] {L[i<4,9<=j<12] t0[i,j-9]}[i,j+9]", {(4, 3)}),
    ],
)
def test_choices_that_are_known_are_made(reader: str, left: str, first: set[tuple[int, ...]]) -> None:
    """A part of what was put together is that part alone; the others are not read."""
    other = "x : f32[4,12]\nL[i<4,j<12] exp(x[i,j])"
    joined = "t1 : f32[4,12]\nL[i<4,j<24] select(j - 12>=0, t1[i,j - 12], {L[i<4,j<12] select(j - 8>=0, t0[i,j], 2)}[i,j])"
    before = of_texts(SQUARE, other, T + joined, "t2 : f32[4,24]\n" + reader)
    after = drop_unread(before)
    same(before, after, {"x": values((4, 12), 3)})
    third = list(after.expression_nodes())[2].scope
    assert third.text().splitlines()[-1] == left
    assert {t.shape for t in third.read if t.name == "t0"} == first


def test_an_eighth_is_worth_it_and_less_is_not() -> None:
    for width, read in ((8, 7), (9, 9)):
        square = f"x : f32[4,{width}]\nL[i<4,j<{width}] x[i,j]*x[i,j]"
        after = drop_unread(of_texts(square, f"t0 : f32[4,{width}]\nL[i<4,j<{width - 1}] t0[i,j]"))
        assert shapes(after)[0] == (4, read)


def test_parts_hold_no_value_of_the_model() -> None:
    before = replace(of_texts(SQUARE, T + "L[j<12] t0[1,j]"), holds={"t0": Held("squares", (0, 1)), "t1": Held("row", (0,))})
    assert set(drop_unread(before).holds) == {"t1"}


def test_what_is_before_it_follows() -> None:
    """A softmax of rows of which one is read: two steps, and each reads one row."""
    scaled = T + "L[i<4,j<12] exp(t0[i,j] - {L[i<4] max[j<12] t0[i,j]}[i])"
    normal = "t1 : f32[4,12]\nL[i<4,j<12] t1[i,j]/{L[i<4] Σ[j<12] t1[i,j]}[i]"
    after = held((SQUARE, scaled, normal, "t2 : f32[4,12]\nL[j<12] t2[2,j]"), (1, 12))
    assert shapes(after) == [(1, 12), (1, 12), (1, 12), (12,)]


def test_what_is_given_out_or_read_by_an_opaque_node_stays() -> None:
    last = T + "L[j<12] t0[1,j]"
    before = of_texts(SQUARE, last)
    given_out = Program(before.inputs, before.nodes, (*before.outputs, ("z", "t0")))
    assert drop_unread(given_out) is given_out
    other = Opaque((), ("t0",), b"")
    read_too = Program(before.inputs, (*before.nodes, other), before.outputs)
    assert drop_unread(read_too) is read_too


def row_of_attention() -> tuple[Program, dict[str, np.ndarray]]:
    """One row of attention, behind a layer and a normalisation."""
    kept = {"i0": np.array([0]), "i1": np.array([1]), "w": values((8, 8), 1), "s": values((8,), 2), "b": values((8,), 3)}
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["x", "t"], ["c"]),
        node("Softmax", ["c"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["o"]),
        node("MatMul", ["o", "w"], ["h"]),
        node("LayerNormalization", ["h", "s", "b"], ["n"], axis=-1),
        node("Slice", ["n", "i0", "i1", "i1"], ["f"]),
        node("Squeeze", ["f", "i1"], ["y"]),
    ]
    inputs = {"x": values((2, 6, 8), 0)}
    return load(build(nodes, inputs, ("y",), kept)), inputs


def test_one_row_of_attention_is_computed() -> None:
    before, inputs = row_of_attention()
    after = simplify(before)
    same(before, after, inputs)
    assert max(prod(shape) for shape in shapes(after) if shape[-2:] != (8, 6)) == 2 * 8


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(["slice", "pad", "conv", "pool", "relu", "softmax", "reverse", "double"]), min_size=2, max_size=7),
    st.randoms(use_true_random=False),
)
def test_random_lines_compute_the_same(kinds: list[str], random: Random) -> None:
    """Slices at any step, padding, windows and normalisations one after another."""
    length, kept, nodes, name = 24, {"axis": np.array([2])}, list[onnx.NodeProto](), "x"
    for n, kind in enumerate(kinds):
        new = f"v{n}"
        if kind == "slice":
            lo = random.randrange(length)
            step = random.choice([1, 1, 2, 3])
            hi = random.randrange(lo + 1, length + 1)
            kept |= {f"lo{n}": np.array([lo]), f"hi{n}": np.array([hi]), f"by{n}": np.array([step])}
            nodes.append(node("Slice", [name, f"lo{n}", f"hi{n}", "axis", f"by{n}"], [new]))
            length = len(range(lo, hi, step))
        elif kind == "reverse":
            kept |= {f"lo{n}": np.array([-1]), f"hi{n}": np.array([-1000]), f"by{n}": np.array([-1])}
            nodes.append(node("Slice", [name, f"lo{n}", f"hi{n}", "axis", f"by{n}"], [new]))
        elif kind == "pad":
            kept |= {f"pads{n}": np.array([0, 0, 2, 0, 0, 1]), f"by{n}": np.array(1.5, np.float32)}
            nodes.append(node("Pad", [name, f"pads{n}", f"by{n}"], [new]))
            length += 3
        elif kind == "conv":
            kept |= {f"w{n}": values((3, 3, 3), n)}
            nodes.append(node("Conv", [name, f"w{n}"], [new], pads=[1, 1]))
        elif kind == "pool":
            nodes.append(node("MaxPool", [name], [new], kernel_shape=[3], strides=[2], pads=[1, 1]))
            length = (length - 1) // 2 + 1
        elif kind == "double":
            nodes.append(node("Concat", [name, name], [new], axis=2))
            length *= 2
        else:
            nodes.append(node("Relu" if kind == "relu" else "Softmax", [name], [new], **({} if kind == "relu" else {"axis": -1})))
        name = new
    inputs = {"x": values((1, 3, 24), 7)}
    program = load(build(nodes, inputs, (name,), kept))
    after = drop_unread(program)
    same(program, after, inputs)
    same(program, simplify(program), inputs)
    assert sum(map(prod, shapes(after))) <= sum(map(prod, shapes(program)))
