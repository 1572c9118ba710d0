"""A memory limit: large derived forms are given up, the least worthwhile first, and what cannot fit is refused."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace

import pytest

import einnet
from einnet.cli.arguments import size
from einnet.compile.budget import Schedule
from einnet.compile.memory_limit import by_worth, extra, footprint, restrain
from einnet.compile.program_search import search
from einnet.errors import BackendError, UsageError
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.kernels import Kernel
from einnet.runtime.cpu.program import Executable
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings
from tests.models import two_outputs


class Alike:
    """Every kernel takes a second."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1.0 for _ in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [1.0 for _ in kernels]


@pytest.fixture
def outcome() -> Outcome:
    """Two convolutions, each run in the form that holds most."""
    program = prepare(load(two_outputs()))
    found = search(program, Settings(max_depth=1, time_budget=3, threads=1), Alike(), Schedule(time.monotonic(), 3))
    largest = {r.key: max(r.choice.candidates, key=lambda c: sum(b.size for b in c.build.temporaries.values())) for r in found.results}
    found = found.choosing({r.key: replace(r.choice, best=largest[r.key]) for r in found.results})
    assert sum(r.changed for r in found.results) > 1
    return found


def test_footprint_is_what_the_program_takes(outcome):
    plan = outcome.plan(original=True)
    assert footprint(plan) == pytest.approx(Executable(plan, 1).nbytes, rel=0.35)


def test_nothing_is_given_up_within_the_limit(outcome):
    changed = [r.changed for r in outcome.results]
    outcome = restrain(outcome, footprint(outcome.plan()))
    assert [r.changed for r in outcome.results] == changed
    assert not outcome.notes


def test_a_little_less_costs_the_least_worthwhile(outcome):
    (first, *_) = by_worth(outcome)
    before = footprint(outcome.plan())
    outcome = restrain(outcome, before - 1)
    assert footprint(outcome.plan()) < before
    assert first[0].key in outcome.kept
    assert extra(first[0]) > 0
    assert "forbade what was derived for" in outcome.notes[0]


def test_nothing_derived_is_left_below_what_the_original_takes(outcome):
    outcome = restrain(outcome, 1)
    assert not any(r.changed for r in outcome.results)


def test_a_model_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    with pytest.raises(BackendError, match=r"takes 0\.\d+ MB of memory, of which 0\.0001 MB may be taken"):
        einnet.optimize(two_outputs(), time_budget=2, threads=1, max_depth=0, memory_limit=100)
    with pytest.raises(UsageError, match="memory_limit"):
        Settings(memory_limit=0)


@pytest.mark.parametrize(("text", "found"), [("1500", 1500), ("500M", 500_000_000), ("1.5G", 1_500_000_000), ("2kB", 2000)])
def test_sizes(text, found):
    assert size(text) == found


@pytest.mark.parametrize("text", ["", "M", "1T", "-3", "1,5G"])
def test_what_is_no_size(text):
    with pytest.raises(ArgumentTypeError, match="no number of bytes"):
        size(text)
