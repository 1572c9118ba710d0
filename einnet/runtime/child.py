"""Processes of ours that do what is better done in another one: what may end it, or a library that takes much memory, or long to load.

A request is a line of JSON on the child's standard input. Answers are lines of JSON, {"bytes", ...}, each before so many bytes; `null` ends them.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

Json = Any
Answer = tuple[dict[str, Json], bytes]
Look = Callable[[], object]

LOOK_S = 0.05
"""Seconds between two looks at whether to go on waiting."""

ORPHAN_S = 0.5
"""Seconds between two looks of a child at whether its parent is there."""

PIECE = 1 << 16
"""Bytes that are read at once."""

BEGIN = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from einnet.runtime.child import main
main(sys.argv[2], int(sys.argv[3]))
"""
"""The child's program. It imports from where its parent does, and leaves Ctrl-C to that."""

FLAGS = {"-E": "ignore_environment", "-S": "no_site", "-s": "no_user_site"}
"""Flags of the interpreter that a child has in common with its parent."""


class Ended(Exception):
    """The child has ended before it had answered."""

    def __init__(self, status: int) -> None:
        super().__init__(f"signal {-status}" if status < 0 else f"status {status}")


class Child:
    """A process that answers one request after the other by the function `answers` of a module, when its `load` is done.

    It begins by `begin` or with the first request, and anew where it has ended. It ends with this process, however that ends. Threads may share it,
    and a forked process has one of its own.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.forget()
        _children.add(self)

    def forget(self) -> None:
        """There is none: what was begun by the process that forked this one goes on answering that."""
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()

    def begin(self) -> None:
        """Have it load what it needs in the meantime. Raises OSError where no process can be begun."""
        with self._turn:
            self._running()

    def ask(self, request: Json, seconds: float = inf, look: Look = lambda: None) -> Iterator[Answer]:
        """The answers to a request as they come. `look` is called while they are waited for, and may raise.

        Raises TimeoutError where they take longer than `seconds`, Ended where the process does not live that long, and OSError where none can be
        begun. A process whose answers are not all taken is ended.
        """
        until = time.monotonic() + seconds
        with self._turn:
            process = self._running()
            try:
                yield from _exchange(process, request, until, look)
            except (EOFError, BrokenPipeError):
                raise Ended(process.wait()) from None
            except BaseException:  # also where not all answers are taken
                self._end()
                raise

    def one(self, request: Json, seconds: float = inf) -> Answer:
        """The only answer to a request. Raises as `ask` does."""
        (answer,) = self.ask(request, seconds)
        return answer

    def end(self) -> None:
        """End it and free its memory, once it has answered who asks now."""
        with self._turn:
            self._end()

    @property
    def number(self) -> int | None:
        """Of the process; None where there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            flags = [flag for flag, name in FLAGS.items() if getattr(sys.flags, name)]
            places = [str(place or os.getcwd()) for place in sys.path]
            root = str(Path(__file__).parents[2])
            given = json.dumps(places if root in places else [*places, root]), self.module, str(os.getpid())
            self._process = subprocess.Popen(
                [sys.executable, "-P", *flags, "-c", BEGIN, *given], bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)


_children: WeakSet[Child] = WeakSet()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _exchange(process: subprocess.Popen[bytes], request: Json, until: float, look: Look) -> Iterator[Answer]:
    """Ask, and read the answers. Raises EOFError or BrokenPipeError where the process ends."""
    assert process.stdin is not None and process.stdout is not None
    left, pipe = memoryview(json.dumps(request).encode() + b"\n"), process.stdout.fileno()
    while left:
        left = left[process.stdin.write(left) :]
    held = b""
    while True:
        while b"\n" not in held:
            held += _some(pipe, until, look)
        line, _, held = held.partition(b"\n")
        told = json.loads(line)
        if told is None:
            return
        pieces, missing = [held], int(told["bytes"]) - len(held)
        while missing > 0:
            pieces.append(_some(pipe, until, look))
            missing -= len(pieces[-1])
        whole = b"".join(pieces)
        data, held = whole[: int(told["bytes"])], whole[int(told["bytes"]) :]
        yield told, data


def _some(fd: int, until: float, look: Look) -> bytes:
    """What can be read next. Raises TimeoutError, or EOFError where there is nothing more."""
    while not select.select([fd], [], [], max(min(LOOK_S, until - time.monotonic()), 0.0))[0]:
        look()
        if time.monotonic() >= until:
            raise TimeoutError
    found = os.read(fd, PIECE)
    if not found:
        raise EOFError
    return found


def _end_all() -> None:
    for child in list(_children):
        child._end()


def _after_fork() -> None:
    """What the parent began is the parent's: the pipes are closed here, and nobody is ended or waited for."""
    for child in list(_children):
        process = child._process
        if process is not None:
            process.returncode = 0
            _close_pipes(process)
        child.forget()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ------------------------------------------------------------------------------------------------------------------- in the child


def main(module: str, parent: int) -> None:
    """Answer requests until there are no more, or nobody is there who asks. What libraries print goes to the error stream."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answering = import_module(module)
    answering.load()
    answer: Callable[[Json], Iterable[Answer]] = answering.answers
    for line in sys.stdin.buffer:
        for told, data in answer(json.loads(line)):
            _write(answers, json.dumps({**told, "bytes": len(data)}).encode() + b"\n" + data)
        _write(answers, b"null\n")


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()


def _watch(parent: int) -> None:
    """End with the parent, also with one that was killed: what others have forked from it may hold the pipes open."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_S)
    os.kill(os.getpid(), signal.SIGKILL)
