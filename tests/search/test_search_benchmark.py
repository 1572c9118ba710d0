"""The search's own experiments, on a small case: measured, told, drawn, with what the limits left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search.cases import Case, Published
from benchmarks.search.measure import Limits, measured
from benchmarks.search.plot import plot
from benchmarks.search.shared import compared, expressions, line
from benchmarks.search.table import HEADER, markdown, row, table
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Kernel

SMALL = Case("small", "A : f32[57,5]\nK : weight f32[3,5,8]\nL[h<57,f<8] Σ[c<5,r<3] A[h+r-1,c]*K[r,c,f]", Published(158e3, 7.1e6, (8, 4), 4))


class Alike:
    """Every kernel takes a second."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1.0] * len(kernels)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return {"cost": "one second each", "cases": [measured(SMALL, Alike(), Limits(depth=2, seconds=600.0, bare=600.0))]}


def test_states_without_fingerprints_are_no_fewer(data: dict[str, Any]) -> None:
    (case,) = data["cases"]
    for ablation in case["fingerprint"].values():
        assert ablation["with"]["states"] <= ablation["without"]["states"] and ablation["with"]["depth"] == 2
    isolated = case["fingerprint"]["isolated"]
    count = isolated["whole_expressions"]
    assert count["orders"] == count["depth"] == 2
    assert isolated["pruned"] == 1 - isolated["with"]["states"] / max(count["states"], isolated["without"]["states"]) > 0
    assert isolated["pruned_of_visited"] <= isolated["pruned"]


def test_layers_go_from_the_expression_to_the_greatest_depth(data: dict[str, Any]) -> None:
    (case,) = data["cases"]
    for layers in (case["layers"], case["without_converging"]):
        assert [layer["depth"] for layer in layers] == [0, 1, 2]
        assert all(a["states"] <= b["states"] and a["speedup"] <= b["speedup"] for a, b in pairwise(layers))


def test_the_tables_have_a_word_for_every_column(data: dict[str, Any]) -> None:
    (case,) = data["cases"]
    assert len(row(case)) == len(HEADER) and "158k of 7.1M, d4, steps 4 / 8" in row(case)
    assert len({line.count("|") for line in markdown(data).splitlines() if line.startswith("|")}) == 1
    assert table(data).splitlines()[1].startswith("small")


def test_the_figures_are_drawn(data: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures of benchmarks need the extra 'bench'")
    assert all(path.stat().st_size for path in plot(data, tmp_path))


def test_a_search_that_its_limits_end_tells_no_share() -> None:
    case = measured(SMALL, Alike(), Limits(depth=2, seconds=600.0, bare=600.0, states=1))
    assert "pruned" not in case["fingerprint"]["isolated"] and "unknown" in row(case)
    assert row(case)[1].endswith("+")


def test_a_shared_search_is_compared_with_one_alone() -> None:
    """Seconds of the processor are the keeper's and each worker's own; what differs in forms or counts is told."""
    case = compared("small", parse(SMALL.text), 30, 2)
    assert case["same"] and case["shared"]["counts"] == case["alone"]["counts"] and not case["alone"]["workers_s"]
    assert 1 <= len(case["shared"]["workers_s"]) <= 2
    assert case["processor_ratio"] == max(case["shared"]["processor_s"], *case["shared"]["workers_s"], 0) / case["alone"]["processor_s"]
    assert "small: the same" in line(case) and "NOT" in line({**case, "same": False})


def test_cases_of_a_shared_search_are_chosen_by_their_names() -> None:
    assert list(expressions(["Conv3x3 stride"])) == ["Conv3x3 stride 2"]
