"""Changes made one at a time in forked children of one process that has imported all tests, and what becomes of them.

A child gives functions their changed code and runs the tests that execute the changed line, those first that found changes of the function before,
then the shortest, until one fails or the processor has worked for too long. What no test notices is looked at once more: by what the checker
says of many pairs (`verdicts.py`).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import pickle
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil
from pathlib import Path
from random import Random
from types import CodeType, FrameType, FunctionType, ModuleType

import pytest

from tests.derivation.test_rules import sources
from tests.mutation import verdicts
from tests.mutation.changes import Change, changes

TESTS = (
    "tests/corpus", "tests/expr", "tests/derivation", "tests/instantiate/test_match.py", "tests/instantiate/test_padding.py",
    "tests/instantiate/test_build_posts.py", "tests/instantiate/test_build_execution.py", "tests/instantiate/test_chunks.py",
    "tests/instantiate/test_stitch.py", "tests/instantiate/test_tiles.py", "--ignore=tests/derivation/test_goldens.py",
)  # fmt: skip
SLOWEST = 2.5
"""Seconds, of the processor, of a test that is left out: as it takes while it is traced, several times as long as else."""

MOST = 5.0
"""Seconds of all tests of one change, as they take unchanged; the shortest are taken."""

SLOWER = 4
"""A change that makes its tests so many times slower is found, as one that does not end."""

TOGETHER = 20
"""Tests that are traced in one child."""

OFTEN = 200
"""Calls of a function by one test of which the lines are noted."""

ALIVE = ("", "uncovered")


@dataclass(frozen=True)
class Found:
    """What became of a change: the test that fails, `timeout`, `uncovered` where no test enters the function, or nothing.

    Of what survives: what it does to the checker's verdicts (`verdicts.py`), and the first pair that shows it.
    """

    module: str
    change: Change
    by: str
    tests: int = 0
    verdicts: str = ""
    shown: str = ""

    def key(self) -> tuple[str, str, str]:
        return self.module, self.change.function, self.change.what


@dataclass
class Traced:
    """Processor seconds of a test, and the functions and lines of einnet that it executes, as `file:qualified name` and `file:number`."""

    seconds: float
    places: frozenset[str]


@dataclass(eq=False)
class Plugin:
    """Takes the collected tests, and runs them in children instead of the session."""

    modules: Sequence[str]
    sample: int
    seed: int
    cache: Path | None
    shard: tuple[int, int] = (0, 1)
    known: Sequence[verdicts.Judged] = ()
    done: Callable[[Found], None] = lambda found: None
    before: Collection[tuple[str, str, str]] = ()
    most: float = MOST
    weighed: Mapping[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    failed: bool = False
    image: Image = field(init=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items[:1]:
            self.run(item)  # what fixtures import is imported once, before any child
        sources(400)
        self.image = Image()
        items = {item.nodeid: item for item in session.items}
        traced = {name: t for name, t in self.baseline(items).items() if name in items and t.seconds <= SLOWEST}
        for name in self.modules:
            self.module(importlib.import_module(name), items, traced)
        return True

    def module(self, module: ModuleType, items: Mapping[str, pytest.Item], traced: Mapping[str, Traced]) -> None:
        path = str(module.__file__)
        mutants = list(changes(Path(path).read_text(encoding="utf-8"), path))
        if self.sample and self.sample < len(mutants):
            mutants = sorted(Random(self.seed).sample(mutants, self.sample), key=lambda c: c.line)
        finders: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for change in mutants[self.shard[0] :: self.shard[1]]:
            if (module.__name__, change.function, change.what) in self.before:
                continue
            those = chosen(change, path, traced, self.most)
            those.sort(key=lambda n: -finders[change.function][n])
            result = self.judge(module, change, [items[n] for n in those], 2 + SLOWER * sum(traced[n].seconds for n in those))
            if result.by in items:
                finders[change.function][result.by] += 1
            if result.by in ALIVE:
                result = self.weigh(module, result)
                what = f"{result.by or f'{result.tests} tests'}; {result.verdicts} {result.shown}".rstrip()
                print(f"SURVIVES {module.__name__}:{change.line} {change.function}: {change.what} ({what})", flush=True)
            self.found.append(result)
            self.done(result)

    def baseline(self, items: Mapping[str, pytest.Item]) -> dict[str, Traced]:
        """What each test executes; tests known from a former run are not run again."""
        known = remembered(self.cache) if self.cache is not None else {}
        new = [item for name, item in items.items() if name not in known]
        for n in range(0, len(new), TOGETHER):
            those = new[n : n + TOGETHER]
            answer = in_child(lambda those=those: pickle.dumps({i.nodeid: self.traced(i) for i in those}), 600)
            piece = pickle.loads(answer) if answer else {i.nodeid: Traced(float("inf"), frozenset()) for i in those}
            known |= piece
            if self.cache is not None:
                remember(self.cache, piece)
        return known

    def traced(self, item: pytest.Item) -> Traced:
        calls: Counter[CodeType] = Counter()
        lines: set[tuple[CodeType, int]] = set()

        def line(frame: FrameType, event: str, argument: object) -> object:
            if event == "line":
                lines.add((frame.f_code, frame.f_lineno))
            return line

        def call(frame: FrameType, event: str, argument: object) -> object:
            code = frame.f_code
            calls[code] += 1
            return line if calls[code] <= OFTEN and "/einnet/" in code.co_filename else None

        self.failed = False
        self.image.forget()
        with no_longer_than(SLOWEST):
            sys.settrace(call)
            self.run(item)
            sys.settrace(None)
        began = worked()
        if not self.failed:
            self.image.forget()
            self.run(item)
        seconds = worked() - began
        functions = {f"{c.co_filename}:{c.co_qualname.partition('.<locals>')[0]}" for c in calls if "/einnet/" in c.co_filename}
        places = frozenset((*functions, *(f"{c.co_filename}:{number}" for c, number in lines)))
        return Traced(float("inf") if self.failed else seconds, places)

    def run(self, item: pytest.Item) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def judge(self, module: ModuleType, change: Change, tests: Sequence[pytest.Item], seconds: float) -> Found:
        """Runs the tests until one fails, or the processor has worked for too long."""
        if not tests or (change.codes is not None and change.codes[0] not in self.image.functions):
            return Found(module.__name__, change, "uncovered")

        def child() -> bytes:
            self.image.forget()
            self.image.apply(module, change)
            for item in tests:
                self.run(item)
                if self.failed:
                    return item.nodeid.encode()
            return b"."

        answer = in_child(child, seconds)
        by = "timeout" if answer is None else "crash" if not answer else "" if answer == b"." else answer.decode()
        return Found(module.__name__, change, by, len(tests))

    def weigh(self, module: ModuleType, found: Found) -> Found:
        """A survivor with what it does to the checker's verdicts; `slower` where it takes too long."""
        if found.key() in self.weighed:
            what, shown = self.weighed[found.key()]
            return replace(found, verdicts=what, shown=shown)
        if not self.known:
            return found

        def child() -> bytes:
            self.image.forget()
            self.image.apply(module, found.change)
            return pickle.dumps(verdicts.compared(self.known))

        answer = in_child(child, 2 + SLOWER * sum(pair.seconds for pair in self.known))
        what, shown = ("slower", "") if answer is None else pickle.loads(answer) if answer else ("broken", "the process ended")
        return replace(found, verdicts=what, shown=shown)


