"""cuBLASLt's calls on host memory: descriptions are read from the addresses that they are given by, as the library reads them."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from types import ModuleType
from typing import Any

import numpy as np

from tests.runtime.cuda.standin.card import Card

LayoutAttribute = IntEnum("LayoutAttribute", {"BATCH_COUNT": 5, "STRIDED_BATCH_OFFSET": 6, "BATCH_MODE": 8})
DescAttribute = IntEnum("DescAttribute", {"TRANSA": 3, "TRANSB": 4, "EPILOGUE": 7, "BIAS_POINTER": 8})
PreferenceAttribute = IntEnum(
    "PreferenceAttribute",
    {"MAX_WORKSPACE_BYTES": 1, "MIN_ALIGNMENT_A_BYTES": 5, "MIN_ALIGNMENT_B_BYTES": 6, "MIN_ALIGNMENT_C_BYTES": 7, "MIN_ALIGNMENT_D_BYTES": 8},
)
Epilogue = IntEnum("Epilogue", {"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6})
TYPES = {
    LayoutAttribute: {5: np.int32, 6: np.int64, 8: np.int32}, DescAttribute: {3: np.int32, 4: np.int32, 7: np.int32, 8: np.uint64},
    PreferenceAttribute: {1: np.uint64, 5: np.uint32, 6: np.uint32, 7: np.uint32, 8: np.uint32},
}  # fmt: skip
KINDS = {0: "f32", 2: "f16", 14: "bf16"}
"""CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF."""

RECORD = 96
COSTS = (3.0, 1.0, 2.0)
"""Of the algorithms that are proposed, in order."""


class Blas:
    """The library's objects by number."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.objects: dict[int, dict[str, Any]] = {}
        self.alignments: dict[int, tuple[int, ...]] = {}

    def make(self, **content: Any) -> int:
        self.objects[len(self.objects) + 1] = {"attributes": {}, **content}
        return len(self.objects)

    def setter(self, names: Any) -> Any:
        def put(thing: int, attribute: int, address: int, nbytes: int) -> None:
            kind = np.dtype(TYPES[names][attribute])
            assert nbytes == kind.itemsize, f"{names(attribute).name} has {kind.itemsize} bytes"
            self.objects[thing]["attributes"][names(attribute).name] = np.frombuffer(ctypes.string_at(address, nbytes), kind)[0].item()

        return put

    def layout(self, kind: int, rows: int, columns: int, leading: int) -> int:
        assert kind in KINDS and leading >= rows >= 1 and columns >= 1, "a leading dimension shorter than a column"
        return self.make(kind=kind, rows=rows, columns=columns, leading=leading)

    def heuristic(
        self, handle: int, problem: int, a: int, b: int, c: int, d: int, preference: int, requested: int, results: int, count: int
    ) -> None:  # fmt: skip
        wishes = self.objects[preference]["attributes"]
        assert wishes["MAX_WORKSPACE_BYTES"] > 0
        if self.listed(a, b, c, d) and (not self.card.lists or "BIAS" in Epilogue(self.objects[problem]["attributes"]["EPILOGUE"]).name):
            raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")
        found = min(requested, len(COSTS))
        aligned = tuple(wishes[f"MIN_ALIGNMENT_{letter}_BYTES"] for letter in "ABCD")
        for n in range(found):
            record = bytearray(RECORD)
            record[0], record[1:9] = n, bytes(x.bit_length() for x in aligned for _ in range(2))
            ctypes.memmove(results + n * RECORD, bytes(record), RECORD)
        ctypes.memmove(count, np.int32(found).tobytes(), 4)

    def matmul(
        self, handle: int, problem: int, alpha: int, a: int, layout_a: int, b: int, layout_b: int, beta: int, c: int, layout_c: int, d: int,
        layout_d: int, algorithm: int, workspace: int, workspace_bytes: int, stream: int,
    ) -> None:  # fmt: skip
        asked, record = self.objects[problem], ctypes.string_at(algorithm, 64)
        scale = [np.frombuffer(ctypes.string_at(s, 4), np.float32)[0] for s in (alpha, beta)]
        assert scale == [1.0, 0.0] and c == d and layout_c == layout_d and stream == 4096
        self.card.bytes_at(workspace, workspace_bytes)
        lists = [self.places(p, layout) for p, layout in ((a, layout_a), (b, layout_b), (c, layout_c), (d, layout_d))]
        for n, pointer in enumerate(p for found in lists for p in found):
            assert pointer % (1 << (record[1 + 2 * (n // len(lists[0]))] - 1)) == 0, "the algorithm was chosen for better aligned operands"
        wishes = asked["attributes"]

        def work(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
            assert out.shape[-2:] == (x.shape[-2], y.shape[-1]) and x.shape[-1] == y.shape[-2]
            result = np.matmul(x, y)
            if "BIAS" in Epilogue(wishes["EPILOGUE"]).name:
                result = result + self.card.floats(wishes["BIAS_POINTER"], (out.shape[-2],), (1,))[:, None]
            out[...] = np.maximum(result, 0) if "RELU" in Epilogue(wishes["EPILOGUE"]).name else result

        def all_of_them() -> None:
            for at_a, at_b, _, at_d in zip(*lists, strict=True):
                x, y, out = (self.view(p, layout) for p, layout in ((at_a, layout_a), (at_b, layout_b), (at_d, layout_d)))
                work(*(v.swapaxes(-1, -2) if wishes[name] else v for v, name in ((x, "TRANSA"), (y, "TRANSB"))), out)

        self.card.submit(f"matmul {asked['compute']}", all_of_them, COSTS[record[0]])

    def listed(self, *layouts: int) -> bool:
        """The operands lie where lists say. Of one product all do, or none; a list has no stride."""
        found = {self.objects[n]["attributes"].get("BATCH_MODE", 0) for n in layouts}
        counts = {self.objects[n]["attributes"].get("BATCH_COUNT", 1) for n in layouts}
        assert len(found) == 1 and len(counts) == 1
        assert found == {0} or not any("STRIDED_BATCH_OFFSET" in self.objects[n]["attributes"] for n in layouts)
        return found == {1}

    def places(self, address: int, layout: int) -> list[int]:
        """Where the operand of a layout begins of every product, one for all that a stride connects."""
        if not self.listed(layout):
            return [address]
        count = self.objects[layout]["attributes"]["BATCH_COUNT"]
        return [int(n) for n in np.frombuffer(self.card.bytes_at(address, 8 * count).tobytes(), np.uint64)]

    def view(self, address: int, layout: int) -> np.ndarray:
        """(batch, rows, columns), one product where a list says where it lies."""
        o = self.objects[layout]
        count, step = (1, 0) if self.listed(layout) else (o["attributes"].get("BATCH_COUNT", 1), o["attributes"].get("STRIDED_BATCH_OFFSET", 0))
        shape, strides = (count, o["rows"], o["columns"]), (step, 1, o["leading"])
        return self.card.floats(address, shape, strides) if o["kind"] == 0 else self.card.shorts(address, shape, strides, KINDS[o["kind"]])


def module(card: Card) -> ModuleType:
    blas, made = Blas(card), ModuleType("nvmath.bindings.cublasLt")
    made.MatrixLayoutAttribute, made.MatmulDescAttribute, made.MatmulPreferenceAttribute = LayoutAttribute, DescAttribute, PreferenceAttribute
    made.destroy = lambda handle: None
    made.Epilogue, made.create, made.get_version = Epilogue, lambda: 1, lambda: 130000 + card.versions
    made.matmul_desc_create = lambda compute, scale: blas.make(compute=compute, scale=scale)
    made.matmul_desc_set_attribute, made.matrix_layout_create = blas.setter(DescAttribute), blas.layout
    made.matrix_layout_set_attribute = blas.setter(LayoutAttribute)
    made.matmul_preference_create, made.matmul_preference_set_attribute = blas.make, blas.setter(PreferenceAttribute)
    made.matmul_preference_destroy = lambda preference: blas.objects[preference].clear()
    made.matmul_algo_get_heuristic, made.matmul = blas.heuristic, blas.matmul
    return made
