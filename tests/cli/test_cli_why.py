"""`explain` gives the reason of each step; `--why-not` says what differs; colour only on a terminal."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from einnet.cli.colour import STYLES, show
from einnet.derivation import einfile
from einnet.evidence.pages.why import reasons
from tests.cli.conftest import Run

GOLDENS = Path(__file__).parent.parent / "derivations"
PRODUCT = "A : f32[6,7]\nB : f32[7,8]\nL[m<6,n<8] Σ[k<7] A[m,k]*B[k,n]"


def test_reasons_tell_choices_from_what_an_operator_wants_and_from_what_is_forced() -> None:
    file = einfile.parse((GOLDENS / "g1.ein").read_text(encoding="utf-8"))
    told = dict(zip([s.rule for s in file.derivation.steps], reasons(file.derivation, file.matches), strict=True))
    assert told["sum-split"] == "a choice of the search"
    assert told["substitute"].startswith("for Matmul: ")
    assert told["tighten"].startswith("forced: ")


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.ein")), ids=lambda p: p.stem)
def test_every_step_has_a_reason(path: Path) -> None:
    file = einfile.parse(path.read_text(encoding="utf-8"))
    found = reasons(file.derivation, file.matches)
    assert len(found) == len(file.derivation.steps) and all(found)


def test_explain_says_why(einnet: Run, optimized: Path) -> None:
    told = json.loads(einnet("explain", optimized / "small.einnet", "--all", "--json", "-").out)
    steps = [s for c in told["subprograms"] for k in c["candidates"] for s in k.get("derivation", {"steps": []})["steps"]]
    assert steps and all(s["reason"] for s in steps)


def test_why_not_an_operator_and_why_not_a_rule_of_an_expression(einnet: Run) -> None:
    assert "applies: Matmul(m=m, n=n, k=k)" in einnet("derive", PRODUCT, "--why-not", "matmul").out
    assert "not: its body is no product of two reads" in einnet("derive", "L[m<6] Σ[k<7] A[m,k]", "--why-not", "Matmul").out
    assert "fewer than two iterators" in einnet("derive", PRODUCT, "--why-not", "sum-split").out
    found = json.loads(einnet("derive", PRODUCT, "--why-not", "Conv", "--json", "-").out)
    assert found[0]["applies"] or found[0]["against"]


def test_why_not_of_a_program_speaks_of_every_distinct_subprogram(einnet: Run, optimized: Path) -> None:
    report = json.loads((optimized / "report.json").read_text())
    result = einnet("explain", optimized / "small.einnet", "--why-not", "bilinear", "--json", "-")
    found = json.loads(result.out)
    assert len(found) == len({s["key"] for s in report["subprograms"]})
    assert all(p["applies"] or p["against"] for s in found for p in s["places"])
    text = einnet("explain", optimized / "small.einnet", "--why-not", "Conv").out
    assert "Conv 'conv1'" in text and "applies: " in text


def test_what_is_neither_rule_nor_operator_is_named_with_what_there_is(einnet: Run, optimized: Path) -> None:
    result = einnet("explain", optimized / "small.einnet", "--why-not", "nonsense")
    assert result.code == 2 and "sum-split" in result.err and "Matmul" in result.err


def test_colour_on_a_terminal_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "  1. by sum-split outside=r   [exact; proven: equal normal forms]\n     L[h<5] Σ[r<3] A[h+r]"
    show(text)
    assert capsys.readouterr().out == text + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show(text)
    painted = capsys.readouterr().out
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == text + "\n" and "\x1b[" in painted
    monkeypatch.setenv("NO_COLOR", "1")
    show(text)
    assert "\x1b[3" not in capsys.readouterr().out
    assert all(re.compile(pattern) for pattern, _ in STYLES)
