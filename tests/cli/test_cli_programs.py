"""optimize, run, verify and explain on a small model, and every way in which a user can get them wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from einnet.api.load import load
from einnet.cli import progress, summary
from einnet.compile.targets import stored
from einnet.derivation.checker.check import check
from einnet.evidence.pages.verdict import verdict
from einnet.evidence.report.schema import Report
from einnet.evidence.report.told import each
from einnet.records import read_text
from tests.models import dynamic_batch, random_inputs, tiny, two_layers


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An input of small.onnx."""
    np.save(tmp_path / "image.npy", random_inputs(tiny("small", size=8))["image"])
    return tmp_path / "image.npy"


# ------------------------------------------------------------------------------------------------------------------ optimize


def test_report(optimized):
    report = json.loads((optimized / "report.json").read_text())
    assert report["verification"]["passed"] is True
    assert report["verification"]["max_rel"] <= 1e-4
    assert report["verification"]["bound"] == pytest.approx(sum(s["bound"] for s in report["subprograms"]))
    assert all(s["bound"] >= 0 for s in report["subprograms"]) and report["verification"]["bound"] > 0
    assert report["threads"] == 1
    assert {"original_ms", "onnxruntime_ms", "optimized_ms", "speedup", "search_s"} <= report["totals"].keys()
    nodes = [n for s in report["subprograms"] for n in s["nodes"]]
    assert any("depthwise" in n for n in nodes)
    for s in report["subprograms"]:
        assert s["key"]
        assert sum(c["original"] for c in s["candidates"]) == 1
        assert sum(c["chosen"] for c in s["candidates"]) == 1
        assert s["changed"] != any(c["chosen"] and c["original"] for c in s["candidates"])
        assert all(k["ms"] is None or k["ms"] > 0 for k in s["kernels"])
    assert sorted(os.listdir(optimized)) == ["report.json", "small.einnet"]


def test_table(optimized, capsys):
    report = read_text(Report, (optimized / "report.json").read_text())
    distinct = len({s.key for s in report.subprograms})
    assert len(summary.rows(report)) == distinct
    assert sum(int(row[0].removesuffix("x")) for row in summary.rows(report)) == len(report.subprograms)
    summary.print_summary(report, Path("small.einnet"))
    out = capsys.readouterr().out
    assert "saved to small.einnet" in out
    assert "verification passed" in out and f"a-priori bound {report.verification.bound:.2g}" in out
    assert f"speedup {report.totals.speedup:.2f}x over ONNX Runtime" in out
    assert f"certificate: {report.certificate.derivations} derivations" in out
    summary.print_summary(report, None, every=True)
    shown = capsys.readouterr().out
    assert "Conv 'conv1'" in shown
    assert shown.splitlines()[0] == out.splitlines()[0] == verdict(report)


def test_json_on_standard_output_is_nothing_but_json(einnet, tmp_path):
    onnx.save(two_layers(), tmp_path / "two.onnx")
    code, out, err = einnet("optimize", tmp_path / "two.onnx", "--no-derive", "--time-budget", 2, "--threads", 1, "--json", "-")
    assert code == 0
    assert err == ""
    report = json.loads(out)
    assert report["settings"]["derive"] is False
    assert not any(s["changed"] for s in report["subprograms"])


def test_shapes_make_a_symbolic_batch_static(einnet, tmp_path):
    onnx.save(dynamic_batch(), tmp_path / "dynamic.onnx")
    code, _, err = einnet("optimize", tmp_path / "dynamic.onnx")
    assert code == 2
    assert "--shape x=1x8" in err
    assert len(err.splitlines()) == 1
    arguments = ("--shape", "x=3x8", "--no-derive", "--time-budget", 2, "--threads", 1, "-o", tmp_path / "d.einnet")
    code, out, err = einnet("optimize", tmp_path / "dynamic.onnx", *arguments)
    assert (code, err) == (0, "")
    assert "verification passed" in out
    assert load(tmp_path / "d.einnet").inputs == {"x": ("f32", (3, 8))}
    assert einnet("verify", tmp_path / "dynamic.onnx", tmp_path / "d.einnet").code == 0


