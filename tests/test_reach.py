"""Small models whose best known form is known: the search gets there, within few states, and every step is proven."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contest.results import keep, read
from benchmarks.reach import PROBES
from benchmarks.reach.__main__ import in_turn, main
from benchmarks.reach.measure import explored
from benchmarks.reach.page import case, page
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from tests.graph.cases import reference

BY_NAME = {p.name: p for p in PROBES}
QUICK = (
    "two_weights_bias", "matrix_matrix_vector", "chain_of_six", "low_rank_adapter", "two_products_of_one_right", "layer_divided_summed_scaled",
    "layer_summed_then_functions", "trace_of_product", "kronecker", "diagonal_times_matrix", "block_diagonal_weights", "all_ones_weights",
    "scaled_without_softmax", "features_with_normaliser", "point_conv_bias_then_global_pool", "two_point_convs", "nearest_then_point_conv",
    "box_filter", "plain_product", "lower_scores", "masked_scores", "values_of_what_follows", "values_of_a_band", "grouped_linear_attention",
    "greatest_less_its_mean", "clips_that_meet", "mean_of_normalised_rows", "softmax_of_one", "deviations_beside_a_product",
    "layer_less_a_number_mean", "two_layers_side_by_side_then_a_layer", "one_layer_of_two_scaled", "mean_over_heads", "crop_of_a_conv",
    "conv_less_half_of_twice", "norms_of_rows_of_a_layer", "squared_scores", "cosines_times_values", "means_taken_away_on_both_sides",
    "all_of_a_product", "filters_that_copy",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_the_best_known_form_is_found_and_proven(name: str) -> None:
    found = explored(BY_NAME[name], inf, most=250)
    assert found.found(BY_NAME[name]), f"{found.chosen:.3g} operations, {BY_NAME[name].best:.3g} are known to do"
    assert found.proof == "proven"


def test_distances_are_a_product_where_precision_is_allowed() -> None:
    """Differences of all pairs are allowed for in any form: that half of the operations are left is told by the counts."""
    probe = BY_NAME["distances"]
    found = explored(probe, inf, most=250)
    assert found.chosen < 0.6 * found.model and found.proof == "proven"
    assert explored(replace(probe, allow="reassociation"), inf, most=250).chosen == found.model


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in QUICK])
def test_every_step_to_the_form_with_fewest_operations_is_proven(name: str) -> None:
    assert explored(BY_NAME[name], inf, most=300).proof == "proven"


@pytest.mark.parametrize("name", ["block_diagonal_weights", "separable_kernel", "repvgg_block", "layer_summed_then_functions", "triangular_product",
                                  "softmax_of_one", "deviations_beside_a_product", "four_heads_projected", "means_taken_away",
                                  "filters_that_copy", "filters_in_a_ring_of_zeros", "filters_of_small_rank"])
def test_a_probe_means_what_onnx_runtime_computes(name: str) -> None:
    model = BY_NAME[name].model()
    program = prepare(load(model))
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in load(model).inputs}
    (theirs,) = reference(model, inputs).values()
    (ours,) = interpret(program, inputs, dtype="float32").values()
    assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


def test_there_are_sixty_and_the_results_say_what_was_asked(tmp_path: Path) -> None:
    assert len(PROBES) >= 60 and len(BY_NAME) == len(PROBES)
    probe = BY_NAME["two_weights"]
    cases = keep(tmp_path / "reach.json", {"cpu": "any"}, case(probe, explored(probe, inf, most=10)), BY_NAME)
    (stored,) = read(tmp_path / "reach.json")["cases"]
    wanted = {"name", "ops_model", "ops_chosen", "ops_best_known", "source", "states", "seconds", "ratio", "noise", "proof"}
    assert wanted <= stored.keys() and stored["ops_chosen"] == 4194304 and stored["reached"]
    assert "1 of 1 probes" in page({"cpu": "any"}, cases)


def test_what_has_no_row_comes_before_what_has_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, asked = tmp_path / "reach.json", {"threads": 1}
    assert in_turn(PROBES, path, asked) == list(PROBES)
    keep(path, {}, {"name": PROBES[0].name, "asked": {"threads": 2}}, BY_NAME)
    keep(path, {}, {"name": PROBES[1].name, "asked": asked}, BY_NAME)
    assert in_turn(PROBES, path, asked) == [*PROBES[2:], PROBES[0]]
    assert main(["--seconds-left", "5", "-o", str(path)]) == 1 and PROBES[2].name in capsys.readouterr().err
