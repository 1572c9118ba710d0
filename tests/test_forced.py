"""Programs in which every part is computed by a derived candidate, drawn at random: made, saved, loaded in a fresh process and verified there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from einnet.errors import BackendError, UsageError
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.program import Executable
from einnet.runtime.ort import Session
from tests.models import tiny, two_layers
from tests.models.primitive import convnext
from tests.models.random_graphs import random_graph

pytestmark = pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available()))

SCRIPT = """
import json, sys
from pathlib import Path
import einnet
from einnet.evidence.audit import audit

found = {}
for program in sorted(Path(sys.argv[1]).glob("*.einnet")):
    try:
        verdict = audit(program.with_suffix(".onnx"), einnet.load(program))
        found[program.stem] = "" if verdict["passed"] else json.dumps(verdict, default=str)
    except Exception as error:
        found[program.stem] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""
"""Every program in a folder is verified against its model, in one fresh process."""

NODES = 14
"""Of a random model at most: of one in two something can be derived."""

TIMES = {"max_depth": 3, "time_budget": 20, "threads": 1}


def seconds_of_a_reference(self: object, programs: dict[str, object], seconds: float) -> dict[str, object]:
    """No time is spent on times: nothing hangs on them here."""
    from einnet.runtime.timing import Comparison

    rounds = Comparison(dict.fromkeys(("onnxruntime", *programs), (1.0,)), (1.0,))
    return {**rounds.timings, "noise": 0.0, "rounds": rounds, "once": False}


@pytest.fixture(autouse=True, scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("einnet.evidence.comparison.verify.Trial.compare", seconds_of_a_reference)
        patch.setattr("einnet.compile.targets.cpu.finishing.kernel_profile", lambda *_: [])
        yield


def usable(model: onnx.ModelProto) -> bool:
    """ONNX Runtime runs the model, with finite results: what is compared to nothing tells nothing."""
    try:
        reference = Session(model.SerializeToString(), 1)
        rng = np.random.default_rng(0)
        found = reference({a.name: rng.standard_normal(a.shape).astype(np.float32) for a in reference.inputs})
        return all(np.isfinite(y).all() for y in found.values())
    except (BackendError, UsageError):
        return False


def made(model: onnx.ModelProto, seed: int, path: Path) -> str:
    """Optimize with a forced program and save it with its model; what is wrong, or how many parts are derived."""
    onnx.save(model, path.with_suffix(".onnx"))
    try:
        result = einnet.optimize(path.with_suffix(".onnx"), force=seed, allow=("reassociation", "precision")[seed % 2], **TIMES)
    except Exception as error:
        return f"{path.stem}: {type(error).__name__}: {error}"
    report = result.report
    if any("cannot be compiled" in note for note in report["notes"]) or not report["verification"]["passed"]:
        return f"{path.stem}: {report['notes']} {report['verification']}"
    result.save(path)
    return "derived" if report["runs"] == "derived" else "nothing derived"


def refused(folder: Path) -> dict[str, str]:
    """What a fresh process says of the programs that are not verified there."""
    found = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, check=False, env={**os.environ})
    assert found.returncode == 0, found.stderr
    verdicts = json.loads(found.stdout)
    assert len(verdicts) == len(list(folder.glob("*.einnet")))
    return {name: why for name, why in verdicts.items() if why}


def run(seeds: Iterable[int], folder: Path) -> Counter[str]:
    """Random models of some seeds, as many as ONNX Runtime can run. Nothing is wrong, and nothing is refused."""
    said = Counter(made(model, seed, folder / f"random{seed}.einnet") for seed in seeds if usable(model := random_graph(seed, NODES)))
    wrong = [text for text in said if text not in ("derived", "nothing derived")]
    assert (wrong, refused(folder)) == ([], {}), "each by its seed, and the others are verified all the same"
    return said


def test_random_models(tmp_path: Path) -> None:
    assert run(range(50_004, 50_009), tmp_path)["derived"] > 1


REFUSED = {
    60_004: "a part of a tensor in one place with the whole",
    60_084: "a tensor under two names, one of them an output",
    60_121: "a node that ONNX Runtime runs, and an input that nobody reads",
    60_152: "what is one tensor stands twice on one side, once written out",
    60_216: "the square root of what is negative",
    60_267: "a pooling that leaves a tensor as it is, where it is",
    70_018: "an output that is exactly 0 for zeros, and rounding in another order",
    81_118: "a part of a tensor, read in it, where a copy of another part lies beside",
    90_285: "the greatest of some numbers, which are equal for zeros",
    82_036: "a variance that was multiplied out, of two nearly equal numbers",
}
"""Seeds of right programs that were refused once, and what was taken for another."""


def test_programs_that_were_refused(tmp_path: Path) -> None:
    run(list(REFUSED), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(12))
def test_three_hundred(block: int, tmp_path: Path) -> None:
    """At least 300 of 360 can be run."""
    start = 60_000 + 30 * block
    said = run(range(start, start + 30), tmp_path)
    assert said["derived"] + said["nothing derived"] >= 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        *((n, (1, 2)) for n in ("small", "fsrcnn", "dcgan", "longformer_masked", "unet", "audio")),
        ("transformer", (1, 3)),
        ("csrnet_full", (3,)),
        ("convnext", (2,)),
    ],
)
def test_models(name: str, seeds: tuple[int, ...], tmp_path: Path) -> None:
    model = convnext(False) if name == "convnext" else tiny(name)
    drawn = [made(model, seed, tmp_path / f"{name}{seed}.einnet") for seed in seeds]
    assert set(drawn) == {"derived"}
    assert refused(tmp_path) == {}


SEVERAL = 50_016
"""A seed of a small model of which several parts can be derived."""


def test_a_seed_gives_one_program_and_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    results = [einnet.optimize(random_graph(SEVERAL, NODES), force=seed, **TIMES) for seed in (7, 7, 8, 9)]
    ends = [[d.end.key for d in r.derivations] for r in results]
    assert ends[0] == ends[1]
    assert len({tuple(e) for e in ends}) > 1, "another seed draws another program"
    assert not any("recalled" in note for r in results for note in r.report["notes"])
    assert results[0].report["settings"]["force"] == 7


def test_what_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forced program that differs from the model fails, and no other takes its place."""
    honest = Executable.run

    def noisy(self: Executable, *arrays: np.ndarray) -> list[np.ndarray]:
        return [y + np.float32(1) for y in honest(self, *arrays)]

    monkeypatch.setattr(Executable, "run", noisy)
    report = einnet.optimize(random_graph(SEVERAL, NODES), force=7, **TIMES).report
    assert not report["verification"]["passed"]
    assert report["runs"] == "derived"


def test_force_is_for_native_programs() -> None:
    with pytest.raises(UsageError, match="force draws candidates for our own program"):
        einnet.optimize(two_layers(), force=1, target="onnx")
