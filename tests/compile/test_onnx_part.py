"""What was derived among the model's own nodes: any choice of subprograms gives what the model gave, and the rest stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import onnx
import pytest

from einnet.compile.export import region as onnx_part
from einnet.compile.export.onnx_file import exported
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.split import subprograms
from einnet.instantiate.kernels import EOperator, Kernel
from einnet.runtime.ort import Session
from einnet.search.choosing.candidate import Choice
from einnet.search.choosing.making import candidates
from einnet.search.outcome import Outcome, canonical, result
from einnet.search.space import Options, Space
from tests.models import random_inputs, tiny, two_outputs, with_opaque

MODELS = ("small", "resnet18", "fsrcnn", "convtranspose", "squeeze", "longformer", "transformer", "shuffle", "unet", "dense")


def outcome_of(model: onnx.ModelProto, rng: Random, share: float, permuted: bool = True) -> Outcome:
    """Some derived candidate for a share of the subprograms, drawn by chance."""
    program = prepare(load(model), permuted)
    results = []
    for part in subprograms(program):
        expression = canonical(part.expression)
        found = candidates(Space(Options(max_depth=1, states=20)).forms(expression), vendors_first)
        original = next(c for c in found if c.original)
        best = rng.choice([c for c in found if c is not original] or [original]) if rng.random() < share else original
        results.append(result(part, Choice(expression, found, original, best)))
    return Outcome(program, tuple(results))


def vendors_first(kernels: Sequence[Kernel]) -> list[float]:
    """Seconds by which a library's kernel comes before a generated one."""
    return [1.5 if isinstance(k, EOperator) else 1.0 for k in kernels]


def same(made: onnx.ModelProto, model: onnx.ModelProto) -> None:
    onnx.checker.check_model(made, full_check=True)
    onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True, data_prop=True)
    assert [(v.name, v.type) for v in made.graph.input] == [(v.name, v.type) for v in model.graph.input]
    assert [v.name for v in made.graph.output] == [v.name for v in model.graph.output]
    inputs = random_inputs(model)
    wanted, got = Session(model.SerializeToString(), 1)(inputs), Session(made.SerializeToString(), 1)(inputs)
    for name, y in wanted.items():
        np.testing.assert_allclose(got[name], y, rtol=0, atol=1e-4 * np.abs(y).max())


LARGE = ("resnet18", "squeeze")
"""Of whose kinds of layers there are smaller models."""


@pytest.mark.parametrize("name", [*(n if n not in LARGE else pytest.param(n, marks=pytest.mark.slow) for n in MODELS), "with_opaque", "two_outputs"])
@pytest.mark.parametrize(("share", "permuted"), [(0.3, True), (0.6, False)])
def test_any_choice_among_the_models_nodes(name: str, share: float, permuted: bool) -> None:
    made = {"with_opaque": with_opaque, "two_outputs": two_outputs}
    model = made[name]() if name in made else tiny(name)
    onnx.helper.set_model_props(model, {"author": "somebody"})
    outcome = outcome_of(model, Random(f"{name}{share}"), share, permuted)
    written = exported(outcome, model)
    same(written, model)
    assert {p.key: p.value for p in written.metadata_props}["author"] == "somebody"
    changed = {f"einnet.derivation.{r.subprogram.key}" for r in outcome.results if r.changed}
    assert changed <= {p.key for p in written.metadata_props}


def test_what_was_not_derived_stays_as_it_was() -> None:
    model = tiny("resnet18")
    outcome = outcome_of(model, Random(0), 0.0)
    assert exported(outcome, model) == model
    first = next(r for r in outcome.results if " ".join(r.subprogram.origin).startswith("Conv"))
    first.choice.best = next(c for c in first.choice.candidates if c is not first.choice.original)
    written = exported(outcome, model)
    same(written, model)
    kept = [n for n in written.graph.node if n in list(model.graph.node)]
    gone = [f"{n.op_type} {n.name!r}" for n in model.graph.node if n not in kept]
    assert set(gone) == set(first.subprogram.origin)
    assert len(written.functions) == len({n.op_type for n in written.graph.node if n.domain == "einnet"})


def test_a_model_that_was_written_can_be_optimized_again() -> None:
    model = tiny("small")
    for seed in range(3):
        model = exported(outcome_of(model, Random(seed), 0.7), model)
    same(model, tiny("small"))


def test_what_would_not_fit_is_written_as_the_models_own_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("small")
    outcome = outcome_of(model, Random(1), 1.0)
    assert any(r.changed for r in outcome.results)
    monkeypatch.setattr("einnet.runtime.capacity.available_bytes", lambda: 0)
    assert exported(outcome, model) == model
    assert all(note.startswith(onnx_part.TOO_LARGE) for note in onnx_part.not_written(outcome)) and onnx_part.not_written(outcome)
