"""Mutation testing: python -m tests.mutation MODULE ... [--sample N], for modules such as einnet.derivation.check, or `make mutants`.

Every change of `changes.py` is made in a forked child of one process that has imported all tests, by giving functions their changed code; the child
runs the tests that enter the changed function, those first that found changes of it before, then the shortest, until one fails or time is up.
What survives is compared with `explained.tsv`: changes that make no difference to what is computed, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import os
import pickle
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from pathlib import Path
from random import Random
from types import CodeType, FrameType, FunctionType, ModuleType

import pytest

from tests.mutation.changes import Change, changes

HERE = Path(__file__).parent
EXPLAINED = HERE / "explained.tsv"
TESTS = (
    "tests/corpus", "tests/expr", "tests/derivation", "tests/instantiate/test_match.py", "tests/instantiate/test_padding.py",
    "tests/instantiate/test_build_posts.py", "tests/instantiate/test_build_execution.py", "tests/instantiate/test_chunks.py",
    "tests/instantiate/test_stitch.py", "tests/instantiate/test_tiles.py", "--ignore=tests/derivation/test_goldens.py",
)  # fmt: skip
SLOWEST = 2.5
"""Seconds, of the processor, of a test that is left out."""

MOST = 10.0
"""Seconds of all tests of one change, as they take unchanged; the shortest are taken."""

SLOWER = 4
"""A change that makes its tests so many times slower is found, as one that does not end."""

TOGETHER = 20
"""Tests that are traced in one child."""


@dataclass
class Found:
    """What became of a change: the test that fails, `timeout`, `uncovered` where no test enters the function, or nothing."""

    module: str
    change: Change
    by: str
    tests: int = 0

    def key(self) -> tuple[str, str, str]:
        return self.module, self.change.function, self.change.what


@dataclass
class Plugin:
    """Takes the collected tests, and runs them in children instead of the session."""

    modules: Sequence[str]
    sample: int
    seed: int
    cache: Path | None
    shard: tuple[int, int] = (0, 1)
    found: list[Found] = field(default_factory=list)
    failed: bool = False
    image: Image = field(init=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.image = Image()
        items = {item.nodeid: item for item in session.items}
        known = self.baseline(items)
        fast = {name: (seconds, entered) for name, (seconds, entered) in known.items() if name in items and seconds <= SLOWEST}
        for name in self.modules:
            module = importlib.import_module(name)
            path = str(module.__file__)
            mutants = list(changes(Path(path).read_text(encoding="utf-8"), path))
            if self.sample and self.sample < len(mutants):
                mutants = sorted(Random(self.seed).sample(mutants, self.sample), key=lambda c: c.line)
            finders: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for change in mutants[self.shard[0] :: self.shard[1]]:
                place = f"{path}:{change.function}" if change.codes else path
                those = [n for n, (_, entered) in fast.items() if (place in entered if change.codes else any(e.startswith(path) for e in entered))]
                those.sort(key=lambda n: fast[n][0])
                those = those[: 1 + sum(total <= MOST for total in accumulate(fast[n][0] for n in those))]
                those.sort(key=lambda n: (-finders[change.function][n], fast[n][0]))
                limit = 2 + SLOWER * sum(fast[n][0] for n in those)
                result = self.judge(module, change, [items[n] for n in those], limit)
                if result.by in items:
                    finders[change.function][result.by] += 1
                self.found.append(result)
                if result.by in ("", "uncovered"):
                    print(f"SURVIVES {name}:{change.line} {change.function}: {change.what} ({result.by or f'{result.tests} tests'})", flush=True)
            of_module = [f for f in self.found if f.module == name]
            print(f"{name}: {len(of_module)} changes, {sum(f.by in ('', 'uncovered') for f in of_module)} survive", flush=True)
        return True

    def baseline(self, items: dict[str, pytest.Item]) -> dict[str, tuple[float, frozenset[str]]]:
        """Seconds of each test, and the functions that it enters, as `file:qualified name`; tests known from a former run are not run again."""
        known: dict[str, tuple[float, frozenset[str]]] = {}
        if self.cache is not None and self.cache.exists():
            known = pickle.loads(self.cache.read_bytes())
        new = [item for name, item in items.items() if name not in known]
        for n in range(0, len(new), TOGETHER):
            those = new[n : n + TOGETHER]
            answer = in_child(lambda those=those: pickle.dumps({i.nodeid: self.traced(i) for i in those}), 600)
            known |= pickle.loads(answer) if answer else {i.nodeid: (float("inf"), frozenset()) for i in those}
        if self.cache is not None and new:
            self.cache.write_bytes(pickle.dumps(known))
        return known

    def traced(self, item: pytest.Item) -> tuple[float, frozenset[str]]:
        codes: set[CodeType] = set()

        def trace(frame: FrameType, event: str, argument: object) -> None:
            codes.add(frame.f_code)

        self.failed = False
        self.image.forget()
        sys.settrace(trace)
        began = time.process_time()
        self.run(item)
        seconds = time.process_time() - began
        sys.settrace(None)
        entered = frozenset(f"{c.co_filename}:{c.co_qualname.partition('.<locals>')[0]}" for c in codes if "/einnet/" in c.co_filename)
        return float("inf") if self.failed else seconds, entered

    def run(self, item: pytest.Item) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def judge(self, module: ModuleType, change: Change, tests: Sequence[pytest.Item], seconds: float) -> Found:
        """Runs the tests until one fails, or the processor has worked for too long."""
        if not tests:
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
    """The functions of einnet and the stores of results, found once."""

    def __init__(self) -> None:
        things = gc.get_objects()
        self.stores = [t for t in things if isinstance(t, functools._lru_cache_wrapper)]
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


def explained() -> dict[tuple[str, str, str], str]:
    """Reasons by module, function and change."""
    rows = (line.split("\t") for line in EXPLAINED.read_text(encoding="utf-8").splitlines()) if EXPLAINED.exists() else ()
    return {(module, function, what): why for module, function, what, why in rows}


def modules_of(names: Iterable[str]) -> Iterator[str]:
    """A package stands for its modules."""
    for name in names:
        module = importlib.import_module(name)
        if not hasattr(module, "__path__"):
            yield name
            continue
        root = Path(module.__path__[0])
        for path in sorted(root.rglob("*.py")):
            if path.name != "__init__.py":
                yield ".".join((name, *path.relative_to(root).with_suffix("").parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--sample", type=int, default=0, help="changes of each module, drawn at random; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", default=TESTS)
    parser.add_argument("--cache", type=Path, help="keeps what tests enter from one run to the next")
    parser.add_argument("--json", type=Path, help="writes what was found")
    parser.add_argument("--shard", default="0/1", help="such as 0/2 and 1/2 for two processes")
    options = parser.parse_args()
    part, _, parts = options.shard.partition("/")
    plugin = Plugin(list(modules_of(options.modules)), options.sample, options.seed, options.cache, (int(part), int(parts)))
    pytest.main(["-p", "no:cacheprovider", "-p", "no:terminal", *options.tests], plugins=[plugin])
    reasons = explained()
    alive = [f for f in plugin.found if f.by in ("", "uncovered")]
    open_ = [f for f in alive if f.key() not in reasons]
    by_module = Counter(f.module for f in plugin.found)
    for name, count in by_module.items():
        mine = [f for f in alive if f.module == name]
        told = sum(f.key() in reasons for f in mine)
        print(f"{name}: {count} changes, {count - len(mine)} found, {told} explained, {len(mine) - told} open")
    if options.json:
        rows = [
            {"module": f.module, "line": f.change.line, "function": f.change.function, "change": f.change.what, "found by": f.by,
             "explained": reasons.get(f.key(), "")}
            for f in plugin.found
        ]  # fmt: skip
        options.json.write_text(json.dumps(rows, indent=0, ensure_ascii=False), encoding="utf-8")
    return 1 if open_ else 0


if __name__ == "__main__":
    sys.exit(main())
