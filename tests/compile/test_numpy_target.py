"""A target that is one folder and one registration: the seven models run through it, derived forms are chosen for it, and its programs come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einnet
from benchmarks.models import SEVEN
from einnet.compile.targets import registry
from einnet.errors import ArtifactError, ModelError
from einnet.runtime.ort import Session
from tests.models import dynamic_batch, random_inputs, tiny, with_opaque


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a user of the target has to do."""
    monkeypatch.setitem(registry.TARGETS, "numpy", registry.Registered("tests.numpy_target.target", "tests.numpy_target.stored", "numpy"))


def test_the_folder_is_small() -> None:
    folder = Path(__file__).resolve().parent.parent / "numpy_target"
    assert sum(len(path.read_text().splitlines()) for path in folder.glob("*.py")) < 300


LARGE = ("dcgan", "gcn", "csrnet_full")
"""Models that numpy takes many seconds for. Their layers are those of infogan, resnet18 and csrnet, and longer ones."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in SEVEN])
def test_the_models_run(name: str, tmp_path: Path) -> None:
    """The program is compared as it is made, what was stored of it here."""
    model = tiny(name)
    found = einnet.optimize(model, backend="numpy", derive=False, threads=1)
    assert found.report["verification"]["passed"] and found.report["backend"] == "numpy"
    inputs = random_inputs(model)
    again, wanted = einnet.load(found.save(tmp_path / "p.einnet"))(inputs), Session(model.SerializeToString(), 1)(inputs)
    assert again.keys() == wanted.keys()
    assert all(np.abs(again[n] - wanted[n]).max() <= 1e-4 * np.abs(wanted[n]).max() for n in wanted)


def test_a_stored_program_computes_the_same_bits(tmp_path: Path) -> None:
    model = tiny("fsrcnn")
    found = einnet.optimize(model, backend="numpy", derive=False, threads=1)
    inputs = random_inputs(model)
    got, again = found(inputs), einnet.load(found.save(tmp_path / "p.einnet"))(inputs)
    assert all(np.array_equal(got[name], again[name]) for name in got)


def test_what_is_derived_is_proven_and_chosen_by_its_costs() -> None:
    found = einnet.optimize(tiny("infogan"), backend="numpy", max_depth=1, time_budget=2, threads=1)
    assert found.report["verification"]["passed"] and found.report["runs"] == "derived"
    assert found.certificate.steps and set(found.certificate.methods()) == {"inline"}
    assert found.derivations


def test_nodes_that_are_no_expressions_run_too() -> None:
    assert einnet.optimize(with_opaque(), backend="numpy", derive=False, threads=1).report["verification"]["passed"]


def test_what_it_does_not_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        einnet.optimize(dynamic_batch(), backend="numpy")
    with pytest.raises(einnet.EinNetError, match="range of sizes is served by programs for this CPU only"):
        einnet.optimize(dynamic_batch(), backend="numpy", dynamic="batch=1..2")
    path = einnet.optimize(tiny("infogan"), backend="numpy", derive=False, threads=1).save(tmp_path / "p.einnet")
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ArtifactError):
        einnet.load(path)
