"""Generated kernels as object code: what a process of its own gives, in which TVM is loaded and which lives as long as this one.

It begins when it is first needed, or before by `begin`; where it dies it is begun again, and asked again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from einnet.errors import BackendError
from einnet.expr.nodes import exchange_in, tensors
from einnet.instantiate.kernels import LINE, EOperator, View, numbered
from einnet.instantiate.kernels.views import Json
from einnet.runtime.child import Answer, Child, Ended
from einnet.runtime.cpu.compiler import machine_code, serving
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.native import functions, nearness
from einnet.runtime.serial import canonical, kernel_json

ATTEMPTS = 2
"""Processes that may die at a question before it is given up."""

compiler = Child(serving.__name__)
"""The process that calls TVM."""


@cache
def generator_version() -> str:
    """A digest of the code generator's source: code of generated kernels, and their times, hold for one version of it."""
    import einnet.instantiate as package

    state = hashlib.blake2b(digest_size=8)
    modules = (*(Path(str(m.__file__)) for m in (machine_code, functions, nearness)), Path(__file__))
    for path in (*sorted((Path(str(package.__file__)).parent / "codegen").rglob("*.py")), *modules):
        state.update(path.read_bytes())
    return state.hexdigest()


class NotGenerated(BackendError):
    """An eOperator for which there is no generated code."""


def begin() -> None:
    """Have TVM loaded in the meantime."""
    with suppress(OSError):
        compiler.begin()


def rest() -> None:
    """Give TVM's memory back; the next kernel takes as long as the first one."""
    compiler.end()


def available() -> str | None:
    """None if TVM can be imported, else why not; it is loaded then."""
    try:
        missing: str | None = _answer(serving.request(serving.AVAILABLE))[0]["missing"]
    except BackendError as error:
        return str(error)
    return missing


@cache
def support_object() -> bytes:
    """The native functions, compiled. Raises BackendError."""
    return _code(_answer(serving.request(serving.SUPPORT)))


def compile_operators(operators: Mapping[str, EOperator], threads: int, cpu: str = NATIVE) -> bytes:
    """One object file with the kernels of the eOperators, for that number of threads and those processors. Raises BackendError.

    They take the addresses of the lines in which their views start, and apply only the rest of the offsets.
    """
    return _code(_answer(serving.request(serving.TOGETHER, operators, threads, cpu)))


def compile_stepwise(operators: Mapping[str, EOperator], cpu: str = NATIVE) -> bytes:
    """The same as `compile_operators` for one thread, and addresses of any elements."""
    return _code(_answer(serving.request(serving.STEPWISE, operators, cpu=cpu)))


def compile_each(
    operators: Mapping[str, EOperator], threads: int, cpu: str, look: Callable[[], object]
) -> Iterator[tuple[str, bytes | BackendError]]:  # fmt: skip
    """The object of each, or why there is none, in any order, by all processors where these are many. What is missing in the end was not compiled, as
    the process has died. `look` is called while it is waited for, and may raise."""
    with suppress(Ended, OSError):
        for told, code in compiler.ask(serving.request(serving.EACH, operators, threads, cpu), look=look):
            try:
                yield told["name"], _code((told, code))
            except BackendError as error:
                yield told["name"], error


def _answer(asked: Json) -> Answer:
    """The only answer to a question. Raises BackendError where the process dies at it."""
    how = ""
    for _ in range(ATTEMPTS):
        try:
            return compiler.one(asked)
        except Ended as ended:
            how = str(ended)
        except OSError:  # no process can be begun here
            return next(serving.answers(asked))
    raise BackendError(f"the compiler ends with {how}" + f" at {', '.join(asked['names'])}" * bool(asked["names"]))


def _code(answer: Answer) -> bytes:
    """What was answered. Raises BackendError where that is to be expected, and RuntimeError with what the generator says where it is not."""
    told, code = answer
    if "error" in told:
        raise BackendError(told["error"])
    if "failure" in told:
        raise RuntimeError(f"the code generator fails:\n{told['failure']}")
    return code


def stepwise_names(operators: Sequence[EOperator]) -> tuple[str, ...]:
    """A name for each eOperator whose views may begin at any element."""
    return tuple(f"u{name}" for name in operator_names(operators))


def operator_names(operators: Sequence[EOperator]) -> tuple[str, ...]:
    """A name for each eOperator, equal for those with equal code: names and whole lines of offsets do not count, what is shared does."""
    return tuple("e" + hashlib.blake2b(canonical(kernel_json(_nameless(op), _no_blob)).encode(), digest_size=12).hexdigest() for op in operators)


def _nameless(op: EOperator) -> EOperator:
    """The eOperator with tensors and buffers named by their place."""
    names = {name: f"T{n}" for n, (name, _) in enumerate(op.operands)}
    scope = exchange_in(op.scope, {name: replace(t, name=names[name]) for name, t in tensors(op.scope).items()})
    buffers: dict[str, str] = {}

    def view(v: View) -> View:
        return numbered(v, buffers, v.offset % LINE)

    return replace(op, scope=scope, operands=tuple((names[name], view(v)) for name, v in op.operands), out=view(op.out))


def _no_blob(_: bytes) -> int:
    raise AssertionError("an eOperator has no model")
