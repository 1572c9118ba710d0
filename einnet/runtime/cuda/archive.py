"""CUDA programs on disk: a sealed zip archive (see `artifact`) of JSON, `.npy` arrays, models of opaque nodes and CUDA text. No machine code."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from einnet import records
from einnet.errors import ArtifactError
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Conv, EOperator, OpaqueCall
from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.instantiate.kernels.contractions import read_arithmetic
from einnet.instantiate.kernels.views import Json, read_view, view_json
from einnet.records import Record, as_json, as_text
from einnet.runtime.arena import storage_dtype
from einnet.runtime.cuda.program import CudaProgram, Gemm, Generated, Launch, Place, Rounded, Step, texts_of
from einnet.runtime.cuda.tuning import Tuning, TuningFile, read_tuning, tuning_file
from einnet.runtime.sealed import read_sealed, reading, write_sealed
from einnet.runtime.serial import kernel_json, read_kernel
from einnet.runtime.stored_constants import array_bytes, array_from

FORMAT = 3
Blob = Callable[[bytes], int]


@dataclass(frozen=True, eq=False)
class Kept:
    """A program with the choices of algorithms that are known for it, what its maker tells of it, and the derivations that it stands on."""

    program: CudaProgram
    tunings: tuple[Tuning, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    derivations: tuple[str, ...] = ()


class GeneratedFile(Record):
    """A step of generated code."""

    operator: Json
    text: str
    launches: tuple[Launch, ...]


class ProgramFile(Record):
    """A program without the values of its constants and without its texts; `region` has as many bytes as its constants."""

    places: dict[str, Place]
    arena: int
    region: int
    steps: list[Json]
    texts: list[str]
    inputs: list[tuple[str, Json]]
    outputs: list[tuple[str, Json]]
    expressions: dict[str, str] | None = None
    held: dict[str, Json] | None = None


class Manifest(Record):
    """A program's `manifest.json`."""

    cuda: int
    program: ProgramFile
    constants: list[str]
    tunings: list[TuningFile]
    metadata: dict[str, Any]
    derivations: int


def save(path: str | os.PathLike[str], program: CudaProgram) -> None:
    """Write the program alone, whole or not at all. Raises ArtifactError if the path cannot be written."""
    write(path, Kept(program))