BAD_ARGUMENTS = {
    "unknown rule": (("--rules", "magic"), "no rule 'magic'"),
    "shape syntax": (("--shape", "image=3,4"), "expected name=1x3x224x224"),
    "shape without name": (("--shape", "1x3"), "expected name=1x3x224x224"),
    "shape of no input": (("--shape", "picture=1x10x8x8"), "no input 'picture'"),
    "shape that contradicts": (("--shape", "image=1x10x9x8"), "dimension 2 of input 'image'"),
    "shape twice": (("--shape", "image=1x10x8x8", "--shape", "image=1x10x8x8"), "given twice"),
    "backend": (("--backend", "abacus"), "backend 'abacus'"),
    "class": (("--allow", "anything"), "allow 'anything'"),
    "depth": (("--max-depth", "-1"), "max_depth must be 0 or more"),
    "budget": (("--time-budget", "0"), "time_budget must be a positive number"),
    "threads": (("--threads", "0"), "threads must be 1 or more"),
    "more threads than processors": (("--threads", "10000"), f"threads=10000: this machine has {os.cpu_count()} processors"),
    "seed": (("--seed", "-1"), "seed must be 0 or more"),
    "folder missing": (("-o", "/nowhere/x.einnet"), "/nowhere/x.einnet: cannot be written"),
    "kind of file": (("-o", "x.foo"), "x.foo: the name says what is written: OUT.einnet, a program, or OUT.onnx"),
    "folder for a file": (("-o", "/"), "cannot be written (it is a folder)"),
    "report": (("--json", "/nowhere/r.json"), "/nowhere/r.json: cannot be written"),
    "profile of no card": (("--profile", "h200.json"), "--profile describes a CUDA device"),
    "page of a range": (("--dynamic", "batch=1..3", "--report", "p.html"), "one program, which --dynamic does not have"),
    "page for a card": (("--backend", "cuda", "--report", "p.html"), "one program, which --backend cuda does not have"),
    "model of a range": (("--dynamic", "batch=1..3", "-o", "o.onnx"), "--dynamic writes programs of its own, OUT.einnet, not ONNX models"),
    "model for a card": (("--backend", "cuda", "-o", "o.onnx"), "--backend cuda writes programs of its own, OUT.einnet, not ONNX models"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_wrong_arguments_of_optimize(einnet, models, name, monkeypatch):
    arguments, message = BAD_ARGUMENTS[name]
    monkeypatch.setattr("einnet.compile.pipeline.search", None)  # nothing may be searched before the arguments are found wrong
    code, out, err = einnet("optimize", models / "small.onnx", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_verifying_with_a_seed_below_0_is_refused(einnet, models, optimized):
    code, out, err = einnet("verify", models / "small.onnx", optimized / "small.einnet", "--seed", -1)
    assert (code, out) == (2, "")
    assert "seed must be 0 or more, not -1" in err


def bad_model(name: str, folder: Path) -> Path:
    """A file that is no model, in one way or another."""
    path = folder / f"{name}.onnx"
    whole = tiny("small", size=8).SerializeToString()
    if name == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif name == "text":
        path.write_text("This is not a model.\n")
    elif name == "empty":
        path.touch()
    elif name == "folder":
        path.mkdir()
    elif name == "invalid":
        x, y = (helper.make_tensor_value_info(value, TensorProto.FLOAT, (2,)) for value in "xy")
        onnx.save(helper.make_model(helper.make_graph([helper.make_node("Relu", ["nothing"], ["y"])], "g", [x], [y])), path)
    return path


@pytest.mark.parametrize("name", ["missing", "truncated", "text", "empty", "folder", "invalid"])
def test_models_that_cannot_be_read(einnet, tmp_path, name):
    path = bad_model(name, tmp_path)
    code, out, err = einnet("optimize", path, "-o", tmp_path / "x.einnet")
    assert (code, out) == (2, "")
    assert err.startswith(f"einnet: {path}: ")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "x.einnet").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_a_failed_verification_saves_no_program_of_ours(einnet, tmp_path, monkeypatch, kept):
    """The model is kept whole, with a note; where that cannot be done nothing is saved."""
    if not kept:
        monkeypatch.setattr("einnet.compile.targets.whole.target.kept", lambda _: None)
    monkeypatch.setattr("einnet.search.settings.TOLERANCE", {"exact": -1.0, "reassociation": -1.0, "precision": -1.0})
    onnx.save(two_layers(), tmp_path / "two.onnx")
    arguments = ("--no-derive", "--time-budget", 2, "--threads", 1, "-o", tmp_path / "x.einnet")
    code, out, _ = einnet("optimize", tmp_path / "two.onnx", *arguments)
    assert code == (0 if kept else 1)
    assert ("kept whole, ONNX Runtime runs it: the model's own operators do not give its results" in out) == kept
    assert ("verification FAILED" in out) == (not kept)
    assert sorted(os.listdir(tmp_path)) == (["two.onnx", "x.einnet"] if kept else ["two.onnx"])


# ------------------------------------------------------------------------------------------------------------ progress, Ctrl-C


def test_progress_line():
    p = progress.Progress("search", 2, 17, 300, 1200.4, 0.1234, 0.15, 83.7)
    assert progress.detail(p) == "subprogram 3 of 17 · 1200 states/s · best 0.123 ms, original 0.15 ms · 84 s left"
    assert "0.15 ms -> [bold]0.123 ms[/bold]   1.22x" in str(progress.finding(p))
    assert progress.finding(progress.Progress("search", 2, 17, 300, 1200.4, 0.15, 0.15)) is None
    assert progress.finding(progress.Progress("search", 2, 17, 300)) is None
    with progress.progress(quiet=True) as report:
        assert report is None


def test_what_is_being_verified_is_a_line_now_and_then(capsys):
    """A kernel a second: a line every ten of them."""
    now = 0.0
    tell = progress.seldom(lambda: now)
    for n in each(range(25), "kernel", tell):
        now = float(n)
    with progress.checks() as quiet:
        quiet("kernel 1 of 1")
    assert capsys.readouterr().err.splitlines() == [f"einnet: verify: kernel {n} of 25" for n in (12, 22)]


def test_progress_without_a_terminal_is_a_line_now_and_then(capsys):
    now = 0.0
    report = progress.lines(lambda: now)
    for now in (1.0, 9.9, 10.0, 15.0, 20.5):
        report(progress.Progress("search", 2, 17, 300, left=83.7 - now))
    shown = capsys.readouterr().err.splitlines()
    assert shown == [f"einnet: search: subprogram 3 of 17 · 300 states · {left} s left" for left in (74, 63)]


def on_terminal(command: list[str], until: str, then: int | None, limit: float = 120) -> tuple[int, str]:
    """Run a command with its error stream on a terminal; send a signal when `until` appears. The exit code and what was shown."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave, env={**os.environ, "COLUMNS": "200", "TERM": "xterm"})
    os.close(slave)
    shown, end = "", time.monotonic() + limit
    while time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            try:
                data = os.read(master, 65536)
            except OSError:  # the terminal's other end is closed
                break
            shown += data.decode(errors="replace")
        if then is not None and until in shown:
            process.send_signal(then)
            then = None
        if process.poll() is not None and not select.select([master], [], [], 0)[0]:
            break
    code = process.wait(max(end - time.monotonic(), 1))
    os.close(master)
    return code, shown


def test_interrupted_search_gives_the_best_so_far(einnet, models, tmp_path):
    command = [sys.executable, "-m", "einnet", "optimize", str(models / "opaque.onnx"), "--time-budget", "10", "--threads", "1"]
    files = ["-o", str(tmp_path / "x.einnet"), "--json", str(tmp_path / "r.json")]
    code, shown = on_terminal([*command, *files], "subprogram ", signal.SIGINT)
    assert code == 0, shown
    assert re.search(r"subprogram \d+ of \d+ .*s left", shown)
    assert "Traceback" not in shown
    report = json.loads((tmp_path / "r.json").read_text())
    assert any("interrupted" in note for note in report["notes"])
    assert report["verification"]["passed"] is True
    assert einnet("verify", models / "opaque.onnx", tmp_path / "x.einnet").code == 0
    assert sorted(os.listdir(tmp_path)) == ["r.json", "x.einnet"]


# -------------------------------------------------------------------------------------------------------------- run


def test_run_gives_what_the_model_gives(einnet, models, optimized, image, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    code, out, err = einnet("run", optimized / "small.einnet", "--input", f"image={image}", "--output-dir", tmp_path / "a" / "b")
    assert (code, err) == (0, "")
    (expected,) = onnxruntime.InferenceSession(str(models / "small.onnx")).run(None, {"image": np.load(image)})
    (path,) = (tmp_path / "a" / "b").iterdir()
    assert str(path) in out
    np.testing.assert_allclose(np.load(path), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_wrong_inputs_of_run(einnet, optimized, image, tmp_path):
    program = optimized / "small.einnet"
    np.save(tmp_path / "double.npy", np.load(image).astype(np.float64))
    np.save(tmp_path / "flat.npy", np.load(image).reshape(-1))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "many.npz", a=np.zeros(2))
    (tmp_path / "short.npy").write_bytes(image.read_bytes()[:200])
    cases = {
        (): "input 'image' is missing; the program takes --input image=FILE.npy with f32[1,10,8,8]",
        (f"picture={image}",): "unknown input 'picture'",
        (f"image={image}", f"image={image}"): "input 'image' is given twice",
        ("image",): "expected name=file.npy",
        (f"image={tmp_path}/none.npy",): "none.npy: cannot be read (No such file or directory)",
        (f"image={tmp_path}/double.npy",): "double.npy: f64[1,10,8,8], but input 'image' is f32[1,10,8,8]",
        (f"image={tmp_path}/flat.npy",): "flat.npy: f32[640], but input 'image' is f32[1,10,8,8]",
        (f"image={tmp_path}/objects.npy",): "not a .npy file of numbers",
        (f"image={tmp_path}/many.npz",): "holds several arrays",
        (f"image={tmp_path}/short.npy",): "not a .npy file of numbers",
    }
    for given, message in cases.items():
        code, out, err = einnet("run", program, *(a for text in given for a in ("--input", text)), "--output-dir", tmp_path / "out")
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    code, _, err = einnet("run", program, "--input", f"image={image}", "--output-dir", image)
    assert code == 2
    assert "cannot be made" in err


@pytest.mark.parametrize("command", ["run", "explain"])
def test_programs_that_cannot_be_read(einnet, optimized, models, tmp_path, command):
    whole = (optimized / "small.einnet").read_bytes()
    (tmp_path / "short.einnet").write_bytes(whole[: len(whole) // 2])
    for path in (tmp_path / "none.einnet", tmp_path / "short.einnet", models / "small.onnx"):
        code, _, err = einnet(command, path)
        assert code == 2
        assert str(path) in err
        assert len(err.splitlines()) == 1


# ------------------------------------------------------------------------------------------------------ verify, explain


def test_verify_passes(einnet, models, optimized):
    code, out, _ = einnet("verify", models / "small.onnx", optimized / "small.einnet", "--seed", 5)
    assert code == 0
    assert out.splitlines()[0] == "passed"
    verdict = json.loads(einnet("verify", models / "small.onnx", optimized / "small.einnet", "--json", "-").out)
    assert verdict["passed"] is True
    assert verdict["certificate"]["steps"] == json.loads((optimized / "report.json").read_text())["certificate"]["steps"]
    assert verdict["certificate"]["problems"] == []
    lifting, kernels, constants = verdict["lifting"], verdict["kernels"], verdict["constants"]
    assert lifting["proven"] + lifting["by_derivation"] == lifting["subprograms"] > 0
    assert kernels["exact"] + kernels["bounded"] == kernels["distinct"] > 0
    assert constants["weights"] + constants["computed"] + constants["tables"] == constants["constants"] > 0
    assert f"{lifting['subprograms']} of {lifting['subprograms']} proven from the model to the plan" in out
    parts = verdict["verification"]["subprograms"]
    assert parts["subprograms"] + len(parts["not_compared"]) == parts["of"]
    assert parts["of"] + len(parts["given"]) + len(parts["within"]) == lifting["subprograms"]
    assert parts["subprograms"] > len(parts["not_compared"]) and 0 < parts["share"] < 1
    assert f"{parts['subprograms']} of {parts['of']} subprograms" in out
    assert any(line.startswith("trusted") for line in out.splitlines()) and len(verdict["trusted"]) > 1


def test_verify_fails_for_other_weights(einnet, optimized, tmp_path):
    onnx.save(tiny("small", size=8, seed=7), tmp_path / "other.onnx")
    code, out, _ = einnet("verify", tmp_path / "other.onnx", optimized / "small.einnet")
    assert code == 1
    assert out.splitlines()[0] == "FAILED"
    assert "was made from another model" in out and "is not the model's weight" in out


def test_verify_refuses_another_model(einnet, optimized, tmp_path):
    onnx.save(two_layers(), tmp_path / "two.onnx")
    code, _, err = einnet("verify", tmp_path / "two.onnx", optimized / "small.einnet")
    assert code == 2
    assert len(err.splitlines()) == 1


def test_verify_finds_a_forged_derivation(einnet, models, optimized, tmp_path, monkeypatch):
    program = load(optimized / "small.einnet")
    at = next(n for n, text in enumerate(program.loaded.derivations) if "r<3" in text)
    forged = list(program.loaded.derivations)
    forged[at] = forged[at].replace("r<3", "r<2")
    monkeypatch.setattr("einnet.api.load.load_told", lambda _: stored.StoredProgram(program.path, replace_derivations(program, forged)))
    code, out, err = einnet("verify", models / "small.onnx", "forged")
    assert code == 1
    assert "derivation" in out + err


def replace_derivations(program: stored.StoredProgram, texts: list[str]):
    """The loaded program with other derivation texts."""
    from dataclasses import replace

    return replace(program.loaded, derivations=tuple(texts))


def test_explain(einnet, optimized):
    code, out, err = einnet("explain", optimized / "small.einnet")
    assert (code, err) == (0, "")
    report = json.loads((optimized / "report.json").read_text())
    for s in report["subprograms"]:
        assert s["expression"] in out
        assert s["nodes"][0] in out if s["nodes"] else True
        assert all(k["kernel"] in out for k in s["kernels"])
    assert f"Where the time goes: {len(report['kernels'])} kernels" in out
    assert "error of a kernel's prediction: median" in out
    assert f"a-priori bound {report['verification']['bound']:.2g}" in out
    told = json.loads(einnet("explain", optimized / "small.einnet", "--json", "-").out)
    assert {c["key"] for c in told["subprograms"]} == {s["key"] for s in report["subprograms"]}
    assert told["kernels"] == report["kernels"]


def test_a_stored_program_shows_its_report_in_a_notebook(optimized):
    program = load(optimized / "small.einnet")
    page = program._repr_html_()
    assert page.startswith("<div><style>")
    assert page.count('class="chapter"') == len({s["key"] for s in program.report["subprograms"]})
    assert f"{program.report['totals']['speedup']:.2f}x" in page


def test_explain_all_proves_what_was_considered(einnet, optimized):
    program = load(optimized / "small.einnet")
    assert program.considered
    assert any("Matmul" in m for c in program.considered for m in c.matches)
    for c in program.considered:
        assert len(check(c.derivation)) == len(c.derivation.steps)
    code, out, _ = einnet("explain", optimized / "small.einnet", "--all")
    assert code == 0
    for c in program.considered:
        assert c.derivation.end.text() in out
    assert out.count("1. by ") >= len(program.considered)
    assert out.count("a-priori error bound") >= len(program.considered)


def test_the_file_can_be_moved(einnet, optimized, image, tmp_path):
    shutil.copy(optimized / "small.einnet", tmp_path / "moved")
    assert einnet("run", tmp_path / "moved", "--input", f"image={image}", "--output-dir", tmp_path).code == 0
