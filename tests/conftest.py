"""What a run leaves out is said before its summary; random tests are reproducible; every process of a run has a database and signals of its own."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import pytest
from hypothesis import settings

# numpy reads it when it is imported, here and in processes that tests start: there are as many processes as processors.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

OPTIONAL = ("slow", "gpu")
ROUNDS, COMPARING_S = 12, 0.25
"""Of a comparison of programs."""
LONG = (
    "tests/compile/cuda/test_artifacts.py", "tests/test_forced.py", "tests/graph/test_recurrent_operators.py",
    "tests/instantiate/test_codegen_running.py", "tests/runtime/test_onnx_out.py", "tests/compile/test_budget.py",
    "tests/api/test_turns.py", "tests/cli/test_cli_programs.py", "tests/compile/test_grid.py", "tests/compile/test_numpy_target.py",
    "tests/compile/cuda/test_target.py", "tests/compile/test_onnx_part.py", "tests/compile/cuda/test_recording.py",
    "tests/compile/cuda/test_forms.py", "tests/compile/cuda/test_attention_layer.py", "tests/docs/test_site.py",
    "tests/compile/test_bundling.py",
)  # fmt: skip
"""Files that take long for few tests, by processor time: where files are shared out to processes, these are the first, then those of many tests."""
LEFT_OUT: pytest.StashKey[Counter[str]] = pytest.StashKey()

settings.register_profile("einnet", deadline=None, derandomize=True)
settings.load_profile("einnet")


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what runs in the background with Ctrl-C ignored, and children inherit it: tests press Ctrl-C, so it is taken again."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_database(tmp_path_factory: pytest.TempPathFactory):
    """Nothing is recalled from an earlier run or from the user's own database, and processes of one run do not share one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINNET_CACHE", str(tmp_path_factory.mktemp("database")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_takeover():
    """ONNX Runtime takes no model over: what a test sees of a program does not depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("einnet.compile.targets.cpu.contest.behind", lambda times: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_hurry():
    """Nothing is given up for want of time: how fast the machine is decides nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("einnet.compile.pipeline.begun", lambda: inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def _few_rounds():
    """Whole programs are compared in a few short rounds without pauses, where a run takes all the seconds of its budget for that, two at least, and
    a kernel has 5 ms: no test asks how fast anything is, and more samples of two processes on two cores say no more."""
    from einnet.compile.export import onnx_file
    from einnet.compile.targets.cpu import acceptance, rounded_products
    from einnet.evidence.comparison import verify
    from einnet.runtime import timing
    from einnet.runtime.costs import CpuCost

    compare = timing.compare

    def shortly(callables: Mapping[str, Callable[[], object]], budget_s: float = 2.0, **options: Any) -> timing.Comparison:
        return compare(callables, min(budget_s, COMPARING_S), **{**options, "most": ROUNDS, "sample_s": timing.SAMPLE_S})

    with pytest.MonkeyPatch.context() as patch:
        for module in (timing, verify, rounded_products):
            patch.setattr(module, "compare", shortly)
        for module in (verify, onnx_file):
            patch.setattr(module, "SETTLE_S", timing.PAUSE_S)
        for module in (verify, rounded_products):
            patch.setattr(module, "WARM_S", timing.SAMPLE_S)
        patch.setattr(acceptance, "MOST", ROUNDS)
        patch.setitem(CpuCost.__init__.__kwdefaults__, "budget_s", 0.005)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_core_is_watched():
    """Where a host puts the cores of this machine decides nothing."""
    from einnet.runtime.contention import CORES, Cores

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CORES, "watch", lambda *probes: None)
        patch.setattr("benchmarks.contest.compare.watched", lambda threads: Cores())
        yield


@pytest.fixture(scope="session", autouse=True)
def measure_machine():
    """The function that measures the machine. In its place stands one machine, about a core of today: estimates depend on none, and no database
    begins with a measurement."""
    from einnet.runtime.cpu import roofline

    one = roofline.Machine(peak=6e10, bandwidth=8e9, launch=2e-6)
    with pytest.MonkeyPatch.context() as patch:
        measure = roofline.measure_machine
        patch.setattr(roofline, "measure_machine", lambda threads: (one, True))
        patch.setattr(roofline, "own_cache", lambda: 1 << 20)
        patch.setattr(roofline, "last_level_cache", lambda: 1 << 25)
        yield measure


def pytest_collection_finish() -> None:
    """What is imported by now lives as long as the run: the garbage collector need not go through it again and again.

    Trees of expressions are made by the million and hold few cycles, so it looks seldom: a seventh of the processor time of these tests otherwise.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def shared_out(items: list[pytest.Item]) -> Callable[[pytest.Item], tuple[int, int]]:
    """The order of files: so that no long one is the last, for which all other processes wait."""
    place = {name: n for n, name in enumerate(LONG)}
    count = Counter(file_of(item) for item in items)
    return lambda item: (place.get(file_of(item), len(LONG)), -count[file_of(item)])


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    """Count the optional tests that -m takes out, and put the files in the order in which they are shared out to processes."""
    collected = list(items)
    result = yield
    kept = set(items)
    if hasattr(config, "workerinput"):
        items.sort(key=shared_out(items))
    config.stash[LEFT_OUT] = Counter(mark for item in collected if item not in kept for mark in OPTIONAL if item.get_closest_marker(mark))
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells what it leaves out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left out"] = dict(session.config.stash.get(LEFT_OUT, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """All workers collect the same, so that one of them tells for all."""
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out", {}))


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line that names what does not run; what fails is listed in the order of the files, whichever process ran it."""
    for kind in ("failed", "error"):
        terminalreporter.stats.get(kind, []).sort(key=lambda report: report.nodeid)
    counts = config.stash.get(LEFT_OUT, Counter())
    if counts:
        terminalreporter.write_line("left out by markers: " + ", ".join(f"{n} {mark}" for mark, n in counts.items()))
