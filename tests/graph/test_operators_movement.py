"""Data movement, slicing, padding, resizing and constant masks against ONNX Runtime."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pytest

from einnet.expr.index import Index, value, var
from einnet.expr.nodes import Read, reads
from einnet.graph.cuts import levels
from einnet.graph.onnx.importer import load
from einnet.graph.operators.interpolation import ceiled
from einnet.graph.program import Node
from tests.graph.cases import build, check, ints, node, values

X = values((2, 3, 4, 5))


@pytest.mark.parametrize("perm", [None, (0, 2, 3, 1), (3, 1, 0, 2), (0, 1, 3, 2)])
def test_transpose(perm: tuple[int, ...] | None) -> None:
    check([node("Transpose", ["x"], **({"perm": perm} if perm else {}))], {"x": X})


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((2, 3, 4, 5), (2, 60)), ((2, 3, 4, 5), (6, 20)), ((2, 60), (2, 3, 4, 5)), ((6, 4), (4, 6)), ((2, 3, 4), (-1,)), ((2, 3, 4), (0, -1)),
        ((4, 6, 5), (2, 2, 3, 2, 5)), ((1, 12, 1), (3, 1, 4)), ((6, 10), (4, 15)), ((1,), ()), ((8, 9), (6, 12)),
    ],
)  # fmt: skip
def test_reshape(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    check([node("Reshape", ["x", "s"])], {"x": values(source)}, {"s": ints(*target)})


def test_reshape_forms_are_simple() -> None:
    def text(source: tuple[int, ...], target: tuple[int, ...]) -> str:
        (only,) = check([node("Reshape", ["x", "s"])], {"x": values(source)}, {"s": ints(*target)}).expression_nodes()
        return only.scope.text()

    assert text((2, 3, 4, 5), (2, 60)) == "L[m<2,n<60] x[m,n//20,n//5-4*(n//20),n%5]"
    assert text((2, 60), (2, 3, 4, 5)) == "L[n<2,c<3,h<4,w<5] x[n,20*c+5*h+w]"
    assert text((2, 512, 1, 1), (2, 512)) == "L[m<2,n<512] x[m,n,0,0]"


@pytest.mark.parametrize("axis", [0, 1, 2, -1, 4])
def test_flatten(axis: int) -> None:
    check([node("Flatten", ["x"], axis=axis)], {"x": X})


def test_squeeze_and_unsqueeze() -> None:
    x = values((1, 3, 1, 4))
    check([node("Squeeze", ["x"])], {"x": x})
    check([node("Squeeze", ["x", "a"])], {"x": x}, {"a": ints(-2)})
    check([node("Squeeze", ["x"], axes=[0, 2])], {"x": x}, opset=11)
    check([node("Unsqueeze", ["x", "a"])], {"x": x}, {"a": ints(0, -1)})
    check([node("Unsqueeze", ["x"], axes=[1, 3])], {"x": x}, opset=11)


@pytest.mark.parametrize(("source", "target"), [((3, 1), (2, 3, 4)), ((3,), (3,)), ((1, 4), (3, 1)), ((1,), (2, 2))])
def test_expand(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    check([node("Expand", ["x", "s"])], {"x": values(source)}, {"s": ints(*target)})


def test_tile() -> None:
    check([node("Tile", ["x", "r"])], {"x": X}, {"r": ints(2, 1, 3, 1)})


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    check([node("DepthToSpace", ["x"], blocksize=2, mode=mode)], {"x": values((1, 12, 2, 3))})
    check([node("SpaceToDepth", ["x"], blocksize=2)], {"x": values((2, 3, 4, 6))})


SLICES: list[tuple[list[int], list[int], list[int] | None, list[int] | None]] = [
    ([1], [3], [2], None), ([0, 1], [2, 100], [1, 3], [1, 2]), ([-1], [-100], [3], [-1]), ([4, 3], [0, -(2**40)], [3, 2], [-2, -1]),
    ([-3], [-1], [-1], None), ([0, 1, 2], [1, 3, 4], None, None), ([-100], [100], [1], [2]),
]  # fmt: skip


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), SLICES)
def test_slice(starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None) -> None:
    held = {"s": ints(*starts), "e": ints(*ends)} | ({"a": ints(*axes)} if axes else {}) | ({"t": ints(*steps)} if steps else {})
    check([node("Slice", ["x", "s", "e", "a" if axes else "", "t" if steps else ""])], {"x": X}, held)


def test_slice_by_attributes() -> None:
    check([node("Slice", ["x"], starts=[1, -2], ends=[3, 10], axes=[2, 3])], {"x": X}, opset=9)


def test_split() -> None:
    check([node("Split", ["x"], ["a", "b"], axis=2)], {"x": X}, outputs=("a", "b"), opset=11)
    check([node("Split", ["x", "s"], ["a", "b"], axis=-1)], {"x": X}, {"s": ints(1, 4)}, outputs=("a", "b"))
    check([node("Split", ["x"], ["a", "b", "c"], axis=3, num_outputs=3)], {"x": X}, outputs=("a", "b", "c"), opset=18)
    check([node("Split", ["x", "s"], ["a", "b"], axis=-1)], {"x": X}, {"s": ints(1, 4)}, outputs=("b",))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_concat(axis: int, count: int) -> None:
    shapes = [[2, 3, 4] for _ in range(count)]
    for n, shape in enumerate(shapes):
        shape[axis] = n + 1
    inputs = {name: values(shape, n) for n, (name, shape) in enumerate(zip("abc", shapes))}
    check([node("Concat", list(inputs), axis=axis)], inputs)


@pytest.mark.parametrize("count", [16, 17, 40])
def test_many_operands(count: int) -> None:
    inputs = {f"x{n}": values((2, n % 3), n) for n in range(count)}
    check([node("Concat", list(inputs), axis=1)], inputs)
    alike = {name: values((2, 3), n) for n, name in enumerate(inputs)}
    check([node("Max", list(alike))], alike)


@pytest.mark.parametrize(("operator", "attributes"), [("Concat", {"axis": 1}), ("Max", {}), ("Min", {}), ("Sum", {})])
def test_what_has_very_many_operands_is_not_nested_as_deep(operator: str, attributes: dict[str, int]) -> None:
    inputs = {f"x{n}": np.ones((2, 3), np.float32) for n in range(2000)}
    (only,) = load(build([node(operator, list(inputs), **attributes)], inputs)).nodes
    assert isinstance(only, Node)
    assert levels(only.scope.body) < 30
    assert len(reads(only.scope.body)) == 2000


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 0, 1, 2, 0, 0, 2, 1), (0, 1, 0, 3, 0, 0, 2, 0), (0,) * 8])
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    check([node("Pad", ["x", "p"], mode=mode)], {"x": X}, {"p": ints(*pads)}, opset=19)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 0, -1, 0, 0, 0, 1, 0), (0, 0, 2, 1, 0, 0, -1, -2), (0, -1, 0, -2, 0, 0, 0, -1)])
def test_pad_of_what_is_left_where_a_side_is_cut(mode: str, pads: tuple[int, ...]) -> None:
    check([node("Pad", ["x", "p"], mode=mode)], {"x": values((1, 3, 5, 6))}, {"p": ints(*pads)}, opset=19)


def test_pad_values_and_versions() -> None:
    check([node("Pad", ["x", "p", "v"])], {"x": X}, {"p": ints(0, 1, 0, 2, 1, 0, 3, 0), "v": np.array(-1.5, np.float32)})
    check([node("Pad", ["x", "p", "v"])], {"x": X}, {"p": ints(0, -1, 1, 0, 0, 0, -2, 0), "v": np.array(2.0, np.float32)})
    check([node("Pad", ["x", "p", "", "a"])], {"x": X}, {"p": ints(1, 2, 3, 4), "a": ints(-1, 1)}, opset=18)
    check([node("Pad", ["x"], pads=[0, 0, 1, 1, 0, 0, 2, 2], value=0.5)], {"x": X}, opset=10)


def test_gather() -> None:
    check([node("Gather", ["x", "i"], axis=1)], {"x": X}, {"i": np.array(-1, np.int64)})
    check([node("Gather", ["x", "i"], axis=-1)], {"x": X}, {"i": ints(4, 2, 0)})
    check([node("Gather", ["x", "i"], axis=2)], {"x": X}, {"i": np.array([[0, 1, 2], [1, 2, 3]], np.int64)})
    check([node("Gather", ["x", "i"], axis=2)], {"x": X}, {"i": ints(0, 3, 1)})
    check([node("Gather", ["x", "i"], axis=2)], {"x": X, "i": ints(0, 3, 1)})


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, 0, 1, -2])
def test_trilu(upper: int, k: int | None) -> None:
    check([node("Trilu", ["x", *(["k"] if k is not None else [])], upper=upper)], {"x": X}, {} if k is None else {"k": np.array(k, np.int64)})


ROWS, COLUMNS = np.indices((6, 8))
MASKS = {
    "all": np.ones((6, 8), bool), "none": np.zeros((6, 8), bool), "causal": COLUMNS <= ROWS, "strict": COLUMNS > ROWS + 1,
    "band": abs(ROWS - COLUMNS) <= 2, "dilated": (abs(ROWS - COLUMNS) <= 4) & ((ROWS - COLUMNS) % 2 == 0), "anti": ROWS + COLUMNS < 5,
    "row": np.arange(6)[:, None] < 3, "column": np.arange(8) % 3 == 1, "box": (ROWS > 2) & (COLUMNS < 5), "not box": ~((ROWS > 2) & (COLUMNS < 5)),
    "scalar": np.array(True), "batch": (COLUMNS <= ROWS)[None],
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("other", [None, np.array(-np.inf, np.float32), np.array(-1e9, np.float32)])
def test_where(name: str, other: np.ndarray | None) -> None:
    inputs = {"x": values((2, 6, 8))} | ({"y0": values((6, 1), 1)} if other is None else {})
    held: dict[str, np.ndarray] = {"m": MASKS[name]} | ({} if other is None else {"y0": other})
    check([node("Where", ["m", "x", "y0"])], inputs, held)


COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
SIZES = [(6, 8), (7, 5), (2, 3), (3, 4), (1, 1), (9, 20), (5, 2)]


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize_nearest(coordinate: str, rounding: str) -> None:
    for size in SIZES:
        attributes = {"mode": "nearest", "coordinate_transformation_mode": coordinate, "nearest_mode": rounding}
        resize = node("Resize", ["x", "", "", "s"], **attributes)
        fragile = coordinate == "half_pixel_symmetric" and rounding in ("floor", "ceil")  # may be opaque, must be right
        check([resize], {"x": values((1, 2, 3, 4))}, {"s": ints(1, 2, *size)}, opset=19, opaque=None if fragile else False)


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize(("mode", "extra"), [("linear", {}), ("cubic", {}), ("cubic", {"cubic_coeff_a": -0.5, "exclude_outside": 1})])
def test_resize_interpolated(coordinate: str, mode: str, extra: dict[str, Any]) -> None:
    for size in SIZES:
        attributes = {"mode": mode, "coordinate_transformation_mode": coordinate, **extra}
        held = {"s": ints(1, 2, *size)}
        check([node("Resize", ["x", "", "", "s"], **attributes)], {"x": values((1, 2, 3, 4))}, held, opset=19, tolerance=1e-4)


@pytest.mark.parametrize("scale", [2, 3, 4, 7])
@pytest.mark.parametrize("attributes", [{}, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}])
def test_what_is_enlarged_is_read_by_a_quotient(scale: int, attributes: dict[str, str]) -> None:
    """By the standard's defaults, too: nothing is clamped, and a layer behind it can be done before."""
    held = {"k": np.array([1, 1, scale, scale], np.float32)}
    model = build([node("Resize", ["x", "", "k"], mode="nearest", **attributes)], {"x": values((1, 2, 5, 4))}, ("y",), held)
    (resized,) = load(model).nodes
    assert isinstance(resized, Node)
    _, c, h, w = (var(i.name) for i in resized.scope.loops)
    assert isinstance(resized.scope.body, Read)
    assert resized.scope.body.index[1:] == (c, h // scale, w // scale)


@pytest.mark.parametrize("position", [Index((("i", n),), c, d) for n, c, d in ((1, 0, 1), (2, -3, 4), (3, 1, 2), (-5, 7, 3), (0, -1, 6), (4, 2, 8))])
def test_a_ceiling_is_a_floor(position: Index) -> None:
    for i in range(-9, 10):
        exact = sum((Fraction(k * i, position.den) for _, k in position.terms), Fraction(position.const, position.den))
        assert value(ceiled(position), {"i": i}) == ceil(exact)


@pytest.mark.parametrize(("mode", "scales"), list(product(["nearest", "linear"], [(2.0, 2.0), (1.5, 3.0), (0.5, 2.5), (0.6, 1.0), (1.3, 0.4)])))
def test_resize_by_scales(mode: str, scales: tuple[float, float]) -> None:
    held = {"k": np.array([1, 1, *scales], np.float32)}
    check([node("Resize", ["x", "", "k"], mode=mode)], {"x": values((1, 2, 5, 4))}, held, opset=13, tolerance=1e-4)
    check([node("Resize", ["x", "k"], mode=mode)], {"x": values((1, 2, 5, 4))}, held, opset=10, tolerance=1e-4)


def test_resize_some_axes() -> None:
    held = {"k": np.array([2.0, 3.0], np.float32)}
    check([node("Resize", ["x", "", "k"], axes=[2, 3], mode="linear")], {"x": values((1, 2, 5, 4))}, held, opset=18, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode: str) -> None:
    held = {"k": np.array([1, 1, 2.0, 3.0], np.float32)}
    check([node("Upsample", ["x", "k"], mode=mode)], {"x": values((1, 2, 3, 4))}, held, opset=9)
    check([node("Upsample", ["x"], mode=mode, scales=[1.0, 1.0, 2.0, 3.0])], {"x": values((1, 2, 3, 4))}, opset=7)


def test_resize_outside_the_language_is_opaque() -> None:
    held = {"s": ints(1, 2, 2, 2), "roi": np.array([0, 0, 0.2, 0.2, 1, 1, 0.8, 0.8], np.float32)}
    crop = node("Resize", ["x", "roi", "", "s"], mode="linear", coordinate_transformation_mode="tf_crop_and_resize")
    check([crop], {"x": values((1, 2, 5, 4))}, held, opset=19, opaque=True)
    check([node("Resize", ["x", "", "", "s"], mode="linear", antialias=1)], {"x": values((1, 2, 5, 4))}, {"s": held["s"]}, opset=19, opaque=True)


def test_copies_leave_no_node() -> None:
    nodes = [node("Identity", ["x"], ["a"]), node("Dropout", ["a"], ["b"]), node("Cast", ["b"], ["c"], to=1), node("Relu", ["c"])]
    program = check(nodes, {"x": X})
    assert [n.scope.text() for n in program.expression_nodes()] == ["L[n<2,c<3,h<4,w<5] relu(x[n,c,h,w])"]
