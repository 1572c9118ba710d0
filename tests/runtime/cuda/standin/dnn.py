"""cuDNN's graphs on host memory: convolutions, sums and relu of tensors that are described by their extents and strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np

from tests.runtime.cuda.standin.card import Card

Knob = Enum("Knob", ["TILE_SIZE", "STAGES"])
Note = Enum("Note", ["TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC"])
Heuristic = Enum("Heuristic", ["A", "FALLBACK"])
Kind = IntEnum("Kind", ["FLOAT"])
PLANS: tuple[tuple[int, dict[Knob, int], float, frozenset[Note]], ...] = (
    (25, {}, 0.1, frozenset({Note.NONDETERMINISTIC})), (38, {Knob.TILE_SIZE: 8}, 0.5, frozenset({Note.TENSOR_CORE})),
    (70, {Knob.TILE_SIZE: 12, Knob.STAGES: 1}, 3.0, frozenset()), (70, {Knob.TILE_SIZE: 8}, 1.0, frozenset()), (0, {}, 9.0, frozenset()),
)  # fmt: skip
"""Engine, settings, cost, and the notes on it."""


class Tensor:
    """A tensor of a graph, and how it is computed."""

    def __init__(self, dim: Sequence[int] = (), stride: Sequence[int] = (), compute: Callable[[Mapping[Any, np.ndarray]], np.ndarray] | None = None):
        self.dim, self.stride, self.compute, self.output = tuple(dim), tuple(stride), compute, False

    def set_output(self, output: bool) -> Tensor:
        self.output = output
        return self

    def set_data_type(self, kind: Kind) -> Tensor:
        return self

    def set_dim(self, dim: Sequence[int]) -> Tensor:
        self.dim = tuple(dim)
        return self

    def set_stride(self, stride: Sequence[int]) -> Tensor:
        self.stride = tuple(stride)
        return self

    def value(self, given: Mapping[Any, np.ndarray]) -> np.ndarray:
        return self.compute(given) if self.compute else given[self]


class Graph:
    """A graph of one convolution and what follows it."""

    def __init__(self, card: Card, handle: Any = None, **types: Any) -> None:
        self.card, self.handle = card, handle
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.added: list[tuple[int, ...]] = []
        self.excluded: set[Note] = set()
        self.planned = False
        self.built: list[int] = []

    def tensor(self, name: str, dim: Sequence[int], stride: Sequence[int], data_type: Kind) -> Tensor:
        assert len(dim) == len(stride) >= 4 and all(s > 0 for s in stride), "a tensor has at least two spatial dimensions and positive strides"
        assert name != "w" or any(dense(dim, stride, order) for order in ((0, 1, *range(2, len(dim))), (0, *range(2, len(dim)), 1))), (
            f"filters {dim} in steps {stride} are taken, and something else is computed")
        assert name != "x" or dim[0] == 1 or stride[0] == max(s for n, s in zip(dim, stride, strict=True) if n > 1), "images inside channels"
        self.inputs.append(Tensor(dim, stride))
        return self.inputs[-1]

    def conv_fprop(self, image: Tensor, weight: Tensor, **g: Any) -> Tensor:
        out = Tensor(compute=lambda given: forward(image.value(given), weight.value(given), g, out.dim))
        self.outputs.append(out)
        return out

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **g: Any) -> Tensor:
        out = Tensor(compute=lambda given: backward(loss.value(given), filter.value(given), g, out.dim))
        self.outputs.append(out)
        return out

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        self.added.append(b.dim)
        return self._after(a, lambda given: a.value(given) + b.value(given))

    def relu(self, input: Tensor) -> Tensor:
        return self._after(input, lambda given: np.maximum(input.value(given), 0))

    def _after(self, before: Tensor, compute: Callable[[Mapping[Any, np.ndarray]], np.ndarray]) -> Tensor:
        root = self.outputs[0]
        out = Tensor(compute=compute)
        out.set_dim = lambda dim: (root.set_dim(dim), Tensor.set_dim(out, dim))[1]
        self.outputs.append(out)
        return out

    def validate(self) -> None:
        out = self.outputs[-1]
        assert out.output and out.dim and out.stride
        assert out.dim[0] == 1 or out.stride[0] == max(s for n, s in zip(out.dim, out.stride, strict=True) if n > 1), "images inside channels"

    def build_operation_graph(self) -> None:
        whole = [n for n, dim in enumerate(self.added) if dim == self.outputs[-1].dim]
        if len(self.outputs) > 1 and (len(self.added) - len(whole) != 1 or whole not in ([], [0])):
            raise RuntimeError("no engine fuses anything without a bias, or a whole tensor after one")

    def create_execution_plans(self, modes: Sequence[Heuristic]) -> None:
        assert not self.planned, "listed twice"
        self.planned = True
        self.card.log.append("listed")

    def deselect_numeric_notes(self, notes: Sequence[Note]) -> None:
        self.excluded |= set(notes)

    def get_execution_plan_count(self) -> int:
        return len(PLANS)

    def build_plan_at_index(self, n: int) -> None:
        assert self.planned
        if PLANS[n][3] & self.excluded:
            raise RuntimeError("excluded")
        assert n not in self.built, "built twice"
        self.built.append(n)
        self.card.log.append(f"built {PLANS[n][0]}")

    def get_engine_and_knobs_at_index(self, n: int) -> tuple[int, dict[Knob, int]]:
        return PLANS[n][:2]

    def get_workspace_size_plan_at_index(self, n: int) -> int:
        return 1000 * n

    def execute_plan_at_index(self, pointers: Mapping[Tensor, int], workspace: int, index: int, handle: Any) -> None:
        assert handle is self.handle and self.handle["stream"] == 4096 and index in self.built
        self.card.bytes_at(workspace, self.get_workspace_size_plan_at_index(index))
        out = self.outputs[-1]
        assert all(p % 16 == 0 for p in pointers.values()), "cuDNN takes every tensor to start at a multiple of 16 bytes"
        given = {t: self.card.floats(pointers[t], t.dim, t.stride) for t in self.inputs}
        target = self.card.floats(pointers[out], out.dim, out.stride)

        def work() -> None:
            target[...] = out.value(given)

        self.card.submit(f"convolution {PLANS[index][0]}", work, PLANS[index][2])


def dense(dim: Sequence[int], stride: Sequence[int], order: Sequence[int]) -> bool:
    """The dimensions lie behind each other in this order, outermost first, those of one element anywhere."""
    step = 1
    for d in reversed(order):
        if dim[d] > 1 and stride[d] != step:
            return False
        step *= dim[d]
    return True


def forward(x: np.ndarray, w: np.ndarray, g: Mapping[str, Any], dim: tuple[int, ...]) -> np.ndarray:
    """Σ over channels and taps of the padded image; the result has exactly the extents that the paddings give."""
    pads = [(0, 0), (0, 0), *zip(g["pre_padding"], g["post_padding"], strict=True)]
    x, groups, taps = np.pad(x, pads), x.shape[1] // w.shape[1], w.shape[2:]
    reach = [(t - 1) * d + 1 for t, d in zip(taps, g["dilation"], strict=True)]
    sizes = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, g["stride"], strict=True)]
    assert dim == (x.shape[0], w.shape[0], *sizes), "the paddings give another size"
    out = np.zeros(dim, np.float32)
    f, c = w.shape[0] // groups, w.shape[1]
    for k, tap in product(range(groups), product(*map(range, taps))):
        starts = [t * d for t, d in zip(tap, g["dilation"], strict=True)]
        spans = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, sizes, g["stride"], strict=True)]
        picked: Any = (slice(None), slice(k * c, (k + 1) * c), *spans)
        out[:, k * f : (k + 1) * f] += np.einsum("nc...,fc->nf...", x[picked], w[(slice(k * f, (k + 1) * f), slice(None), *tap)])
    return out


def backward(loss: np.ndarray, w: np.ndarray, g: Mapping[str, Any], dim: tuple[int, ...]) -> np.ndarray:
    """The transpose of `forward` as a linear map of the image, of extents `dim`, to the loss."""
    groups = dim[1] // w.shape[1]
    k, c = w.shape[0] // groups, w.shape[1]
    padded = [n + a + b for n, a, b in zip(dim[2:], g["pre_padding"], g["post_padding"], strict=True)]
    reach = [(t - 1) * d + 1 for t, d in zip(w.shape[2:], g["dilation"], strict=True)]
    assert loss.shape[2:] == tuple((n - r) // s + 1 for n, r, s in zip(padded, reach, g["stride"], strict=True)), "not the sizes of the forward pass"
    out = np.zeros((*dim[:2], *padded), np.float32)
    for group, tap in product(range(groups), product(*map(range, w.shape[2:]))):
        spans = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, g["dilation"], loss.shape[2:], g["stride"], strict=True)]
        part = np.einsum("nk...,kc->nc...", loss[:, group * k : (group + 1) * k], w[(slice(group * k, (group + 1) * k), slice(None), *tap)])
        out[(slice(None), slice(group * c, (group + 1) * c), *spans)] += part
    inside: Any = (slice(None), slice(None), *(slice(a, a + n) for a, n in zip(g["pre_padding"], dim[2:], strict=True)))
    return out[inside]


def module(card: Card) -> ModuleType:
    made = ModuleType("cudnn")
    made.pygraph = lambda **given: Graph(card, **given)
    made.data_type, made.heur_mode, made.numerical_note, made.knob_type = Kind, Heuristic, Note, Knob
    made.create_handle, made.backend_version = lambda: {"stream": 0}, lambda: 91900 + card.versions
    made.destroy_handle = lambda handle: None
    made.set_stream = lambda handle, stream: handle.update(stream=stream)
    return made
