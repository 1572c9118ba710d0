"""A side of a rule at given shapes, as an expression: every operator by its definition.

Operators without a reduction are written into their reader (an index is put for an index); what reduces is a scope of its own, and so is every
operand of a window with padding, which is 0 outside of its box (-inf for a maximum). Of "same" padding the larger half is before, as in both systems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.corpus.published import ACTIVATIONS, Tree
from tests.corpus.shapes import NoShapes, Setting

Shape = tuple[int, ...]

_LOOPS: dict[int, tuple[str, ...]] = {0: (), 1: ("i",), 2: ("i", "j"), 3: ("i", "j", "k"), 4: ("n", "f", "h", "w")}


@dataclass(frozen=True, slots=True)
class Value:
    """A shape, the text of an element at the texts of indices, and where a concatenation put its seams; `bare` is a tensor."""

    shape: Shape
    at: Callable[[tuple[str, ...]], str]
    seams: tuple[int | None, ...]
    bare: bool = False

    def scope(self) -> str:
        names = _LOOPS[len(self.shape)]
        return f"L[{_ranges(names, self.shape)}] {self.at(names)}"

    def boxed(self) -> Value:
        """The same, 0 outside of its box."""
        if self.bare:
            return self
        text = self.scope()
        return Value(self.shape, lambda index: f"{{{text}}}[{','.join(index)}]", self.seams, True)


def _ranges(names: tuple[str, ...], extents: Shape) -> str:
    return ",".join(f"{n}<{e}" for n, e in zip(names, extents, strict=True))


def require(condition: bool) -> None:
    if not condition:
        raise NoShapes


@dataclass(frozen=True, slots=True)
class Builder:
    """Values of trees for some shapes of the inputs; the setting's stride, padding and activation replace the published ones."""

    shapes: Mapping[str, Shape]
    setting: Setting

    def value(self, tree: Tree) -> Value:
        if isinstance(tree, str):
            return leaf(tree, self.shapes[tree])
        assert isinstance(tree, tuple)
        match tree:
            case ("relu" | "sigmoid" | "tanh", x):
                return self.activated(self.value(x), str(tree[0]))
            case ("transpose", x):
                v = self.value(x)
                return Value(v.shape[::-1], lambda index: v.at(index[::-1]), v.seams[::-1])
            case ("smul", x, scalar):
                v, s = self.value(x), self.value(scalar)
                return Value(v.shape, lambda index: f"{s.at(())}*({v.at(index)})", v.seams)
            case ("ewadd", x, y):
                return self.pairwise("+", self.value(x), self.value(y))
            case ("ewmul", x, y):
                return self.pairwise("*", self.value(x), self.value(y))
            case ("concat", int(axis), x, y):
                return concatenated(axis, self.value(x), self.value(y))
            case ("split_0" | "split_1", int(axis), x):
                return part(self.value(x), axis, tree[0] == "split_1")
            case ("matmul", int(activation), x, y):
                return self.activated(product(self.value(x), self.value(y)), ACTIVATIONS[activation])
            case ("conv2d", _, _, _, int(activation), x, weights):
                return self.activated(self.convolution(self.value(x), self.value(weights)), ACTIVATIONS[activation])
            case ("poolavg" | "poolmax", int(kh), int(kw), _, _, _, x):
                return self.pooled(self.value(x), (kh, kw), str(tree[0]))
            case ("enlarge", int(kh), int(kw), weights):
                return enlarged(self.value(weights).boxed(), (kh, kw))
        raise ValueError(f"unknown operator {tree[0]}")

    def activated(self, v: Value, name: str) -> Value:
        if not name:
            return v
        chosen = self.setting.activation if name == "relu" else name
        return Value(v.shape, lambda index: f"{chosen}({v.at(index)})", v.seams)

    def pairwise(self, sign: str, x: Value, y: Value) -> Value:
        require(x.shape == y.shape)
        return Value(x.shape, lambda index: f"(({x.at(index)}){sign}({y.at(index)}))", tuple(a or b for a, b in zip(x.seams, y.seams, strict=True)))

    def window(self, shape: Shape, kernel: Shape) -> tuple[Shape, list[str], Shape]:
        """Extents of the output, the indices into the input, and how much is padded before."""
        out, index, pads = [], [], []
        for axis, (extent, k) in enumerate(zip(shape, kernel, strict=True)):
            stride = self.setting.stride
            same = self.setting.padding == "same"
            total = max(k - (extent % stride or stride), 0) if same else 0
            require(same or extent >= k)
            out.append(-(-extent // stride) if same else (extent - k) // stride + 1)
            pads.append((total + 1) // 2)
            index.append(f"{stride}*({{{axis}}})+{'rs'[axis]}-{pads[-1]}")
        return tuple(out), index, tuple(pads)

    def convolution(self, x: Value, w: Value) -> Value:
        n, channels, *space = x.shape
        out, each, *kernel = w.shape
        require(channels % each == 0)
        groups = channels // each
        require(out % groups == 0)
        extents, places, pads = self.window(tuple(space), tuple(kernel))
        source = x.boxed() if any(pads) else x
        per = out // groups

        def text(names: tuple[str, ...]) -> str:
            at = [place.format(names[2], names[3]) for place in places]
            channel = "c" if groups == 1 else f"c+{each}*({names[1]})" if per == 1 else f"c+{each}*(({names[1]})//{per})"
            element = source.at((names[0], channel, *at))
            return f"Σ[c<{each},r<{kernel[0]},s<{kernel[1]}] ({element})*({w.at((names[1], 'c', 'r', 's'))})"

        return reduced((n, out, *extents), text, (x.seams[0], w.seams[0], None, None))

    def pooled(self, x: Value, kernel: Shape, name: str) -> Value:
        extents, places, pads = self.window(x.shape[2:], kernel)
        source = x.boxed() if any(pads) else x
        maximum = name == "poolmax"
        fill = "|-inf" if maximum and any(pads) else ""
        scale = "" if maximum else f"1/{kernel[0] * kernel[1]}*"

        def text(names: tuple[str, ...]) -> str:
            element = source.at((names[0], names[1], *(place.format(names[2], names[3]) for place in places)))
            return f"{'max' if maximum else 'Σ'}[r<{kernel[0]},s<{kernel[1]}] {scale}({element}{fill})"

        return reduced((*x.shape[:2], *extents), text, (x.seams[0], x.seams[1], None, None))


def reduced(shape: Shape, text: Callable[[tuple[str, ...]], str], seams: tuple[int | None, ...]) -> Value:
    names = _LOOPS[len(shape)]
    scope = f"L[{_ranges(names, shape)}] {text(names)}"
    return Value(shape, lambda index: f"{{{scope}}}[{','.join(index)}]", seams, True)


def product(x: Value, y: Value) -> Value:
    require(x.shape[1] == y.shape[0])
    return reduced(
        (x.shape[0], y.shape[1]), lambda names: f"Σ[k<{x.shape[1]}] ({x.at((names[0], 'k'))})*({y.at(('k', names[1]))})", (x.seams[0], y.seams[1])
    )


def moved(index: tuple[str, ...], axis: int, by: int) -> tuple[str, ...]:
    return (*index[:axis], f"({index[axis]})+{by}" if by > 0 else f"({index[axis]})-{-by}", *index[axis + 1 :])


def concatenated(axis: int, x: Value, y: Value) -> Value:
    require(len(x.shape) == len(y.shape) > axis)
    require(all(a == b or k == axis for k, (a, b) in enumerate(zip(x.shape, y.shape, strict=True))))
    first = x.shape[axis]
    shape = (*x.shape[:axis], first + y.shape[axis], *x.shape[axis + 1 :])

    def at(index: tuple[str, ...]) -> str:
        return f"select({index[axis]}>={first}, {y.at(moved(index, axis, -first))}, {x.at(index)})"

    return Value(shape, at, tuple(first if k == axis else a or b for k, (a, b) in enumerate(zip(x.seams, y.seams, strict=True))))


def part(x: Value, axis: int, second: bool) -> Value:
    seam = x.seams[axis] if axis < len(x.shape) else None
    require(seam is not None)
    assert seam is not None
    seams = tuple(None if k == axis else s for k, s in enumerate(x.seams))
    extent = x.shape[axis] - seam if second else seam
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    return Value(shape, (lambda index: x.at(moved(index, axis, seam))) if second else x.at, seams)


def enlarged(w: Value, kernel: Shape) -> Value:
    """Weights with zeros all around, up to a kernel."""
    extents = tuple(max(k, e) for k, e in zip(kernel, w.shape[2:], strict=True))
    before = [(e - k) // 2 for e, k in zip(extents, w.shape[2:], strict=True)]
    return Value((*w.shape[:2], *extents), lambda index: w.at(moved(moved(index, 2, -before[0]), 3, -before[1])), w.seams)


def leaf(name: str, shape: Shape) -> Value:
    """An input, or a constant kernel: a single 1 at its centre, or all elements one over their number."""
    seams = (None,) * len(shape)
    kind, *rest = name.split("_")
    if kind == "Cpool":
        return Value(shape, lambda index: f"1/{shape[2] * shape[3]}", seams)
    if kind == "Iconv":
        return Value(shape, lambda index: f"select(({index[2]})=={shape[2] // 2} & ({index[3]})=={shape[3] // 2}, 1, 0)", seams)
    if kind == "Imatmul":
        return Value(shape, lambda index: f"select({index[0]}=={index[1]}, 1, 0)", seams)
    if kind == "Iewmul":
        return Value(shape, lambda index: "1", seams)
    return Value(shape, lambda index: f"X{rest[0]}[{','.join(index)}]", seams, True)