def write(path: str | os.PathLike[str], kept: Kept) -> None:
    """Write the program and all that belongs to it, whole or not at all. Raises ArtifactError if the path cannot be written."""
    program = kept.program
    models: list[bytes] = []

    def blob(model: bytes) -> int:
        models.append(model)
        return len(models) - 1

    manifest = Manifest(
        cuda=FORMAT, program=program_file(program, blob), constants=list(program.constants),
        tunings=[tuning_file(t) for t in kept.tunings], metadata=dict(kept.metadata), derivations=len(kept.derivations),
    )  # fmt: skip
    members: dict[str, str | bytes] = {"manifest.json": as_text(manifest)}
    members |= {f"models/{n}.onnx": model for n, model in enumerate(models)}
    members |= {f"code/{n}.cu": text for n, text in enumerate(program.texts.values())}
    members |= {f"derivations/{n:03}.ein": text for n, text in enumerate(kept.derivations)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(_member(name), content, zipfile.ZIP_DEFLATED if name.endswith(".ein") else None)
        for n, values in enumerate(program.constants.values()):
            archive.writestr(_member(f"constants/{n}.npy"), array_bytes(values))
    write_sealed(Path(path), buffer.getbuffer())


def _member(name: str) -> zipfile.ZipInfo:
    """An archive's member without the time at which it was written: equal programs are equal files."""
    return zipfile.ZipInfo(name)


def load(path: str | os.PathLike[str]) -> CudaProgram:
    """Read a program. Raises ArtifactError if the file is missing, damaged, of another format or no program for CUDA."""
    return read(path).program


def read(path: str | os.PathLike[str]) -> Kept:
    """A program and all that was written with it. Raises ArtifactError as `load` does."""
    source = Path(path)
    body = read_sealed(source)
    with reading(source), zipfile.ZipFile(io.BytesIO(body)) as archive:
        value = json.loads(archive.read("manifest.json"))
        if value.get("cuda") != FORMAT:
            raise ArtifactError(f"{source} is no CUDA program of format {FORMAT}")
        manifest = records.read(Manifest, value)
        derivations = tuple(archive.read(f"derivations/{n:03}.ein").decode() for n in range(manifest.derivations))
        return Kept(_program(manifest, archive), tuple(map(read_tuning, manifest.tunings)), manifest.metadata, derivations)


def program_file(program: CudaProgram, blob: Blob) -> ProgramFile:
    """Everything but the values of constants and the texts."""
    return ProgramFile(
        places=dict(program.places),
        arena=program.arena_bytes,
        region=program.constant_bytes,
        steps=[step_json(s, blob) for s in program.steps],
        texts=list(program.texts),
        inputs=[(name, view_json(v)) for name, v in program.inputs],
        outputs=[(name, view_json(v)) for name, v in program.outputs],
        expressions={name: str(scope) for name, scope in program.expressions.items()},
        held={name: view_json(v) for name, v in program.held.items()},
    )


def step_json(step: Step, blob: Blob) -> Json:
    """A step as JSON; `blob` keeps a model and gives its number."""
    match step:
        case Generated(operator, text, launches):
            return {"kind": "generated", "operator": kernel_json(operator, blob), "text": text, "launches": as_json(launches)}
        case Gemm():
            return {"kind": "gemm", **as_json(step)}
        case Rounded():
            return {"kind": "rounded", **as_json(step)}
        case Conv() | OpaqueCall():
            return kernel_json(step, blob)
    raise TypeError(step)


def _program(manifest: Manifest, archive: zipfile.ZipFile) -> CudaProgram:
    stored = manifest.program
    constants = {name: array_from(archive.read(f"constants/{n}.npy")) for n, name in enumerate(manifest.constants)}
    texts = {name: archive.read(f"code/{n}.cu").decode() for n, name in enumerate(stored.texts)}
    inputs, outputs = (tuple((name, read_view(v)) for name, v in views) for views in (stored.inputs, stored.outputs))
    program = CudaProgram(
        stored.places, stored.arena, stored.region, tuple(_step(s, archive) for s in stored.steps), texts, inputs, outputs, constants,
        {name: parse(text) for name, text in (stored.expressions or {}).items()},
        {name: read_view(v) for name, v in (stored.held or {}).items()},
    )  # fmt: skip
    _check(program)
    return program


def _step(value: Json, archive: zipfile.ZipFile) -> Step:
    def model(n: int) -> bytes:
        return archive.read(f"models/{int(n)}.onnx")

    match value["kind"]:
        case "generated":
            stored = records.read(GeneratedFile, value)
            operator = read_kernel(stored.operator, model)
            if not isinstance(operator, EOperator):
                raise ValueError("generated code that computes no eOperator")
            return Generated(operator, stored.text, stored.launches)
        case "gemm":
            return _gemm(value)
        case "rounded":
            return _rounded(value)
        case kind:
            step = read_kernel(value, model)
            if not isinstance(step, (Conv, OpaqueCall)):
                raise ValueError(f"a step of kind {kind}")
            return step


def _gemm(value: Json) -> Gemm:
    """A product from JSON. Raises ValueError for what is none, or an arithmetic that there is not."""
    read_arithmetic(value)
    return records.read(Gemm, value)


def _rounded(value: Json) -> Rounded:
    """A product of factors in 16 bits from JSON. Raises ValueError for what is none."""
    found = records.read(Rounded, value)
    if not (found.product.arithmetic in ARITHMETICS and found.product.factors.short and found.inner.arithmetic == found.product.arithmetic):
        raise ValueError(f"factors in 16 bits of the arithmetic {found.product.arithmetic!r}")
    return found


def read_library(value: Json) -> Gemm | Conv:
    """A library's step from JSON. Raises ValueError, TypeError or KeyError for what is none."""
    if value["kind"] == "gemm":
        return _gemm(value)
    step = read_kernel(value, lambda n: b"")
    if not isinstance(step, Conv):
        raise ValueError(f"a step of kind {value['kind']}")
    return step


def _check_place(program: CudaProgram, name: str, p: Place) -> None:
    end = p.offset + p.size * storage_dtype(p.dtype).itemsize
    if p.offset < 0 or p.size < 0 or end > (program.constant_bytes if p.constant else program.arena_bytes):
        raise ValueError(f"buffer {name} lies outside its region")
    if p.constant and (name not in program.constants or program.constants[name].size != p.size):
        raise ValueError(f"constant buffer {name} needs {p.size} values")


def _check(program: CudaProgram) -> None:
    """Raise ValueError unless buffers lie in their regions, constants have values, and steps use buffers and texts that there are."""
    for name, place in program.places.items():
        _check_place(program, name, place)
    used: list[Any] = [b for s in program.steps if isinstance(s, (Generated, Rounded)) for x in s.launches for b, _ in x.arguments]
    products = [s.inner if isinstance(s, Rounded) else s for s in program.steps if isinstance(s, (Gemm, Rounded))]
    used += [m.buffer for s in products for m in (s.a, s.b, s.c)]
    used += [view.buffer for _, view in (*program.inputs, *program.outputs)]
    unknown = [b for b in used if b not in program.places]
    if unknown:
        raise ValueError(f"a step, an input or an output uses buffer {unknown[0]}, which the program does not have")
    wanted = {*(s.text for s in program.steps if isinstance(s, Generated)), *(t for s in program.steps for t in texts_of(s))}
    if not wanted <= program.texts.keys():
        raise ValueError("a step runs code that the program does not have")
