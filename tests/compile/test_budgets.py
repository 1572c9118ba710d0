"""No model and budget whose error exceeds the budget on inputs that were not drawn when it was spent, where all products round that may."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from benchmarks.models import SEVEN
from benchmarks.precision.cases import ZOO, like
from einnet.evidence.comparison.verify import errors
from einnet.runtime.ort import Session
from tests.compile.test_rounded_products import derived_wins, needs_bf16, sure
from tests.models import random_inputs, tiny

__all__ = ["derived_wins", "sure"]

DRAWS = 20
FOLDER = Path(__file__).parents[2] / "build" / "zoo"
MOST_BYTES = 4 << 20
"""A file of the zoo that is small."""

Arrays = Mapping[str, np.ndarray]


def exceeded(path: Path, inputs: Arrays, budget: float) -> tuple[float, int]:
    """The greatest error on fresh inputs, and how many products round."""
    found = einnet.optimize(path, max_error=budget, derive=False, threads=1, time_budget=30)
    reference = Session(path, 1, title=path.name)
    fresh = [like(inputs, 1000 + n) for n in range(DRAWS)]
    worst = max(e.max_rel for one in fresh for e in errors(found(one), reference(one)).values())
    told = found.record.precision
    return worst, sum(p.runs for p in told.products) if told else 0


@pytest.mark.slow
@needs_bf16
@pytest.mark.parametrize("budget", [1e-3, 1e-2])
@pytest.mark.parametrize("name", SEVEN)
def test_the_seven_stay_within_their_budget(name: str, budget: float, tmp_path: Path, derived_wins: None) -> None:
    model = tiny(name)
    onnx.save(model, tmp_path / "m.onnx")
    worst, rounded = exceeded(tmp_path / "m.onnx", random_inputs(model, 0), budget)
    print(f"{name} at {budget:g}: {worst:.2g}, {rounded} products round")
    assert worst <= budget


@pytest.mark.slow
@needs_bf16
@pytest.mark.parametrize("budget", [1e-3, 1e-2])
@pytest.mark.parametrize("name", ZOO)
def test_small_models_of_the_zoo_stay_within_their_budget(name: str, budget: float, derived_wins: None) -> None:
    path = FOLDER / f"{name}.onnx"
    if not path.exists() or path.stat().st_size > MOST_BYTES:
        pytest.skip("no such small file: python -m benchmarks.zoo.export makes them")
    with np.load(path.with_suffix(".npz")) as stored:
        worst, rounded = exceeded(path, dict(stored), budget)
    print(f"{name} at {budget:g}: {worst:.2g}, {rounded} products round")
    assert worst <= budget
