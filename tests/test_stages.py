"""Where the time of a run goes: each moment in one stage, and all of it in some stage."""

from __future__ import annotations

import pytest

import einnet
from benchmarks.models.net import Net
from einnet import stages
from einnet.evidence.pages.times import stage_table, stages_line
from einnet.evidence.report.schema import StageRow
from einnet.stages import REST, recorded, spent, stage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch):
    """A clock that only `pass_` moves, and a processor that two threads use."""
    now = [0.0]
    monkeypatch.setattr(stages, "_now", lambda: (now[0], 2 * now[0]))

    def pass_(seconds: float) -> None:
        now[0] += seconds

    return pass_


def test_a_moment_belongs_to_the_innermost_stage(clock):
    def failing(seconds: float) -> None:
        clock(seconds)
        raise KeyError

    with recorded() as ledger:
        clock(1)
        with stage("outer"):
            clock(2)
            with stage("inner"):
                clock(4)
            clock(8)
            with pytest.raises(KeyError), stage("inner"):
                failing(16)
        clock(32)
        with stage("outer"):
            clock(64)
        assert ledger.spent() == {"outer": (74, 148), "inner": (20, 40), REST: (33, 66)}
        clock(128)
        assert spent() == ledger.spent() and ledger.spent()[REST] == (161, 322)
        assert list(ledger.spent())[-1] == REST
    assert spent() is None
    with stage("nobody records"):
        clock(1)
    assert sum(seconds for seconds, _ in ledger.spent().values()) == 256


def test_a_run_within_a_run_has_stages_of_its_own(clock):
    with recorded() as outer, stage("a"):
        with recorded() as inner, stage("a"):
            clock(1)
        clock(2)
    assert inner.spent()["a"] == (1, 2)
    assert outer.spent()["a"] == (3, 6)


def test_a_report_tells_all_stages(tmp_path, monkeypatch):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    net = Net("product", 0)
    result = einnet.optimize(net.finish(net.relu(net.conv(net.input("x", (1, 4, 6, 6)), "c", 6, 3, pad=1), "r")), time_budget=4, threads=1)
    found = result.timed.stages
    assert found is not None
    wanted = {"reading the model", "splitting", "searching", "making candidates", "proving", "building programs", "verifying", "timing programs"}
    assert wanted <= {row.stage for row in found}
    assert [row.seconds for row in found] == sorted((row.seconds for row in found), reverse=True)
    assert sum(row.seconds for row in found) > 0
    assert result.report["stages"][0]["stage"] == found[0].stage


def test_stages_are_told():
    rows = [StageRow(stage="searching", seconds=7.0, processor_s=6.5), StageRow(stage="proving", seconds=0.5, processor_s=0.25)]
    assert stages_line(rows) == " (searching 7.0)"
    assert stages_line([]) == "" and stage_table([]) == []
    assert [line.split() for line in stage_table(rows)[1:]] == [["clock", "processor"], ["searching", "7.00", "6.50"], ["proving", "0.50", "0.25"]]
