"""Programs for many sizes in one file: a plan for each, and what they share (weights, code, models) once.

The file is sealed as those of `runtime.artifact` are. Plans are read, and programs bound to memory, when a size is first run.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from einnet.errors import ArtifactError
from einnet.graph.in_file import ModelFile, model_bytes
from einnet.instantiate.kernels import OpaqueCall, Plan
from einnet.instantiate.kernels.views import Json
from einnet.records import Record, added, as_json, as_text, read, read_text
from einnet.runtime import machine
from einnet.runtime.arena import check_plan
from einnet.runtime.artifact import Head, Loaded, describe
from einnet.runtime.capacity import available_bytes
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.program import Code, Executable
from einnet.runtime.sealed import open_sealed, reading, write_sealed
from einnet.runtime.serial import plan_from_json, plan_json
from einnet.runtime.stored_constants import StoredConstants, array_bytes

FORMAT = 1
RANGED, GRID = "ranged", "grid"
"""What the manifests of programs have that serve a range of one dimension, or of several: it says which reader takes them."""

BOUND, SHARE = 4, 0.25
"""Programs that stay bound to memory in any case, and how much of the memory that is left all of them take if there are more."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Key = int | str


@dataclass
class Shared(Generic[T]):
    """Distinct values by digest, numbered as they come."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    values: list[T] = field(default_factory=list)

    def number(self, data: bytes | memoryview, value: T) -> int:
        """The number of the value with these bytes."""
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest not in self.numbers:
            self.numbers[digest] = len(self.values)
            self.values.append(value)
        return self.numbers[digest]


@dataclass(frozen=True)
class Member:
    """One size's plan and code, in numbers of the pool; what is told of its making, and its derivations, where it has those of its own."""

    plan: Plan
    constants: Mapping[str, int]
    kernels: tuple[int, ...]
    metadata: Json = None
    texts: tuple[str, ...] = ()


@dataclass
class Pool:
    """Weights, object code (for processors `cpu`) and opaque models of the programs for all sizes."""

    constants: Shared[np.ndarray] = field(default_factory=Shared)
    kernels: Shared[bytes] = field(default_factory=Shared)
    models: Shared[bytes] = field(default_factory=Shared)
    support: bytes = b""
    cpu: str = NATIVE
    _seen: dict[tuple[int, int, str], tuple[int, np.ndarray]] = field(default_factory=dict)

    def add(self, plan: Plan, code: Code) -> Member:
        """A program whose weights are the pool's from now on."""
        numbers = {name: self._constant(value) for name, value in plan.constants.items()}
        shared = {name: self.constants.values[n] for name, n in numbers.items()}
        calls = [replace(k, model=self._model(k.model)) if isinstance(k, OpaqueCall) else k for k in plan.kernels]
        self.support, self.cpu = code.support, code.cpu
        return Member(replace(plan, constants=shared, kernels=tuple(calls)), numbers, tuple(self.kernels.number(k, k) for k in code.kernels))

    def executable(self, member: Member, threads: int) -> Executable:
        """The program of a member, bound to memory."""
        code = Code(self.support, tuple(self.kernels.values[n] for n in member.kernels), self.cpu)
        return Executable(member.plan, threads, code=code)

    def _constant(self, value: np.ndarray) -> int:
        flat = np.ascontiguousarray(value).reshape(-1)
        place = (flat.ctypes.data, flat.size, str(flat.dtype))
        if place not in self._seen:  # the array is kept with its number, so that nothing else gets its place in memory
            self._seen[place] = self.constants.number(place[2].encode() + flat.tobytes(), flat), flat
        return self._seen[place][0]

    def _model(self, model: bytes | ModelFile) -> bytes:
        data = model_bytes(model)
        return self.models.values[self.models.number(data, data)]


class SizeFile(Record):
    """The program for one size, its constants, object code, models and derivations by their numbers in the file."""

    plan: Json
    constants: dict[str, int]
    kernels: list[int]
    metadata: Json = added(None)
    derivations: list[int] = added([])


