"""Small models whose best known form is known: the search gets there, within few states, and every step is proven."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reach import PROBES
from benchmarks.reach.measure import explored
from benchmarks.reach.page import case, page, text
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
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_the_best_known_form_is_found_and_proven(name: str) -> None:
    found = explored(BY_NAME[name], inf, most=250)
    assert found.found(BY_NAME[name]), f"{found.chosen:.3g} operations, {BY_NAME[name].best:.3g} are known to do"
    assert found.proof == "proven"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in QUICK])
def test_every_step_to_the_form_with_fewest_operations_is_proven(name: str) -> None:
    assert explored(BY_NAME[name], inf, most=300).proof == "proven"


@pytest.mark.parametrize("name", ["block_diagonal_weights", "separable_kernel", "repvgg_block", "layer_summed_then_functions", "triangular_product"])
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
    cases = [case(probe, explored(probe, inf, most=10))]
    (tmp_path / "reach.json").write_text(text({"cpu": "any"}, cases))
    (read,) = json.loads((tmp_path / "reach.json").read_text())["cases"]
    wanted = {"name", "ops_model", "ops_chosen", "ops_best_known", "source", "states", "seconds", "ratio", "noise", "proof"}
    assert wanted <= read.keys() and read["ops_chosen"] == 4194304 and read["reached"]
    assert "1 of 1 probes" in page({"cpu": "any"}, cases)
