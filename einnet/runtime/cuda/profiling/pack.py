"""Kernels that are ready to be timed on a card, as plain data: what is launched on buffers of which sizes, and machine code.

`prepare` makes packs where there is a compiler and no card; `bench` times them where there is a card, and neither TVM nor a search. A file is a
zip archive of JSON and of all machine code in one piece: alike kernels compress well together.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Union

from einnet import records
from einnet.errors import UsageError
from einnet.instantiate.kernels import Conv
from einnet.instantiate.kernels.views import Json
from einnet.records import Record, as_json, read_text
from einnet.runtime.cuda.archive import read_library, step_json
from einnet.runtime.cuda.program import Gemm, Launch
from einnet.runtime.files import replacing

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Code:
    """Launches of functions of one piece of machine code, by its number."""

    number: int
    launches: tuple[Launch, ...]


PackedStep = Union[Code, Gemm, Conv]


@dataclass(frozen=True, slots=True)
class Packed:
    """A kernel: its key, its kind and the arithmetics it is wanted in, and the steps that compute it.

    `sizes` are elements of float32 of each buffer. `weights` are buffers that are read and do not change, `read` others that are only read.
    `arithmetic` is that to which a generated kernel rounds factors, None where it does not.
    """

    key: str
    kind: str
    math: tuple[str, ...]
    sizes: Mapping[str, int]
    weights: tuple[str, ...]
    read: tuple[str, ...]
    steps: tuple[PackedStep, ...]
    arithmetic: str | None = None


@dataclass(frozen=True)
class Pack:
    """Kernels in the order in which they are wanted; for a device of the architecture `architecture`.

    `figures` are kernels by which a card's figures are measured, `made_by` versions of the generator and the compiler, `failed` says of kernels
    why they are not here.
    """

    architecture: str
    kernels: tuple[Packed, ...]
    figures: Mapping[str, Packed]
    codes: tuple[bytes, ...]
    made_by: Mapping[str, str]
    failed: Mapping[str, str]


class PackedFile(Record):
    """A packed kernel as it is stored."""

    key: str
    kind: str
    math: tuple[str, ...]
    sizes: dict[str, int]
    weights: tuple[str, ...]
    read: tuple[str, ...]
    steps: list[Json]
    arithmetic: str | None = None


class PackFile(Record):
    """A pack as it is stored; `codes` are the lengths of its pieces of machine code."""

    pack: int
    architecture: str
    made_by: dict[str, str]
    failed: dict[str, str]
    codes: list[int]
    kernels: list[PackedFile]
    figures: dict[str, PackedFile]


def write(path: Path, pack: Pack) -> None:
    """Write the file, whole or not at all. Raises UsageError where the path cannot be written."""
    content = PackFile(
        pack=FORMAT, architecture=pack.architecture, made_by=dict(pack.made_by), failed=dict(pack.failed),
        codes=[len(code) for code in pack.codes], kernels=[_stored(k) for k in pack.kernels],
        figures={name: _stored(k) for name, k in pack.figures.items()},
    )  # fmt: skip
    try:
        with replacing(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr(zipfile.ZipInfo("pack.json"), json.dumps(as_json(content), separators=(",", ":")), zipfile.ZIP_LZMA)
            archive.writestr(zipfile.ZipInfo("codes"), b"".join(pack.codes), zipfile.ZIP_LZMA)
    except OSError as e:
        raise UsageError(f"the pack {path} cannot be written: {e.strerror or e}") from e


def read(path: Path) -> Pack:
    """Read a pack. Raises UsageError for a file that is missing or none."""
    try:
        with zipfile.ZipFile(path) as archive:
            stored, codes = read_text(PackFile, archive.read("pack.json")), archive.read("codes")
        if stored.pack != FORMAT or sum(stored.codes) != len(codes):
            raise ValueError(f"format {stored.pack}, {len(codes)} bytes of code")
        ends = list(accumulate(stored.codes))
        pieces = tuple(codes[end - length : end] for end, length in zip(ends, stored.codes))
        kernels = tuple(_packed(k, len(pieces)) for k in stored.kernels)
        figures = {name: _packed(k, len(pieces)) for name, k in stored.figures.items()}
        return Pack(stored.architecture, kernels, figures, pieces, stored.made_by, stored.failed)
    except OSError as e:
        raise UsageError(f"the pack {path} cannot be read: {e.strerror or e}") from e
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError, zipfile.BadZipFile) as e:
        raise UsageError(f"{path} is no pack of kernels: {type(e).__name__} {e}") from e


def _stored(kernel: Packed) -> PackedFile:
    return PackedFile(
        key=kernel.key, kind=kernel.kind, math=kernel.math, sizes=dict(kernel.sizes), weights=kernel.weights, read=kernel.read,
        steps=[_step(s) for s in kernel.steps], arithmetic=kernel.arithmetic,
    )  # fmt: skip


def _step(step: PackedStep) -> Json:
    return {"kind": "code", **as_json(step)} if isinstance(step, Code) else step_json(step, lambda model: 0)


def _packed(stored: PackedFile, codes: int) -> Packed:
    steps = tuple(_read_step(s, codes) for s in stored.steps)
    unknown = {*stored.weights, *stored.read, *(b for s in steps for b in buffers(s))} - stored.sizes.keys()
    if unknown:
        raise ValueError(f"a kernel uses buffer {min(unknown)}, whose size is not told")
    return Packed(stored.key, stored.kind, stored.math, stored.sizes, stored.weights, stored.read, steps, stored.arithmetic)


def _read_step(value: Json, codes: int) -> PackedStep:
    if value["kind"] != "code":
        return read_library(value)
    code = records.read(Code, value)
    if not 0 <= code.number < codes:
        raise ValueError(f"there is no code {code.number}")
    return code


def buffers(step: PackedStep) -> Sequence[str]:
    """The buffers that a step names."""
    if isinstance(step, Code):
        return [b for x in step.launches for b, _ in x.arguments]
    if isinstance(step, Gemm):
        return [step.a.buffer, step.b.buffer, step.c.buffer, *(step.bias[:1] if step.bias else ())]
    return [v.buffer for v in (step.x, step.w, step.y, *(p.operand for p in step.post if p.operand is not None))]