def save(
    path: Path, pool: Pool, members: Mapping[K, Member], metadata: Json, texts: Sequence[str], threads: int, kind: str = RANGED
) -> None:  # fmt: skip
    """Write the programs of all sizes. Raises ArtifactError if the path cannot be written; no half-written file stays."""
    every, sizes = list(texts), {}
    for size, m in members.items():
        plan = plan_json(m.plan, lambda model: pool.models.number(model, model))
        own = list(range(len(every), len(every) + len(m.texts)))
        sizes[size] = SizeFile(plan=plan, constants=dict(m.constants), kernels=list(m.kernels), metadata=m.metadata, derivations=own)
        every += m.texts
    told = Head(threads=threads, machine=describe(pool.cpu), versions=machine.versions(), metadata=metadata, derivations=len(every))
    texts = every
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("manifest.json", as_text({kind: FORMAT, **as_json(told)}))
        for key, value in sizes.items():
            archive.writestr(f"sizes/{key}.json", as_text(value, None), zipfile.ZIP_DEFLATED)
        for n, values in enumerate(pool.constants.values):
            archive.writestr(f"constants/{n}.npy", array_bytes(values))
        for n, model in enumerate(pool.models.values):
            archive.writestr(f"models/{n}.onnx", model)
        archive.writestr("code/support.o", pool.support)
        for n, kernel in enumerate(pool.kernels.values):
            archive.writestr(f"code/{n}.o", kernel)
        for n, text in enumerate(texts):
            archive.writestr(f"derivations/{n:03}.ein", text)
    write_sealed(path, buffer.getbuffer())


class Bound(Generic[K]):
    """The programs that were run last, by size, as `make` binds them to memory; where that gets scarce, the one not used for longest makes room."""

    def __init__(self, make: Callable[[K], Executable]) -> None:
        self._make, self._programs, self._lock = make, OrderedDict[K, Executable](), threading.RLock()

    def get(self, size: K) -> Executable:
        """The program for one size."""
        with self._lock:
            if size not in self._programs:
                while len(self._programs) >= BOUND and self.nbytes > SHARE * available_bytes():
                    self._programs.popitem(last=False)
                self._programs[size] = self._make(size)
            self._programs.move_to_end(size)
            return self._programs[size]

    @property
    def nbytes(self) -> int:
        """Bytes that the bound programs take."""
        return sum(program.nbytes for program in self._programs.values())

    def close(self) -> None:
        """Let go of all programs."""
        with self._lock:
            self._programs.clear()


class Ranged:
    """What `save` wrote. Raises ArtifactError if the file is damaged or of another format."""

    def __init__(self, path: Path, kind: str = RANGED) -> None:
        self.path = path
        with reading(path):
            self._archive = open_sealed(path)
            manifest = json.loads(self._archive.read("manifest.json"))
            if manifest[kind] != FORMAT:
                raise ArtifactError(f"{path} has format {manifest[kind]}, this version of einnet reads format {FORMAT}")
            self.manifest = read(Head, manifest)
            self.texts = tuple(self._archive.read(f"derivations/{n:03}.ein").decode() for n in range(self.manifest.derivations))
            self.problem = machine.misfit(self.manifest.machine)
        self._bound, self._lock = Bound[Key](lambda size: self.loaded(size).executable()), threading.RLock()

    def model(self, number: int) -> bytes:
        """One of the models that it holds, serialised. Raises ArtifactError where it has none."""
        with self._lock, reading(self.path):
            return self._archive.read(f"models/{number}.onnx")

    def loaded(self, size: Key) -> Loaded:
        """The program for one size. Raises ArtifactError for a damaged file or one without this size."""
        with self._lock:
            try:
                stored = read_text(SizeFile, self._archive.read(f"sizes/{size}.json"))
                plan = plan_from_json(
                    stored.plan, lambda n: self._archive.read(f"models/{int(n)}.onnx"), StoredConstants(self._archive, stored.constants)
                )
                check_plan(plan)
                kernels = tuple(self._archive.read(f"code/{n}.o") for n in stored.kernels)
                support = self._archive.read("code/support.o")
            except Exception as error:  # what is written by somebody else fails in many ways
                raise ArtifactError(f"{self.path} holds no program for size {size}: {error}") from error
        told = self.manifest
        code = None if self.problem else Code(support, kernels, told.machine.code, told.machine.anywhere)
        if stored.metadata is None:
            metadata, texts = told.metadata, self.texts
        else:
            metadata, texts = stored.metadata, tuple(self.texts[n] for n in stored.derivations)
        return Loaded(plan, told.threads, code, metadata, texts, told.machine, told.versions, self.problem)

    def executable(self, size: Key) -> Executable:
        """The program for one size, bound to memory."""
        return self._bound.get(size)

    def close(self) -> None:
        """Let go of all programs."""
        self._bound.close()