def remember(cache: Path, piece: Mapping[str, Traced]) -> None:
    """Appends what some tests execute: what was traced before is not written again."""
    with cache.open("ab") as file:
        file.write(pickle.dumps(dict(piece)))


def remembered(cache: Path) -> dict[str, Traced]:
    """What was appended, the last of each test. A piece at the end that was cut off, where a run was stopped, is taken away."""
    known: dict[str, Traced] = {}
    if not cache.exists():
        return known
    with cache.open("r+b") as file:
        whole = 0
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                known |= pickle.load(file)
                whole = file.tell()
        file.truncate(whole)
    return known


def chosen(change: Change, path: str, traced: Mapping[str, Traced], most: float = MOST) -> list[str]:
    """The tests that execute the changed line, then those that enter its function: the shortest of each, for so many seconds in all."""
    line, function = f"{path}:{change.line}", f"{path}:{change.function}"
    if change.codes is None:
        entering = [n for n, t in traced.items() if any(p.startswith(path) for p in t.places)]
    else:
        entering = [n for n, t in traced.items() if function in t.places]
    entering.sort(key=lambda n: (line not in traced[n].places, traced[n].seconds))
    return entering[: 1 + sum(total <= most for total in accumulate(traced[n].seconds for n in entering))]


def worked() -> float:
    """Processor seconds of this process and of those that it has waited for, such as compilers."""
    return time.process_time() + sum(os.times()[2:4])


class TooSlow(BaseException):
    """A test that works for longer than it may; no test catches it."""


@contextlib.contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raises TooSlow in what works for longer, by the processor's time."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)  # again: what is raised while an object is freed is lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def in_child(work: object, seconds: float) -> bytes | None:
    """What a function returns in a forked child; None where it works for so many seconds, nothing where the child dies of something else."""
    assert callable(work)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(seconds), ceil(seconds) + 1))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        try:
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    answer = b"".join(iter(lambda: os.read(reading, 1 << 16), b""))
    os.close(reading)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return None if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU else answer


class Image:
    """The functions of einnet and the stores of results, found once. The random scopes that rules are tried on are drawn once for all children."""

    def __init__(self) -> None:
        gc.unfreeze()  # the collection of tests freezes what is imported, which is then not listed
        things = gc.get_objects()
        self.stores = [t for t in things if isinstance(t, functools._lru_cache_wrapper) and t is not sources]
        self.functions: defaultdict[CodeType, list[FunctionType]] = defaultdict(list)
        for t in things:
            if isinstance(t, FunctionType) and "/einnet/" in t.__code__.co_filename:
                self.functions[t.__code__].append(t)
        gc.freeze()

    def forget(self) -> None:
        """Results that were kept before a change."""
        for store in self.stores:
            store.cache_clear()

    def apply(self, module: ModuleType, change: Change) -> None:
        """Makes a change, wherever the function or the constant has been imported."""
        if change.codes is not None:
            before, after = change.codes
            for function in self.functions[before]:
                function.__code__ = after
            return
        old = getattr(module, change.function)
        for other in [m for name, m in sys.modules.items() if name.startswith("einnet.")]:
            if getattr(other, change.function, None) is old:
                setattr(other, change.function, change.value)
