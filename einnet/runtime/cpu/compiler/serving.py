"""What the process that calls TVM answers: eOperators come in, object code goes out. Many are shared out to processes that it forks."""

from __future__ import annotations

import os
import pickle
import time
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from einnet.errors import BackendError
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.kernels.views import Json
from einnet.runtime.child import Answer
from einnet.runtime.cpu import helpers
from einnet.runtime.cpu.compiler import machine_code
from einnet.runtime.cpu.levels import NATIVE

AVAILABLE, SUPPORT, TOGETHER, EACH, STEPWISE = "available", "support", "together", "each", "stepwise"
"""What can be asked for: what keeps TVM from being imported, the native functions, one object of some kernels, an object of each, and one of
kernels whose operands begin anywhere."""

WORTH_SHARING = 8
"""Kernels that are compiled in several processes: of fewer, one process is as soon done."""

PATIENCE = 4.0
"""Times what this process took for its share, for which it waits for the others' before it does them itself."""

Operators = Mapping[str, EOperator]


def load() -> None:
    """Import what compiling needs."""
    if machine_code.available() is None:
        machine_code.load()


def request(what: str, operators: Operators | None = None, threads: int = 1, cpu: str = NATIVE) -> Json:
    """The question for code of kernels by their names."""
    named = dict(operators or {})
    return {"what": what, "names": [*named], "kernels": b64encode(pickle.dumps(named)).decode(), "threads": threads, "cpu": cpu}


def answers(asked: Json) -> Iterator[Answer]:
    """The code that was asked for, or why there is none: an "error" that is to be expected, or a "failure" of the generator."""
    what, cpu, threads = asked["what"], asked["cpu"], asked["threads"]
    if what == AVAILABLE:
        yield {"missing": machine_code.available()}, b""
    elif what == SUPPORT:
        yield answered(machine_code.support_object)
    elif what == STEPWISE:
        yield answered(lambda: machine_code.compile_stepwise(operators(asked), cpu))
    elif what == TOGETHER:
        yield answered(lambda: machine_code.compile_operators(operators(asked), threads, cpu))
    else:
        each = operators(asked)
        for name, (told, code) in shared_out([*each], lambda n: answered(lambda: machine_code.compile_operators({n: each[n]}, threads, cpu))):
            yield {**told, "name": name}, code


def operators(asked: Json) -> dict[str, EOperator]:
    """The kernels of a question."""
    found: dict[str, EOperator] = pickle.loads(b64decode(asked["kernels"]))
    return found


def answered(code: Callable[[], bytes]) -> Answer:
    """The code, or what went wrong."""
    try:
        return {}, code()
    except BackendError as error:
        return {"error": str(error)}, b""
    except Exception:  # a defect, which is told where it is asked for
        return {"failure": traceback.format_exc()}, b""


def shared_out(names: list[str], answer: Callable[[str], Answer]) -> Iterator[tuple[str, Answer]]:
    """Each name with its answer, in any order; many of them by all processors. What another process does not do, or not well, is done here."""
    count = helpers.processors() if len(names) >= WORTH_SHARING else 1
    begin, here = time.monotonic(), os.getpid()
    with TemporaryDirectory() as folder:

        def elsewhere(name: str) -> None:
            if os.getppid() != here:
                os._exit(0)
            told, code = answer(name)
            if not told:
                (draft := Path(folder, f"{name}.draft")).write_bytes(code)
                draft.replace(Path(folder, name))

        with helpers.helping([names[n::count] for n in range(1, count)], elsewhere) as others:
            for name in names[::count]:
                yield name, answer(name)
            helpers.awaited(others, PATIENCE * (time.monotonic() - begin), lambda: None)
        for name in (name for n, name in enumerate(names) if n % count):
            file = Path(folder, name)
            yield name, ({}, file.read_bytes()) if file.exists() else answer(name)
