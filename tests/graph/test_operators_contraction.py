"""Convolutions and matrix products against ONNX Runtime over their attributes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from einnet.expr.nodes import reads
from tests.graph.cases import check, node, values

CONV: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 4, 9), (6, 4, 3), {}),
    ((1, 4, 9), (6, 2, 3), {"group": 2, "pads": [2, 1], "strides": [2], "dilations": [2]}),
    ((1, 3, 8, 7), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 8, 7), (5, 3, 1, 1), {"strides": [2, 2]}),
    ((1, 3, 9, 9), (5, 3, 3, 2), {"pads": [2, 0, 1, 3], "strides": [2, 1], "dilations": [1, 2]}),
    ((1, 4, 6, 6), (8, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 4, 6, 6), (4, 1, 3, 3), {"group": 4, "pads": [0, 1, 2, 0], "strides": [1, 2]}),
    ((1, 6, 7, 5), (4, 3, 2, 3), {"group": 2, "dilations": [2, 1]}),
    *[((1, 2, 7, 8), (3, 2, 3, 4), {"auto_pad": mode, "strides": [s, s]}) for mode, s in product(("SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2))],
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 1), {"pads": [1, 0, 0, 0, 1, 2], "strides": [1, 2, 1], "dilations": [2, 1, 1]}),
    ((1, 4, 4, 5, 3), (4, 2, 2, 2, 2), {"group": 2, "auto_pad": "SAME_UPPER"}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x", "w", "attributes"), CONV)
def test_conv(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], bias: bool) -> None:
    constants = {"w": values(w, 1)} | ({"b": values(w[:1], 2)} if bias else {})
    program = check([node("Conv", ["x", *constants], **attributes)], {"x": values(x)}, constants)
    assert len(program.nodes) == 1 + bias


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 5), (3, 4, 3), {"strides": [2], "output_padding": [1], "pads": [1, 0]}),
    ((2, 3, 4, 5), (3, 4, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 3, 4, 5), (3, 2, 3, 2), {}),
    ((1, 3, 4, 4), (3, 2, 3, 3), {"strides": [3, 2], "pads": [0, 2, 1, 0], "output_padding": [2, 1], "dilations": [1, 2]}),
    ((1, 4, 4, 4), (4, 3, 3, 3), {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((1, 4, 3, 3), (4, 1, 2, 2), {"group": 4, "strides": [2, 2]}),
    ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [6, 8]}),
    ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [6, 8], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [6, 8], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 3, 4), (2, 3, 4, 3), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 4), (2, 3, 4, 3), {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "VALID"}),
    ((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), {"strides": [2, 1, 2], "pads": [0, 1, 1, 1, 0, 0]}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSED)
def test_conv_transpose(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], bias: bool) -> None:
    features = w[1] * attributes.get("group", 1)
    constants = {"w": values(w, 1)} | ({"b": values((features,), 2)} if bias else {})
    check([node("ConvTranspose", ["x", *constants], **attributes)], {"x": values(x)}, constants)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((1, 1), (1, 1)),
    ],
)  # fmt: skip
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check([node("MatMul", ["a", "b"])], {"a": values(a), "b": values(b, 1)})


@pytest.mark.parametrize("shape", [None, (3, 5), (5,), (1, 5), (3, 1), ()])
@pytest.mark.parametrize(("turned", "flipped", "alpha", "beta"), [(0, 0, 1.0, 1.0), (1, 0, 0.5, 1.0), (0, 1, 1.0, 0.25), (1, 1, 2.0, 0.0)])
def test_gemm(turned: int, flipped: int, alpha: float, beta: float, shape: tuple[int, ...] | None) -> None:
    inputs = {"a": values((4, 3) if turned else (3, 4)), "b": values((5, 4) if flipped else (4, 5), 1)}
    if shape is not None:
        inputs["c"] = values(shape, 2)
    check([node("Gemm", list(inputs), transA=turned, transB=flipped, alpha=alpha, beta=beta)], inputs)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]), ("ij,jk", [(3, 4), (4, 5)]), ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("i,j->ij", [(3,), (4,)]), ("ij->ji", [(3, 4)]), ("ij->", [(3, 4)]), ("ii->i", [(3, 3)]),
        ("bij,bj->bi", [(2, 3, 4), (2, 4)]), ("abc,cd->abd", [(2, 3, 4), (4, 5)]), ("ij,ij->", [(3, 4), (3, 4)]), ("Ai,iB->AB", [(2, 3), (3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("bi,oij,bj->bo", [(2, 3), (4, 3, 5), (2, 5)]), ("ai,bi,ci->abc", [(2, 3), (4, 3), (5, 3)]),
        ("...i,ij,kj,kl->l...", [(2, 3), (3, 4), (5, 4), (5, 2)]), ("i,j,k->", [(2,), (3,), (4,)]), ("ii,ij,jj->i", [(3, 3), (3, 4), (4, 4)]),
    ],
)  # fmt: skip
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = {name: values(shape, n) for n, (name, shape) in enumerate(zip("abcd", shapes))}
    check([node("Einsum", list(inputs), equation=equation)], inputs)


def test_einsum_of_three_multiplies_two_at_a_time() -> None:
    program = check([node("Einsum", ["a", "b", "c"], equation="ij,jk,kl->il")], {n: values((3, 3), k) for k, n in enumerate("abc")})
    assert [len(list(reads(n.scope.body))) for n in program.expression_nodes()] == [2, 2]


def test_group_index_is_floor_of_feature() -> None:
    program = check([node("Conv", ["x", "w"], group=2)], {"x": values((1, 4, 5, 5))}, {"w": values((6, 2, 3, 3))})
    (only,) = program.expression_nodes()
    assert only.scope.text() == "L[n<1,f<6,h<3,w<3] Σ[c<2,r<3,s<3] x[n,2*(f//3)+c,h+r,w+s]*w[f,c,r,s]"
    assert np.array_equal(program.weights["w"], values((6, 2, 3, 3)))
