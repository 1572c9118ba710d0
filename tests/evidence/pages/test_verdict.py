"""The sentences that a person reads first."""

from __future__ import annotations

from typing import Any

import pytest

from einnet.evidence.pages.verdict import NOISY, opaque_line, reasons, verdict
from einnet.evidence.report.schema import Report
from tests.filled import filled


def report(runs: str = "derived", changed: int = 2, speedup: float = 1.34, noise: float = 0.01, **more: Any) -> Report:
    """A report with what the sentences are made of."""
    parts = [{"changed": n < changed, "stopped_at": None} for n in range(5)]
    asked = {"allow": "reassociation", "time_budget": 120.0, "derive": True}
    totals = {"speedup": speedup, "noise": noise}
    told = {"runs": runs, "subprograms": parts, "totals": totals, "verification": {"passed": True}, "settings": asked, "kernels": [], **more}
    return filled(Report, told)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (report(), "1.34x faster than ONNX Runtime; 2 of 5 parts changed"),
        (report(noise=NOISY + 0.01), "not measured well enough (noise 11%), about 1.34x of ONNX Runtime's speed; 2 of 5 parts changed"),
        (report("own operators", 0, 1.2), "1.20x faster than ONNX Runtime; the model's own operators, no part changed"),
        (report("own operators", 0, 1.005), "as fast as ONNX Runtime (1.00x, noise 1.0%); the model's own operators, no part changed"),
        (report("own operators", 0, 0.6), "slower than ONNX Runtime (0.60x); the model's own operators, no part changed"),
        (report("whole model", 0, 1.0), "nothing was faster: ONNX Runtime is kept"),
        (report("whole model", 2, 1.0), "nothing was faster: ONNX Runtime is kept; 2 of 5 parts are faster alone"),
        (report("whole model", 0, 1.0, noise=NOISY + 0.01), "not measured well enough (noise 11%): ONNX Runtime is kept"),
        (report(verification={"passed": False}), "the program that was found does not give the model's results: nothing of it is to be used"),
    ],
)
def test_the_verdict_is_one_sentence(given, said):
    assert verdict(given) == said


def kernel(ms: float, peak: float | None, bandwidth: float) -> dict[str, Any]:
    return {"ms": ms, "gflops": peak, "share_of_peak": peak, "share_of_bandwidth": bandwidth}


def test_where_nothing_changed_the_reason_and_what_to_try_are_told():
    kernels = [kernel(6.0, 0.8, 0.2), kernel(2.0, 0.1, 0.9), kernel(1.0, 0.1, 0.1), kernel(1.0, None, 0.1), kernel(0.1, None, 0.1)]
    found = reasons(report("own operators", 0, kernels=kernels))
    assert found[0].startswith("the time is bound by arithmetic near the peak (59%), memory (20%), ")
    assert "nodes that ONNX Runtime executes (11%)" in found[0]
    assert found[1] == "to try: --allow precision"
    assert reasons(report(kernels=kernels)) == []
    kept = report("whole model", 2, kernels=[kernel(9.0, None, 0.1)], own_kernels=kernels)
    assert reasons(kept)[0] == found[0].replace("the time is", "the model's own operators are"), "of ONNX Runtime's kernels nothing is known"


def test_more_time_is_only_proposed_where_time_ended_the_search():
    parts = [{"changed": False, "stopped_at": 300}]
    asked = {"allow": "precision", "time_budget": 60.0, "derive": True}
    assert reasons(report("own operators", subprograms=parts, settings=asked)) == ["to try: --time-budget 120"]
    assert reasons(report("own operators", 0, settings=asked)) == []


def test_opaque_nodes_are_one_line_with_their_reasons():
    assert opaque_line(report()) is None
    nodes = [{"nodes": ["LSTM 'a'"], "why": "a recurrence"}, {"nodes": ["LSTM 'b'"], "why": "a recurrence"}, {"nodes": ["NonZero 'c'"], "why": ""}]
    assert opaque_line(report(opaque=nodes)) == "opaque, run by ONNX Runtime inside the program: 2 LSTM (a recurrence); 1 NonZero"
