"""The report page: a subprogram that runs as something else stands beside what it was, and every number is the report's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from einnet.derivation import einfile
from einnet.derivation.checker.check import check
from einnet.evidence.certificate import Entry
from einnet.evidence.pages.proof_text import explain
from einnet.evidence.pages.report_page import report_page
from einnet.evidence.pages.story import story
from einnet.evidence.pages.story_schema import Story
from einnet.evidence.report.schema import CandidateRow, Report
from einnet.records import changed
from tests.evidence.pages.conftest import Opened
from tests.filled import filled

GOLDEN = Path(__file__).parents[2] / "derivations" / "g1.ein"


def kernel(name: str, key: str, ms: float) -> dict[str, Any]:
    """A kernel in its place, at a tenth of the peak and half of the bandwidth."""
    shares = {"share_of_peak": 0.1, "share_of_bandwidth": 0.5}
    rates = {"flops": round(1e6 * ms * 46), "bytes": round(1e6 * ms * 28), "gflops": 46.0, "gbs": 28.0, **shares}
    return {"kernel": name, "key": key, "nodes": ["Conv 'c'"], "ms": ms, "predicted_ms": ms, "estimated": False, **rates}


def candidate(operators: list[str], ms: float | None, chosen: bool = False, original: bool = False) -> dict[str, Any]:
    return {"operators": operators, "rules": ["sum-split"], "predicted_ms": 0.5, "measured_ms": ms, "chosen": chosen, "original": original}


def told() -> tuple[Report, Story]:
    """The report of a model of two subprograms, the first changed by the golden derivation, and its story."""
    file = einfile.parse(GOLDEN.read_text(encoding="utf-8"))
    entry = Entry("k1", file.derivation, tuple(check(file.derivation)), file.matches)
    common = {"nodes": ["Conv 'c'"], "states": 99}
    changed = {
        **common, "key": "k1", "changed": True, "expression": file.derivation.start.text(), "measured_ms": 0.4, "original_ms": 1.0,
        "kernels": [{"kernel": "Matmul 3136x64x576", "ms": 0.3}, {"kernel": "eOperator <sum>", "ms": 0.1}],
        "original_kernels": [{"kernel": "Conv3x3 64@56x56->64", "ms": 1.0}],
        "candidates": [candidate(["Matmul(m=t, n=f, k=c)"], 0.4, chosen=True), candidate(["Conv(o=h*w)"], 1.0, original=True), candidate([], 2.5)],
    }  # fmt: skip
    kept = {
        **common, "key": "k2", "changed": False, "nodes": ["Relu 'r'"], "expression": "L[h<4] relu(x[h])", "measured_ms": 0.2, "original_ms": 0.2,
        "kernels": [{"kernel": "eOperator relu", "ms": 0.2}], "original_kernels": [{"kernel": "eOperator relu", "ms": 0.2}],
        "candidates": [candidate([], 0.2, chosen=True, original=True)],
    }  # fmt: skip
    totals = {"original_ms": 1.2, "onnxruntime_ms": 1.5, "optimized_ms": 0.6, "speedup": 2.5, "speedup_over_original": 2.0, "noise": 0.01}
    report = filled(Report, {
        "model": "two.onnx", "backend": "cpu", "threads": 2, "runs": "derived", "notes": ["measured on a busy machine"],
        "subprograms": [changed, kept], "kernels": [kernel("Matmul 3136x64x576", "k1", 0.35), kernel("eOperator <sum>", "k1", 0.12)],
        "totals": {**totals, "states": 99, "search_s": 3.0}, "spread_ms": {"original": 0.1, "onnxruntime": 0.1, "optimized": 0.1},
        "verification": {"max_rel": 1e-6, "bound": 1e-3, "passed": True, "tolerance": 1e-4},
        "certificate": {"steps": len(file.derivation.steps), "methods": {"inline": len(file.derivation.steps)}},
        "settings": {"max_depth": 7}, "versions": {"einnet": "0"},
    })  # fmt: skip
    return report, story(report, [entry])


def chapters(page: str) -> list[str]:
    return re.findall(r'<section class="chapter">.*?</section>', page, re.S)


def test_a_changed_subprogram_shows_both_sides_and_its_gain() -> None:
    report, of = told()
    first, second = chapters(report_page(report, of))
    assert "2.50x" in first and "before, 1 ms" in first and "after, 0.4 ms" in first
    before, _, after = first.partition("after, 0.4 ms")
    assert "Conv3x3 64@56x56" in before and "Matmul 3136x64x576" in after
    assert "<td>0.35 ms</td><td>50%</td>" in after, "in its place, and of the roofline"
    assert "eOperator &lt;sum&gt;" in after and "<sum>" not in first
    assert "kept as the model has it" in second and "before," not in second


def test_after_each_step_stands_what_changed() -> None:
    report, of = told()
    first = chapters(report_page(report, of))[0]
    steps = first.split('<div class="step">')[1:]
    assert len(steps) == report.certificate.steps
    assert all('class="row changed"' in s and 'class="row"' not in s for s in steps)


def test_candidates_that_were_not_chosen_are_listed_with_their_times() -> None:
    report, of = told()
    first = chapters(report_page(report, of))[0]
    assert "2 other candidates, of 99 states" in first and "2.5 ms" in first and "generated code alone" in first


def test_plots_have_a_mark_for_everything_that_was_measured() -> None:
    report, of = told()
    page = report_page(report, of)
    bars = [float(w) for w in re.findall(r'class="bar \w+" x="[\d.]+" y="[\d.]+" width="([\d.]+)"', page)]
    assert [b / bars[0] for b in bars] == pytest.approx([1.0, 1.2 / 1.5, 0.6 / 1.5], abs=0.01)
    assert page.count("<circle") == len(report.kernels)
    shares = re.findall(r"<title>[^<]*ms before, [^<]*ms after</title>", page)
    assert len(shares) == 4, "two subprograms, before and after"


def test_the_text_gives_the_times_that_decided() -> None:
    text = explain(told()[1])
    assert "chosen for its time: 0.4 ms, against 1 ms for the model's own operators and 2.5 ms for the one other that was measured" in text


def test_of_many_candidates_the_nearest_with_different_operators_are_told() -> None:
    report, _ = told()
    many = [candidate([f"Matmul(k={n // 2})"], 1.5 + n / 10) for n in range(20)]
    rows = [filled(CandidateRow, c) for c in (candidate(["A"], 0.4, chosen=True), *many)]
    first, *rest = report.subprograms
    report = changed(report, subprograms=[changed(first, candidates=rows), *rest])
    text = explain(story(report, []))
    assert re.findall(r"([\d.]+) ms measured  Matmul\(k=(\d)\)", text) == [(f"{1.5 + n / 5:.3g}", str(n)) for n in range(6)]
    assert "and 14 more: einnet explain --all" in text


def test_the_page_in_a_browser(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_page(*told()), encoding="utf-8")
    found = Opened(browser, path)
    assert found.page.locator("svg.plot").count() == 3
    details = found.page.locator("details", has_text="derivation,")
    assert not details.locator(".row").first.is_visible()
    details.locator("summary").click()
    assert details.locator(".row.changed").first.is_visible()
    wide = found.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert wide, "nothing is cut off at the side"
    found.close()
