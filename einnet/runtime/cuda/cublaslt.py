"""Matrix products on a device through cuBLASLt. A BLAS counts by columns: where c runs along its rows, c transposed is what is computed.

Algorithms are the library's own 64-byte records. The fastest of those that it proposes is chosen by time, once; the record can be stored.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from einnet.errors import BackendError
from einnet.runtime.cuda.driver import Call, Driver
from einnet.runtime.cuda.gemm import offsets
from einnet.runtime.cuda.program import Gemm, Matrix

FLOAT = 0
FACTORS = {"f16": 2, "bf16": 14}
"""CUDA_R_32F; CUDA_R_16F and CUDA_R_16BF, by the arithmetics whose factors lie in 16 bits."""

COMPUTE = {"fp32": 68, "tf32": 77, "fp16": 68, "bf16": 68}
"""The arithmetic of products: CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32. What lies in 16 bits is multiplied on tensor cores by the first."""

RESULT = np.dtype([("algorithm", np.uint8, 64), ("workspace", np.uint64), ("state", np.int32), ("waves", np.float32), ("reserved", np.int32, 4)])
"""What the heuristic writes: cublasLtMatmulHeuristicResult_t."""

POINTER_ARRAY = 1
"""CUBLASLT_BATCH_MODE_POINTER_ARRAY: the operands of a batch lie where lists on the device say."""

PROPOSALS = 8
WORKSPACE = 32 << 20
"""Bytes of scratch memory that an algorithm may use."""

Pointers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix as a BLAS takes it: `rows` by `columns` with columns `leading` elements apart, perhaps transposed; batches are `step` apart."""

    buffer: str
    offset: int
    rows: int
    columns: int
    leading: int
    transposed: bool
    step: int


@dataclass(frozen=True, slots=True)
class Terms:
    """d = x y, d of `rows` by `columns`, column-major."""

    x: Operand
    y: Operand
    d: Operand


def terms(step: Gemm) -> Terms:
    """The product in columns."""
    last = step.batches[-1] if step.batches else None
    a, b, c = ((m, getattr(last, n, 0)) for m, n in ((step.a, "a"), (step.b, "b"), (step.c, "c")))
    if step.c.column == 1:
        x, y, d = (_flipped(b), _flipped(a), _flipped(c))
        rows, columns = step.n, step.m
    else:
        x, y, d = a, b, c
        rows, columns = step.m, step.n
    return Terms(_operand(*x, rows, step.k), _operand(*y, step.k, columns), _operand(*d, rows, columns))


def _flipped(given: tuple[Matrix, int]) -> tuple[Matrix, int]:
    m, step = given
    return Matrix(m.buffer, m.offset, m.column, m.row), step


def _operand(m: Matrix, step: int, rows: int, columns: int) -> Operand:
    if m.row == 1 and (columns == 1 or m.column >= rows):
        return Operand(m.buffer, m.offset, rows, columns, max(m.column, rows), False, step)
    return Operand(m.buffer, m.offset, columns, rows, max(m.row, columns), True, step)


