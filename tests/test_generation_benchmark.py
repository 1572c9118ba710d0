"""The benchmark of generated texts: its table, and what it says of models that there are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import generation
from benchmarks.rows import ROOT

RESULT = ROOT / "benchmarks/results/generation.json"


def case(name: str, equal: bool = True) -> dict[str, object]:
    one = {"ms": {"eager": 100.0, "inductor": 80.0}, "first_s": 12.0, "equal": True, "speedup": 1.25, "noise": 0.01}
    other = {"ms": {"eager": 104.0, "einnet": 52.0}, "first_s": 33.0, "equal": equal, "speedup": 2.0, "noise": 0.02}
    return {"name": name, "asked": {"tokens": 32}, "engines": {"inductor": one, "einnet": other}}


def test_a_row_has_both_engines_and_says_where_tokens_differ() -> None:
    lines = generation.table([case("a, static cache"), case("b, static cache", equal=False)], "a processor").splitlines()
    assert "a processor" in lines[0]
    assert lines[-2] == "| a, static cache | 32 | 104 | 80 | 1.25x | 12 s | 52 | 2.00x | 33 s | eager mode's |"
    assert lines[-1].endswith("| others by einnet |")
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_a_model_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generation.main(["gpt9"])
    assert "no model gpt9; there are gpt2, " in capsys.readouterr().err


def test_what_is_there_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def apart(module: str, given: tuple[str, ...], what: str) -> object:
        measured.append(what)
        return case("")["engines"][given[2]]  # type: ignore[index]

    monkeypatch.setattr(generation.by_row, "apart", apart)
    output = tmp_path / "g.json"
    for more, count in (([], 2), ([], 2), (["--tokens", "8"], 4), (["--fresh"], 6), (["--cache", "dynamic"], 8)):
        assert generation.main(["gpt2", *more, "-o", str(output)]) == 0
        assert len(measured) == count
    assert [c["name"] for c in json.loads(output.read_text())["cases"]] == ["gpt2, static cache", "gpt2, dynamic cache"]
    assert output.with_suffix(".md").read_text().count("| gpt2, ") == 2


def test_the_committed_table_is_of_the_committed_result() -> None:
    held = json.loads(RESULT.read_text())
    assert RESULT.with_suffix(".md").read_text() == generation.table(held["cases"], held["machine"]["cpu"])
    assert {c["name"].split(",")[0] for c in held["cases"]} == set(generation.MODELS)
