"""Figures of generated kernels without a card: counts of tiles, and what the result file says of itself."""

from __future__ import annotations

import json

import pytest

from benchmarks.card.static import ASSEMBLED, LAYERS, RESULT, SUMS, ahead, compiler, counted, occupancy, operator, row
from einnet.cli.optimize import cuda_lines
from einnet.evidence.report.card_schema import CudaReport
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.resolve import resolve
from tests.filled import filled


@pytest.mark.parametrize("name", ["FSRCNN 3x3 at 256x256", "ResNet-18 stem 7x7 stride 2, 3 to 64"])
def test_tiles_read_less_than_one_element_for_each_thread_does(name):
    found = row(*LAYERS[name])
    assert found["terms_for_each_word_read"] > 2 * found["without_tiles"]
    assert found["terms_for_each_word_from_outside"] > found["terms_for_each_word_read"]


def test_a_plain_product_of_two_words_is_half_a_term_a_word():
    found = tile(normalise(resolve(operator("L[i<32] Σ[k<2] A[k,i]*B[k,i]", {"A": (2, 32), "B": (2, 32)}))))
    assert found is not None
    assert counted(found)["terms_for_each_word_read"] == counted(found)["without_tiles"] == 0.5


def test_registers_and_shared_memory_bound_the_warps():
    found = tile(normalise(resolve(operator(*LAYERS["FSRCNN 5x5, 1 to 56"]))))
    assert found is not None
    assert occupancy(found, 32, 0) == 1.0
    assert occupancy(found, 128, 0) == 0.25
    assert occupancy(found, 32, 99 << 10) == pytest.approx(2 * found.block / 32 / 64, abs=0.01)


def test_the_stored_figures_claim_no_time_and_no_spills():
    stored = json.loads(RESULT.read_text())
    assert "nothing here is a time" in stored["kind"]
    assert set(stored["layers"]) == set(LAYERS)
    assert all(r["spilled_bytes"] == 0 and r["expression"] == LAYERS[n][0] for n, r in stored["layers"].items())


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("tensor", [False, True])
def test_the_stored_figures_of_sums_are_those_of_today(name, tensor):
    """Those of the assembler where its version is that of the stored ones."""
    whole = json.loads(RESULT.read_text())
    stored = whole["sums"]
    assert len(stored) == 2 * len(SUMS) and whole["compiler"] != "none"
    own, today = stored[name + ", tensor cores" * tensor], ahead(*SUMS[name], tensor)
    other = set() if whole["compiler"] == compiler() else set(ASSEMBLED)
    assert {k: own[k] for k in today.keys() - other} == {k: today[k] for k in today.keys() - other}
    assert today.keys() >= {"cycles_by_the_model", "stages", "threads"}
    assert own["spilled_bytes"] == 0 and own["registers"] <= 255 and own["shared_bytes"] <= 48 << 10
    assert 2 * own["cycles_by_the_model"] < own["cycles_of_tiles"]


def test_subprograms_are_counted_for_people():
    report = {"totals": {"original_predicted_ms": 2.0, "optimized_predicted_ms": 1.0, "launches": 3}, "changed": 1, "subprograms": [{}, {}]}
    assert "1 of 2 subprograms changed" in cuda_lines(filled(CudaReport, report))[0]