class Products:
    """cuBLASLt on a driver's stream. `math` is one of `COMPUTE`; factors of products in 16 bits are taken to lie so."""

    def __init__(self, driver: Driver, math: str) -> None:
        self.driver, self.math = driver, math
        self._lt: Any = import_module("nvmath.bindings.cublasLt")
        self._handle = self._lt.create()
        weakref.finalize(self, self._lt.destroy, self._handle)
        self._workspace = driver.allocate(WORKSPACE)
        self._one, self._zero = np.array([1], np.float32), np.array([0], np.float32)
        self._kept: list[Any] = []
        self._listed: dict[Gemm, bool] = {}
        """Whether the library takes lists of addresses for a step."""
        self._tables: dict[bytes, int] = {}
        """Where lists of addresses lie on the device, by their content."""

    def version(self) -> str:
        return str(self._lt.get_version())

    def proposals(self, step: Gemm, addresses: dict[str, int]) -> list[bytes]:
        """Algorithms for the step, the one that is expected to be fastest first. Raises BackendError where there is none."""
        return self._proposed(step, addresses, self._at_once(step, addresses))

    def _proposed(self, step: Gemm, addresses: dict[str, int], listed: bool) -> list[bytes]:
        """Algorithms for all products of the batch, whose addresses are `listed`, or for those of its last dimension."""
        found = np.zeros(PROPOSALS, RESULT)
        count = np.zeros(1, np.int32)
        problem, layouts = self._described(step, addresses, listed)
        preference = self._lt.matmul_preference_create()
        names = self._lt.MatmulPreferenceAttribute
        self._put(self._lt.matmul_preference_set_attribute, preference, names.MAX_WORKSPACE_BYTES, np.uint64(WORKSPACE))
        for letter, at in zip("ABCD", self._begins(step, addresses, listed).T, strict=True):
            self._put(self._lt.matmul_preference_set_attribute, preference, getattr(names, f"MIN_ALIGNMENT_{letter}_BYTES"), np.uint32(alignment(at)))
        x, y, d = layouts
        try:
            self._lt.matmul_algo_get_heuristic(
                self._handle, problem, x, y, d, d, preference, PROPOSALS, found.ctypes.data, count.ctypes.data
            )  # fmt: skip
        except Exception as e:
            raise BackendError(f"cuBLASLt has no algorithm for {step.m}x{step.n}x{step.k}: {e}") from e
        finally:
            self._lt.matmul_preference_destroy(preference)
        usable = [bytes(r["algorithm"]) for r in found[: int(count[0])] if r["state"] == 0]
        if not usable:
            raise BackendError(f"cuBLASLt has no algorithm for {step.m}x{step.n}x{step.k} with these strides")
        return usable

    def _at_once(self, step: Gemm, addresses: dict[str, int]) -> bool:
        """One launch is told where all products of the batch lie; older libraries, and some epilogues, do not have that."""
        if not step.scattered or not hasattr(self._lt.MatrixLayoutAttribute, "BATCH_MODE"):
            return False
        if step not in self._listed:
            try:
                self._listed[step] = bool(self._proposed(step, addresses, True))
            except BackendError:
                self._listed[step] = False
        return self._listed[step]

    def bind(self, step: Gemm, addresses: dict[str, int], algorithm: bytes) -> list[Call]:
        """The step's calls with an algorithm: one, or where addresses cannot be listed one for each product of the outer batch dimensions."""
        listed = self._at_once(step, addresses)
        problem, layouts = self._described(step, addresses, listed)
        record = np.frombuffer(algorithm, np.uint8).copy()
        self._kept.append(record)
        begins = self._begins(step, addresses, listed)
        return [self._call(problem, layouts, row, record) for row in ([self._lists(begins)] if listed else begins)]

    def _lists(self, begins: Pointers) -> Pointers:
        """The addresses of four lists on the device, of where each product's operands begin; equal lists are kept once."""
        found = []
        for column in np.ascontiguousarray(begins.T):
            content = column.tobytes()
            if content not in self._tables:
                self._tables[content] = self.driver.allocate(column.nbytes)
                self.driver.write(self._tables[content], column)
            found.append(self._tables[content])
        return np.array(found, np.int64)

    def _call(self, problem: int, layouts: Sequence[int], pointers: Pointers, record: Any) -> Call:
        (x, y, d), (at_x, at_y, at_c, at_d) = layouts, pointers.tolist()
        one, zero = int(self._one.ctypes.data), int(self._zero.ctypes.data)
        return lambda: self._lt.matmul(
            self._handle, problem, one, at_x, x, at_y, y, zero, at_c, d, at_d, d, record.ctypes.data, self._workspace, WORKSPACE, self.driver.stream
        )

    def _begins(self, step: Gemm, addresses: dict[str, int], listed: bool) -> Pointers:
        """Where x, y, c and d begin of each product, or of each call for the batch's last dimension: (products or calls, 4)."""
        item = 2 if step.factors.short else 4
        sizes = np.array([item, item, 4], np.int64)
        matrices = (step.a, step.b, step.c)
        starts = np.array([addresses[m.buffer] for m in matrices], np.int64) + sizes * np.array([m.offset for m in matrices], np.int64)
        a, b, c = (starts + sizes * offsets(step.batches if listed else step.batches[:-1])).T
        return np.stack((b, a, c, c) if step.c.column == 1 else (a, b, c, c), axis=1)

    def _described(self, step: Gemm, addresses: dict[str, int], listed: bool) -> tuple[int, list[int]]:
        """The operation and the layouts of x, y and d; they live as long as the library is in use."""
        t, names = terms(step), self._lt.MatmulDescAttribute
        problem = self._lt.matmul_desc_create(COMPUTE[self.math], FLOAT)
        for name, operand in (("TRANSA", t.x), ("TRANSB", t.y)):
            self._put(self._lt.matmul_desc_set_attribute, problem, names[name], np.int32(operand.transposed))
        kind = {(False, False): "DEFAULT", (True, False): "BIAS", (False, True): "RELU", (True, True): "RELU_BIAS"}[step.bias is not None, step.relu]
        self._put(self._lt.matmul_desc_set_attribute, problem, names.EPILOGUE, np.int32(self._lt.Epilogue[kind]))
        if step.bias is not None:
            buffer, offset = step.bias
            self._put(self._lt.matmul_desc_set_attribute, problem, names.BIAS_POINTER, np.uint64(addresses[buffer] + 4 * offset))
        count = step.count if listed else step.batches[-1].count if step.batches else 1
        factor = FACTORS.get(step.arithmetic, FLOAT)
        return problem, [self._layout(o, count, listed, kind) for o, kind in ((t.x, factor), (t.y, factor), (t.d, FLOAT))]

    def _layout(self, o: Operand, count: int, listed: bool, kind: int) -> int:
        layout: int = self._lt.matrix_layout_create(kind, o.rows, o.columns, o.leading)
        names = self._lt.MatrixLayoutAttribute
        if count > 1:
            self._put(self._lt.matrix_layout_set_attribute, layout, names.BATCH_COUNT, np.int32(count))
        if listed:
            self._put(self._lt.matrix_layout_set_attribute, layout, names.BATCH_MODE, np.int32(POINTER_ARRAY))
        elif count > 1:
            self._put(self._lt.matrix_layout_set_attribute, layout, names.STRIDED_BATCH_OFFSET, np.int64(o.step))
        return layout

    @staticmethod
    def _put(setter: Any, thing: int, name: Any, value: Any) -> None:
        held = np.array([value])
        setter(thing, int(name), held.ctypes.data, held.nbytes)


def alignment(addresses: Pointers) -> int:
    """The largest power of two, up to 256, that divides all of the addresses."""
    common = int(np.bitwise_or.reduce(addresses))
    return min(common & -common, 256) if common else 256
