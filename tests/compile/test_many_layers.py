"""What is alike in the layers of a model is looked at once: work grows with the kinds of subprograms, not with how many there are. No times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from benchmarks.models.net import Net
from benchmarks.models.sequential import transformer
from einnet.evidence.report import assemble
from einnet.evidence.report.assemble import subprogram_report, subprogram_reports
from einnet.expr.nodes import Scope
from einnet.graph import bundle, chains, split
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import Subprogram, combine, pieces, subprograms
from einnet.records import changed
from einnet.search.choosing.choose import choose
from einnet.search.forms import plain
from einnet.search.outcome import Result, canonical, result


def layers(many: int) -> Program:
    return prepare(load(transformer(sequence=6, hidden=8, heads=2, layers=many)))


def counting(patch: pytest.MonkeyPatch, place: Any, name: str) -> list[object]:
    """What a function of a module is asked for from now on."""
    asked: list[object] = []
    function: Callable[..., object] = getattr(place, name)

    def counted(*args: object, **named: object) -> object:
        asked.append(args[0])
        return function(*args, **named)

    patch.setattr(place, name, counted)
    return asked


def test_a_program_is_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program, asked = layers(1), counting(monkeypatch, split, "_pieces")
    first, second = pieces(program), pieces(program)
    assert first == second and asked == [program]
    first.clear()
    assert pieces(program) == second, "a list that somebody changes is that caller's own"
    pieces(layers(1))
    assert len(asked) == 2, "another program is cut by itself"


def test_what_chains_take_is_found_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for many in (3, 9):
        with monkeypatch.context() as patch:
            asked = counting(patch, chains, "passes")
            cut = subprograms(layers(many))
        found.append(len(asked))
        assert len({p.key for p in cut}) < len(cut)
    assert found[0] == found[1] > 0


def results(program: Program) -> list[Result]:
    """Every subprogram with a choice that is made once for equal ones."""
    choices: dict[str, Any] = {}
    for p in subprograms(program):
        if p.key not in choices:
            expression: Scope = canonical(p.expression)
            choices[p.key] = choose(expression, [plain(expression)], lambda ks: [1.0] * len(ks), lambda ks, _: [1.0] * len(ks))
    return [result(p, choices[p.key]) for p in subprograms(program)]


def test_equal_subprograms_are_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(layers(3))
    found[-1] = Result(found[-1].subprogram, found[-1].names, found[-1].choice, use_original=True)
    wanted = [subprogram_report(r) for r in found]
    asked = counting(monkeypatch, assemble, "subprogram_report")
    assert subprogram_reports(found) == wanted
    assert len(asked) <= len({r.key for r in found}) + 1 < len(found)
    assert changed(wanted[0], output="other") != wanted[0]


def test_what_depends_on_what_is_told_as_by_walking() -> None:
    """Random graphs of sums: a subprogram needs another one just where a walk along what nodes read comes to it."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        net = Net("graph", seed)
        values = [net.input("x", (3, 3))]
        for n in range(12):
            a, b = (values[int(random.integers(len(values)))] for _ in range(2))
            values.append(net.matmul(a, b, f"m{n}"))
        program = load(net.finish(*values[1:]))
        parts = [combine([node]) for node in program.expression_nodes()]
        graph = bundle._Graph(program, parts)
        reads = {p.output.name: set(p.inputs) for p in parts}

        def leads(a: Subprogram, b: Subprogram, reads: dict[str, set[str]] = reads) -> bool:
            waiting, seen = [b.output.name], set[str]()
            while waiting:
                name = waiting.pop()
                if name not in seen:
                    seen.add(name)
                    waiting += reads.get(name, ())
            return a.output.name in seen

        told = {(a.output.name, b.output.name): graph.independent(a, b) for a, b in combinations(parts, 2)}
        assert told == {(a.output.name, b.output.name): not (leads(a, b) or leads(b, a)) for a, b in combinations(parts, 2)}
        assert len(set(told.values())) == 2
