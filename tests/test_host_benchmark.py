"""benchmarks/host.py at a test size: rows are made, written one by one, gone on with, and one that does not agree is told."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import host
from tests.models import tiny

ROWS = Path(host.ROOT / "benchmarks/results/cuda-host.json")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Rows are measured in this process, at test sizes; which, in order."""
    asked: list[tuple[str, bool]] = []

    def apart(name: str, derive: bool, options: argparse.Namespace) -> host.Row:
        asked.append((name, derive))
        return host.measure(name, derive, options.profile, options.time_budget, options.max_depth)

    monkeypatch.setattr(host, "build", tiny)
    monkeypatch.setattr(host, "apart", apart)
    return asked


def test_rows_are_made_once_and_told(here, tmp_path, capsys):
    out = tmp_path / "r.json"
    command = ["fsrcnn", "--time-budget", "1", "--max-depth", "1", "-o", str(out)]
    assert host.main(command) == 0
    assert here == [("fsrcnn", False), ("fsrcnn", True)]
    data = json.loads(out.read_text())
    assert data["on"] == "host driver, no card"
    for row in data["models"]:
        assert row["passed"]
        assert row["read_again"]
        assert 0 < row["max_rel"] < row["tolerance"]
        assert sum(row["steps_by"].values()) > 0
        assert row["by"]["profile"] == "estimate"
    assert (tmp_path / "r.md").read_text() in capsys.readouterr().out
    assert host.main(command) == 0
    assert len(here) == 2, "what is there is not made again"


def test_a_row_that_does_not_agree_is_told_and_can_be_made_again(here, monkeypatch, tmp_path, capsys):
    row = next(r for r in json.loads(ROWS.read_text())["models"] if (r["model"], r["derived"]) == ("fsrcnn", False))
    monkeypatch.setattr(host, "measure", lambda *asked: {**row, "passed": len(here) > 1, "max_rel": 0.5})
    command = ["fsrcnn", "--operators", "own", "--fresh", "-o", str(tmp_path / "r.json")]
    assert host.main(command) == 1
    assert "**5.0e-01, not within 0.001**" in capsys.readouterr().out
    assert host.main(command) == 0
    assert len(here) == 2


def test_the_committed_table_is_made_of_the_committed_rows():
    rows = json.loads(ROWS.read_text())["models"]
    assert ROWS.with_suffix(".md").read_text() == host.table(rows)
    assert {r["model"] for r in rows if not r["derived"]} == set(host.SEVEN)
    assert all(r["passed"] and r["read_again"] for r in rows)
