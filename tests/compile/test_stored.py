"""`Optimization.save` and `einnet.load`: the same program, report, derivations and proofs after a round trip; audits of stored programs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import einnet
from einnet.compile.targets.stored import StoredProgram
from einnet.derivation.checker.check import check
from einnet.derivation.steps import Derivation
from einnet.errors import ArtifactError, UsageError
from einnet.evidence.audit import audit
from einnet.evidence.certificate import Certificate, Entry
from einnet.evidence.report.plain import plain
from einnet.runtime import artifact
from tests.models import random_inputs, two_layers, two_outputs


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory):
    """A convolution and a 1x1 convolution, optimized."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield einnet.optimize(two_outputs(), max_depth=2, time_budget=4, threads=1)


@pytest.fixture
def program(result, tmp_path) -> StoredProgram:
    assert result.save(tmp_path / "p.einnet") == tmp_path / "p.einnet"
    return einnet.load(tmp_path / "p.einnet")


def test_the_program_computes_the_same_bits(result, program):
    inputs = random_inputs(two_outputs(), seed=3)
    before, after = result(inputs), program(inputs)
    assert list(before) == list(after) == ["features.relu", "scores"]
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def test_ways_to_give_inputs(result, program):
    x = random_inputs(two_outputs())["x"]
    expected = program({"x": x})["scores"]
    for run in (result, program):
        for given in (run(x), run(x=x), run({"x": x})):
            np.testing.assert_array_equal(given["scores"], expected)
        wrong = (((x, x), {}, "1 inputs"), ((x,), {"x": x}, "given twice"), ((), {}, "missing"), ((), {"y": x}, "unknown input 'y'"))
        for args, keywords, message in wrong:
            with pytest.raises(UsageError, match=message):
                run(*args, **keywords)
        with pytest.raises(UsageError, match="float64"):
            run(x.astype(np.float64))


def test_report_and_derivations_survive(result, program):
    assert program.report == plain(result.report)
    assert program.inputs == {"x": ("f32", (2, 3, 8, 8))}
    assert [d.start for d in program.derivations] == [d.start for d in result.derivations]
    assert [d.end.key for d in program.derivations] == [d.end.key for d in result.derivations]
    for stored, entry in zip(program.certificate.entries, result.certificate.entries, strict=True):
        assert (stored.key, stored.proofs, stored.matches) == (entry.key, entry.proofs, entry.matches)
        assert [(s.rule, s.parameters, s.kind, s.path) for s in stored.derivation.steps] == [
            (s.rule, s.parameters, s.kind, s.path) for s in entry.derivation.steps
        ]


def test_candidates_that_were_considered_are_told_with_their_derivations(program):
    assert program.considered
    by_key = {s["key"]: s for s in program.report["subprograms"]}
    for c in program.considered:
        told = by_key[c.key]["candidates"][c.candidate]
        assert not told["chosen"]
        assert told["rules"] == [s.rule for s in c.derivation.steps]
        assert tuple(told["operators"]) == c.matches
        check(c.derivation)


def test_a_program_without_report_is_refused(program, tmp_path):
    loaded = program.loaded
    artifact.save(tmp_path / "bare.einnet", loaded.plan, loaded.code, threads=1)
    with pytest.raises(ArtifactError, match="no report"):
        einnet.load(tmp_path / "bare.einnet")


def test_paths(result, tmp_path):
    with pytest.raises(ArtifactError, match="cannot be written"):
        result.save(tmp_path / "missing" / "p.einnet")
    with pytest.raises(ArtifactError, match="cannot be read"):
        einnet.load(tmp_path / "none.einnet")
    assert os.listdir(tmp_path) == []


def test_loading_and_running_needs_neither_onnx_nor_tvm(program, tmp_path):
    """In a process in which they cannot be imported at all."""
    np.save(tmp_path / "x.npy", random_inputs(two_outputs())["x"])
    script = (
        "import sys\n"
        "absent = dict.fromkeys(('tvm', 'tvm_ffi', 'onnx', 'onnx_ir', 'onnxruntime', 'sympy', 'islpy', 'rich'))\n"
        "sys.modules.update(absent)\n"
        "import einnet, numpy as np\n"
        f"y = einnet.load({str(program.path)!r})(np.load({str(tmp_path / 'x.npy')!r}))\n"
        "assert np.isfinite(y['scores']).all()\n"
        "print([m for m in absent if sys.modules[m]])\n"
    )
    root = Path(einnet.__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def with_certificate(program: StoredProgram, entries: list[Entry]) -> StoredProgram:
    """The program with another certificate."""
    other = StoredProgram(program.path, program.loaded)
    other.certificate = Certificate(tuple(entries))
    return other


def test_audit_passes_for_the_model(program):
    verdict = audit(two_outputs(), program)
    assert verdict["passed"] is True
    assert verdict["certificate"]["derivations"] == len(program.certificate.entries)
    assert verdict["certificate"]["problems"] == []


def test_audit_finds_a_step_that_does_not_hold(program):
    told = next(c for c in (*program.certificate.entries, *program.considered) if c.derivation.steps)
    first, *rest = told.derivation.steps
    wrong = replace(first, after=replace(first.after, loops=tuple(reversed(first.after.loops))))
    broken = Derivation(told.derivation.start, (wrong, *rest))
    verdict = audit(two_outputs(), with_certificate(program, [Entry(told.key, broken, ())]))
    assert verdict["passed"] is False
    (problem,) = verdict["certificate"]["problems"]
    assert problem.startswith("derivation 1, step 1 (")


def test_audit_finds_a_derivation_of_something_else(program):
    entry = Entry("0" * 32, Derivation(einnet.parse("L[i<4] Σ[k<8] A[i,k]*B[k]")), ())
    verdict = audit(two_outputs(), with_certificate(program, [entry]))
    assert verdict["passed"] is False
    assert "the model does not have" in verdict["certificate"]["problems"][0]


def test_audit_compares_numbers(program):
    verdict = audit(two_outputs(seed=5), program)
    (problem,) = verdict["certificate"]["problems"]
    assert "made from another model" in problem
    assert verdict["constants"]["problems"]
    assert verdict["verification"]["passed"] is False
    assert verdict["passed"] is False


def test_audit_refuses_a_model_with_other_inputs(program):
    with pytest.raises(einnet.EinNetError):
        audit(two_layers(), program)
