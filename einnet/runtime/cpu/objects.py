"""Generated kernels that were compiled: once for each, whoever asks and in whatever process, and what compiling takes."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from einnet.errors import BackendError
from einnet.instantiate.kernels import EOperator
from einnet.runtime import machine
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.compiler.serving import WORTH_SHARING
from einnet.runtime.cpu.levels import NATIVE
from einnet.stages import stage

FIRST_S = 0.1
"""Seconds that compiling a kernel is expected to take before any was compiled."""

OBJECTS = "objects"
"""The folder beside the profile database."""

DRAFT = ".draft-"
"""How files begin that are being written."""

ABANDONED_S = 3600.0
"""Seconds after which nobody writes a file any more."""

SUPPORT = "support"
"""How the file of the functions that every program has is named."""

_DIGEST = 16


class Store:
    """Object code in a folder, one file for each kernel. A cache: what is damaged, or cannot be written, is as if it were not there.

    Code of other versions of the generator, the compiler or the processor is removed when the first kernel of these is written.
    """

    def __init__(self, folder: Path, threads: int, cpu: str = NATIVE) -> None:
        versions = [codegen.generator_version(), machine.versions().get("apache-tvm", ""), machine.cpu_name(), *sorted(machine.cpu_features())]
        self._all = folder
        self._folder = folder / hashlib.blake2b("\n".join(versions).encode(), digest_size=8).hexdigest()
        self._sweeping = True
        self._kind = f"{threads}" if cpu == NATIVE else f"{threads}-{cpu}"

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}-{self._kind}.o"

    def get(self, name: str) -> bytes | None:
        """The code of a kernel by its name (see `operator_names`)."""
        with suppress(OSError):
            data = self._path(name).read_bytes()
            if hashlib.blake2b(data[_DIGEST:], digest_size=_DIGEST).digest() == data[:_DIGEST]:
                return data[_DIGEST:]
        return None

    @property
    def there(self) -> bool:
        """Something was written for this version of everything."""
        return self._folder.exists()

    def put(self, name: str, code: bytes) -> None:
        if self._sweeping:
            self._sweeping = False
            self.sweep()
        with suppress(OSError):
            if not self._folder.exists():
                clear(self._all)
                self._folder.mkdir(parents=True, exist_ok=True)
            draft = self._folder / f"{DRAFT}{os.getpid()}-{threading.get_ident()}"
            try:
                draft.write_bytes(hashlib.blake2b(code, digest_size=_DIGEST).digest() + code)
                draft.replace(self._path(name))
            finally:
                draft.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what processes have left that were killed while they wrote."""
        with suppress(OSError):
            for draft in self._folder.glob(f"{DRAFT}*"):
                if time.time() - draft.stat().st_mtime > ABANDONED_S:
                    draft.unlink(missing_ok=True)



def clear(folder: Path) -> int:
    """Remove a store; how many kernels it had."""
    count = sum(not path.name.startswith(SUPPORT) for path in folder.glob("*/*.o"))
    shutil.rmtree(folder, ignore_errors=True)
    return count


class Objects:
    """Object code for a number of threads and some processors, by kernel: what is compiled for measuring is there for the program later.

    With a folder, also for later processes.
    """

    def __init__(self, threads: int, folder: Path | None = None, cpu: str = NATIVE) -> None:
        self.threads, self.cpu = threads, cpu
        self._store = Store(folder, threads, cpu) if folder is not None else None
        self._compiled: dict[str, bytes] = {}
        self._failed: dict[str, BackendError] = {}
        self._seconds, self._count = FIRST_S, 1

    def get(self, operators: Sequence[EOperator]) -> tuple[bytes, ...]:
        """An object for each distinct kernel. Raises NotGenerated for one that has no generated code."""
        named = dict(zip(codegen.operator_names(operators), operators))
        return tuple(self._one(name, operator) for name, operator in named.items())

    def support(self) -> bytes:
        """The functions that every program has, compiled. Raises BackendError."""
        found = self._store.get(SUPPORT) if self._store else None
        if found is None:
            _load()
            with stage("compiling kernels"):
                found = codegen.support_object()
            if self._store:
                self._store.put(SUPPORT, found)
        return found

    def ahead(self, operators: Sequence[EOperator], hurry: Callable[[], None] = lambda: None) -> None:
        """Compile what `get` will be asked for, by all processors where that is much. What has no generated code is told by `get` later.

        `hurry` is called before each kernel, and may raise.
        """
        named = dict(zip(codegen.operator_names(operators), operators))
        missing = [name for name in named if not (name in self._compiled or name in self._failed or self._stored(name))]
        if len(missing) >= WORTH_SHARING:
            hurry()
            _load()
            with stage("compiling kernels"):
                since = time.monotonic()
                for name, code in codegen.compile_each({name: named[name] for name in missing}, self.threads, self.cpu, hurry):
                    self._keep(name, named[name], code, since)
                    hurry()
                    since = time.monotonic()
        for name in missing:
            if name not in self._compiled and name not in self._failed:
                hurry()
                with suppress(codegen.NotGenerated):
                    self._one(name, named[name])

    def stepwise(self, operators: Sequence[EOperator]) -> tuple[bytes, ...]:
        """An object for each distinct kernel, which takes operands that begin anywhere, on one thread. Raises NotGenerated."""
        named = dict(zip(codegen.stepwise_names(operators), operators))
        return tuple(self._one(name, operator, True) for name, operator in named.items())

    def anew(self, operators: Sequence[EOperator]) -> float:
        """What compiling kernels like these takes, from what it has taken."""
        return len(set(codegen.operator_names(operators))) * self._seconds / self._count

    def seconds(self, operator: EOperator) -> float:
        """What `get` will take for one kernel, from what it has taken."""
        (name,) = codegen.operator_names([operator])
        return 0.0 if name in self._compiled or name in self._failed or self._stored(name) else self._seconds / self._count

    def _stored(self, name: str) -> bool:
        """The kernel was compiled by an earlier process."""
        code = self._store.get(name) if self._store else None
        if code is not None:
            self._compiled[name] = code
        return code is not None

    def _one(self, name: str, operator: EOperator, stepwise: bool = False) -> bytes:
        if name in self._failed:
            raise self._failed[name]
        if name not in self._compiled and not self._stored(name):
            _load()
            start, one = time.monotonic(), {name: operator}
            try:
                with stage("compiling kernels"):
                    code = codegen.compile_stepwise(one, self.cpu) if stepwise else codegen.compile_operators(one, self.threads, self.cpu)
            except BackendError as error:
                self._keep(name, operator, error, start)
                raise self._failed[name] from None
            self._keep(name, operator, code, start)
        return self._compiled[name]

    def _keep(self, name: str, operator: EOperator, found: bytes | BackendError, start: float) -> None:
        """A kernel was compiled since `start`, or there is no code for it."""
        self._seconds, self._count = self._seconds + time.monotonic() - start, self._count + 1
        if isinstance(found, BackendError):
            self._failed[name] = codegen.NotGenerated(f"no code for {operator.scope.text()}: {found}")
            return
        self._compiled[name] = found
        if self._store:
            self._store.put(name, found)


def _load() -> None:
    """Wait until the compiler is loaded."""
    with stage("loading the compiler"):
        codegen.available()
