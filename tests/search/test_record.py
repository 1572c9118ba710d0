"""Forms as plain data: what is read back is equal, down to the kernels; tasks for other processes give what a search here gives."""

from __future__ import annotations

import json

import pytest

from einnet.derivation.checker.check import check
from einnet.expr.nodes import walk
from einnet.instantiate.registry import TABLES
from einnet.search.encoding import Reader, Writer
from einnet.search.remote import solution, solve, task
from einnet.search.space import Options, deepen
from tests.search.catalogue import CATALOGUE, expression

NAMES = [name for name in CATALOGUE if not name.startswith("transposed: k")]


@pytest.mark.parametrize("name", NAMES)
def test_forms_survive(name: str) -> None:
    forms, _ = deepen(expression(name), Options(max_depth=1, intensity=0.0))
    writer = Writer()
    written = [writer.form(f) for f in forms]
    tables, values = json.loads(json.dumps([writer.tables, written]))
    reader = Reader(tables, TABLES)
    assert [reader.form(v) for v in values] == forms


def test_every_part_is_written_once() -> None:
    forms, _ = deepen(expression("convolutions: conv3x3"), Options(max_depth=2, intensity=0.0))
    writer = Writer()
    for f in (*forms, *forms):
        writer.form(f)
    scopes = {s for f in forms for step in f.steps for tree in (step.before, step.after) for s in walk(tree)}
    scopes |= {s for f in forms for tree in (f.start, f.tree) for s in walk(tree)}
    assert len(writer.tables["scopes"]) == len(scopes | {s for f in forms for s, _ in f.matches})


def test_what_no_writer_has_written_is_refused() -> None:
    with pytest.raises((ValueError, KeyError, IndexError, TypeError)):
        Reader({"tensors": [], "scopes": [[[["h", 0, 3]], [], ["x", 1], "sum"]], "steps": []}, TABLES)
    writer = Writer()
    value = writer.form(deepen(expression("matmuls: matmul"), Options(max_depth=0))[0][0])
    value[2] = [[value[1], "Conv"]]
    with pytest.raises(ValueError, match="no Conv"):
        Reader(writer.tables, TABLES).form(value)


@pytest.mark.parametrize("changes", [{}, {"converge": False}, {"rules": ("sum-split",), "kinds": ("exact", "reassociation"), "few": 1}])
def test_a_task_finds_what_a_search_finds(changes: dict[str, object]) -> None:
    source, options = expression("convolutions: conv3x3"), Options(max_depth=2, intensity=0.0, **changes)  # type: ignore[arg-type]
    forms, statistics = solution(solve(task(source, options, 100.0)))
    assert (forms, statistics) == deepen(source, options)
    for f in forms[:10]:
        check(f.derivation)


def test_a_task_ends_in_time() -> None:
    forms, statistics = solution(solve(task(expression("convolutions: conv3x3"), Options(), 0.0)))
    assert statistics.stopped == "time" and statistics.stopped_at == statistics.states and any(f.matches for f in forms)
