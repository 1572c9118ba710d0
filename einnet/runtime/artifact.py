"""Optimized programs on disk: `.einnet` files.

A digest of the whole file, then a zip archive that any tool opens: `manifest.json` (plan, machine, versions, metadata), `constants/*.npy`,
`models/*.onnx` (opaque nodes), `code/*.o`, `derivations/*.ein`. Nothing in it is executed before the digest is checked, but the file does
contain machine code: load only files that you trust, as with any program.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from einnet.errors import ArtifactError
from einnet.instantiate.kernels import Plan
from einnet.instantiate.kernels.contractions import Contraction
from einnet.instantiate.kernels.views import Json
from einnet.records import Record, added, as_text, read
from einnet.runtime import machine
from einnet.runtime.arena import check_plan
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import dnnl, levels
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.program import Code, Executable, build_code
from einnet.runtime.sealed import open_sealed, reading, sealed_archive
from einnet.runtime.serial import plan_from_json, plan_json
from einnet.runtime.stored_constants import StoredConstants, write_array

_FORMAT = 3


class Head(Record):
    """What the manifests of programs for a processor have in common."""

    threads: int
    machine: machine.Built
    versions: dict[str, str]
    metadata: dict[str, Any]
    derivations: int


class Manifest(Head):
    """A program's `manifest.json`: its constants by name in the order of their files, and how many files of code and of derivations there are."""

    format: int
    plan: Json
    constants: list[str]
    kernels: int
    instructions: list[str] = added([])
    """What a processor must have beside the features of the machine code, for products that are not in float32."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """A stored program. `code` is None where the stored code does not fit this machine; then `problem` says why."""

    plan: Plan
    threads: int
    code: Code | None
    metadata: Mapping[str, Any]
    derivations: tuple[str, ...]
    machine: machine.Built
    versions: Mapping[str, str]
    problem: str | None = None

    def executable(self, threads: int | None = None) -> Executable:
        """The program, ready to run, on as many threads as it was optimized for or on others.

        Code that does not fit is built again with TVM. Vendor kernels are asked of the library that is here: it may be another one, or use other
        instructions; what it refuses is run by ONNX Runtime or by its reference code, with a warning. Raises ArtifactError where nothing can run it.
        """
        threads = threads or self.threads
        code = self.code
        if code is None:
            missing = codegen.available()
            if missing:
                raise ArtifactError(f"{self.problem}; it cannot be built again: {missing}")
            code = build_code(self.plan, threads)
        here, there = (described(versions) for versions in (machine.versions(), self.versions))
        try:
            program = Executable(self.plan, threads, code=code)
        except Refused as reason:
            raise ArtifactError(f"made with {there}; here is {here}, which refuses: {reason}; optimize the model again") from reason
        if program.notes:
            slower = f"{len(program.notes)} of {len(self.plan.kernels)} kernels are slower here, where {here} refuses them"
            warnings.warn(f"made with {there}; {slower}: optimize the model again ({program.notes[0]})", RuntimeWarning, stacklevel=2)
        return program


def instructions(plan: Plan) -> list[str]:
    """What a processor must have for the arithmetics of the plan's products."""
    return sorted({i for k in plan.kernels if isinstance(k, Contraction) for i in k.arithmetic.instructions or ()})


def described(versions: Mapping[str, str]) -> str:
    """The vendor library of some versions, and what keeps it from instructions of the processor."""
    limit = dnnl.limit() if versions is machine.versions() else ""
    return f"oneDNN {versions.get('onednn', 'none')}" + (f" limited to {limit}" if limit else "")


def save(
    path: str | os.PathLike[str], plan: Plan, code: Code, metadata: Mapping[str, Any] | None = None, derivations: Sequence[str] = (), *, threads: int
) -> None:
    """Write the program under a temporary name, then rename. Raises ArtifactError if the path cannot be written; no half-written file stays."""
    with sealed_archive(Path(path)) as archive:
        _fill(archive, plan, code, metadata or {}, derivations, threads)


def _fill(archive: zipfile.ZipFile, plan: Plan, code: Code, metadata: Mapping[str, Any], derivations: Sequence[str], threads: int) -> None:
    models: list[bytes] = []

    def blob(model: bytes) -> int:
        models.append(model)
        return len(models) - 1

    manifest = Manifest(
        format=_FORMAT, threads=threads, machine=describe(code.cpu, code.anywhere), versions=machine.versions(), metadata=dict(metadata),
        plan=plan_json(plan, blob), constants=list(plan.constants), derivations=len(derivations), kernels=len(code.kernels),
        instructions=instructions(plan),
    )  # fmt: skip
    archive.writestr("manifest.json", as_text(manifest))
    for n, values in enumerate(plan.constants.values()):
        write_array(archive, f"constants/{n}.npy", values)
    for n, model in enumerate(models):
        archive.writestr(f"models/{n}.onnx", model)
    archive.writestr("code/support.o", code.support)
    for n, kernel in enumerate(code.kernels):
        archive.writestr(f"code/{n}.o", kernel)
    for n, text in enumerate(derivations):
        archive.writestr(f"derivations/{n:03}.ein", text, zipfile.ZIP_DEFLATED)  # their steps have most in common


def describe(cpu: str, anywhere: bool = True) -> machine.Built:
    """The machine, what a processor needs to run code that is for `cpu`, and whether that takes arrays from anywhere."""
    here = machine.description()
    name = here.cpu if cpu == levels.NATIVE else f"{cpu} processors"
    features = sorted(levels.features(cpu))
    return machine.Built(system=here.system, architecture=here.architecture, cpu=name, features=features, code=cpu, anywhere=anywhere)


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a program. Raises ArtifactError if the file is missing, damaged, of another format or no program.

    Constants stay in the file, which is kept open, until they are asked for: nobody holds them beside the memory in which the program has them.
    """
    with reading(Path(path)):
        return _read(Path(path), open_sealed(Path(path)))


def _read(source: Path, archive: zipfile.ZipFile) -> Loaded:
    value: Json = json.loads(archive.read("manifest.json"))
    if "cuda" in value:
        raise ArtifactError(f"{source} is a program for a CUDA device, which has no machine code for a processor")
    if "ranged" in value or "grid" in value:
        raise ArtifactError(f"{source} serves a range of sizes: only load, run, verify and explain take it")
    if value["format"] != _FORMAT:
        raise ArtifactError(f"{source} has format {value['format']}, this version of einnet reads format {_FORMAT}")
    manifest = read(Manifest, value)
    constants = StoredConstants(archive, {name: n for n, name in enumerate(manifest.constants)})
    plan = plan_from_json(manifest.plan, lambda n: archive.read(f"models/{int(n)}.onnx"), constants)
    check_plan(plan)
    problem = machine.misfit(manifest.machine)
    kernels = tuple(archive.read(f"code/{n}.o") for n in range(manifest.kernels))
    code = None if problem else Code(archive.read("code/support.o"), kernels, manifest.machine.code, manifest.machine.anywhere)
    derivations = tuple(archive.read(f"derivations/{n:03}.ein").decode() for n in range(manifest.derivations))
    return Loaded(plan, manifest.threads, code, manifest.metadata, derivations, manifest.machine, manifest.versions, problem)
