"""Groups that would be written out too long are cut: into parts that are short, that are the group together, and that compute the same."""

from __future__ import annotations

from math import inf
from random import Random

import numpy as np
import onnx
import pytest

from einnet.graph import cuts
from einnet.graph.cuts import bounded
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import _Grouping, subprograms
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.program import Executable
from einnet.search.choosing.making import candidates
from einnet.search.space import Options
from tests.drawn import plan_of_any
from tests.graph.cases import reference


def parsed(lines: str, outputs: str) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]>\nmodel (float[3, 4] x) => ({outputs}) {{\n{lines}\n}}'
    return onnx.parser.parse_model(text)


def gated(blocks: int) -> onnx.ModelProto:
    """x·cos(x), again and again: written out, each block reads twice what stands before it."""
    lines, last = [], "x"
    for n in range(blocks):
        lines += [f"c{n} = Cos ({last})", f"y{n} = Mul ({last}, c{n})"]
        last = f"y{n}"
    return parsed("\n".join(lines), f"float[3, 4] {last}")


def running(steps: int) -> onnx.ModelProto:
    """A state that is read by the next one and by what is given out of it: no value but the last is all that another part needs."""
    lines, states = [], ["x"]
    for n in range(steps):
        lines += [f"g{n} = Cos ({states[-1]})", f"s{n} = Mul (g{n}, {states[-1]})", f"o{n} = Sin (s{n})"]
        states.append(f"s{n}")
    total = ", ".join(f"o{n}" for n in range(steps))
    return parsed("\n".join([*lines, f"y = Concat <axis = 0> ({total})"]), f"float[{3 * steps}, 4] y")


def length(program: Program) -> int:
    return max(cuts._Cuts(program).length({program.nodes.index(n) for n in s.nodes}) for s in subprograms(program))


@pytest.mark.parametrize("model", [gated(12), running(10)], ids=["gated", "running"])
def test_parts_are_short_and_compute_the_same(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    program = prepare(load(model))
    known = {t.name for t in program.inputs} | set(program.weights)
    for part in subprograms(program):
        assert set(part.inputs) <= known, "producers first"
        known.add(part.output.name)
    assert {out for _, out in program.outputs} <= known
    assert length(program) <= cuts.MOST_READS
    monkeypatch.setattr(cuts, "MOST_READS", inf)
    whole = prepare(load(model))
    assert length(whole) > 512, "it would be long"
    assert len(subprograms(whole)) < 4
    monkeypatch.undo()
    cost = CpuCost(1, measure=False)
    plan = plan_of_any(program, Options(max_depth=0), lambda forms: min(candidates(forms, cost.estimates), key=lambda c: c.cost))
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for name, wanted in reference(model, {"x": x}).items():
        np.testing.assert_allclose(Executable(plan, 1)({"x": x})[name], wanted, rtol=1e-5, atol=1e-6)


def test_it_is_cut_where_the_longer_part_is_shortest() -> None:
    program = load(gated(12))
    parts = sorted(bounded(program, {23: set(range(24))}).values(), key=min)
    assert sorted(k for part in parts for k in part) == list(range(24))
    lengths = [cuts._Cuts(program).length(part) for part in parts]
    assert max(lengths) <= 512 and len(parts) == 2 and max(lengths) < 2 * min(lengths) + 2


def test_what_is_short_stays_whole() -> None:
    program = load(gated(4))
    members = {7: set(range(8))}
    assert bounded(program, members) == members


def test_reads_are_counted_as_they_are_written() -> None:
    program = load(gated(3))
    found = cuts._Cuts(program)
    assert [found.length(set(range(n))) for n in (1, 2, 3, 4)] == [1, 3, 4, 9]


def in_turn(count: int) -> onnx.ModelProto:
    """A chain of nodes of which each reads the one before."""
    lines = [f"v{n + 1} = {('Sin', 'Relu', 'Tanh')[n % 3]} (v{n})" for n in range(count)]
    return parsed("\n".join(["v0 = Identity (x)", *lines]), f"float[3, 4] v{count}")


@pytest.mark.parametrize("count", [98, 400])
def test_a_long_chain_is_cut_before_python_ends_the_calls_that_follow_it(count: int) -> None:
    program = prepare(load(in_turn(count)))
    found = subprograms(program)
    assert sum(len(part.nodes) for part in found) == len(program.nodes)
    assert all(part.key and str(part.expression) for part in found)


def test_a_long_chain_in_which_each_value_is_read_twice_is_cut() -> None:
    """Written out it is as long as a power of two."""
    lines = [f"v{n + 1} = {('HardSwish', 'Softsign')[n % 2]} (v{n})" for n in range(90)]
    program = prepare(load(parsed("\n".join(["v0 = Identity (x)", *lines]), "float[3, 4] v90")))
    assert sum(len(part.nodes) for part in subprograms(program)) == len(program.nodes)


def drawn(seed: int) -> onnx.ModelProto:
    """Sums and cosines of what stands shortly before."""
    chance, names, lines = Random(seed), ["x"], []
    for n in range(chance.randint(5, 22)):
        one, other = (chance.choice(names[-4:]) for _ in range(2))
        lines.append(f"v{n} = " + (f"Cos ({one})" if chance.random() < 0.4 else f"Add ({one}, {other})"))
        names.append(f"v{n}")
    return parsed("\n".join(lines), f"float[3, 4] {names[-1]}")


def best_of_all(found: cuts._Cuts, group: set[int]) -> set[int] | None:
    """What is best of all ways, each written out."""

    def before(last: int) -> set[int] | None:
        part, pending = {last}, [last]
        while pending:
            new = found.read_by(pending.pop(), group).keys() - part
            part |= new
            pending += new
        return None if any(found.read_by(k, group).keys() & (part - {last}) for k in group - part) else part

    ways = [(max(found.length(b), found.length(group - b)), k, b) for k in sorted(group)[:-1] if (b := before(k))]
    return min(ways, key=lambda way: way[:2])[2] if ways else None


@pytest.mark.parametrize("block", range(4))
def test_the_best_cut_is_that_of_all_ways(block: int) -> None:
    for seed in range(block, 80, 4):
        program = load(drawn(seed))
        found = cuts._Cuts(program)
        for group in _Grouping(program).members.values():
            assert found.best(set(group)) == best_of_all(found, set(group)), seed


def test_a_chain_of_thousands_is_cut_without_a_look_at_every_pair() -> None:
    program = load(in_turn(5000))
    calls, read = [0], cuts._Cuts.read_by

    class Counted(cuts._Cuts):
        def read_by(self, k: int, group: set[int]) -> dict[int, int]:
            calls[0] += 1
            return read(self, k, group)

    assert len(Counted(program).parts(set(range(len(program.nodes))))) > 50
    assert calls[0] < 1e6
