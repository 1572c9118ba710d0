"""The commands for public suites: what is gathered of a problem's process, which limits end it, how it is scored, and how problems are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suites import command, runner, scores, sizes, table
from benchmarks.suites.problem import Task, Unusable

LINES = [
    '{"phase": "load"}', "a warning that somebody prints", '{"changed": [], "phase": "eager"}', '{"eager_s": 0.5}', '{"broken',
    '{"engine": "einnet", "right": true, "within": ["suite"], "parts": []}', '{"phase": "times", "ms": {"eager": [2.0, 1.9, 5.0]}}',
    '{"status": "done"}',
]  # fmt: skip


def test_lines_of_a_process_make_a_row() -> None:
    row = runner.merged(LINES)
    assert row["engines"] == {"einnet": {"right": True, "within": ["suite"], "parts": []}}
    assert (row["phase"], row["status"], row["eager_s"]) == ("times", "done", 0.5)


LIMITS = [
    ('import time; print(\'{"phase": "einnet"}\', flush=True); time.sleep(60)', 2.0, 1 << 40, "more than 2 s in einnet"),
    ("x = bytearray(1 << 28); import time; time.sleep(60)", 60.0, 1 << 27, "more than 0.134 GB in start"),
    ("import sys; sys.stderr.write('it broke'); sys.exit(7)", 60.0, 1 << 40, "exit code 7 in start: it broke"),
]


class Alone:
    """In the place of the nursery: a process that runs a line of code."""

    def __init__(self, code: str) -> None:
        self.text = code

    def order(self, orders: dict[str, Any]) -> int:
        with open(orders["out"], "w") as out, open(orders["err"], "w") as err:
            self.process = subprocess.Popen([sys.executable, "-c", self.text], stdout=out, stderr=err, start_new_session=True)
        return self.process.pid

    def code(self) -> int:
        return self.process.wait()


@pytest.mark.parametrize(("code", "seconds", "nbytes", "why"), LIMITS)
def test_a_process_that_ends_badly_or_is_ended_is_told(code: str, seconds: float, nbytes: int, why: str) -> None:
    row = runner.run({"threads": 1}, seconds, nbytes, Alone(code))  # type: ignore[arg-type]
    assert (row["status"], row["why"]) == ("ended", why)


def row(name: str, right: bool = True, runs: str = "einnet", ms: tuple[float, float] | None = (2.0, 1.0), **found: Any) -> dict[str, Any]:
    part = {"part": "part 0", "runs": runs, "why": "", "operators": 1}
    engine = {"right": right, "within": ["suite", "-3", "-2", "-1", "0"] if right else [], "parts": [part], **found}
    times = {"ms": {"eager": [ms[0], ms[0] - 0.5], "einnet": [ms[1], 0.25]}} if ms else {}
    asked = {"largest": None, "fit": False}
    return {"name": name, "status": "done", "eager_s": 1.0, "asked": asked, "engines": {"einnet": engine}, **times}


def test_kinds_and_fast_p() -> None:
    rows = [row("a"), row("b", runs="eager", ms=(1.0, 1.0)), row("c", right=False), row("d", error="it broke")]
    assert [scores.kind(r, "einnet") for r in rows] == ["right", "eager", "accuracy", "failure"]
    slow = {**row("e"), "status": "ended", "why": "more than 9 s in einnet", "engines": {}}
    whole = row("f")
    whole["engines"]["einnet"]["parts"].append({"part": scores.GRAPH, "runs": "eager", "why": "no slower there", "operators": 1})
    assert scores.kind(whole, "einnet") == "eager"
    assert scores.kind(slow, "einnet") == "ended" and scores.kind({**slow, "why": "exit code 1 in einnet"}, "einnet") == "failure"
    assert [scores.fast(rows, "einnet", "eager", p) for p in (0.0, 1.0, 1.5, 2.0)] == [0.5, 0.25, 0.25, 0.0]


def test_scores_that_know_of_errors() -> None:
    rows = [row("a", ms=(4.0, 1.0)), row("b", right=False), row("c", error="it broke")]
    plain = {t: scores.scored(rows, "einnet", t)[0] for t in (-5, -3, 0, 1, 3)}
    aware = {t: scores.scored(rows, "einnet", t)[1] for t in (-5, -3, 0, 1, 3)}
    assert plain[0] == pytest.approx((4.0 * 0.1 * 0.1) ** (1 / 3)) == plain[3] == aware[0]
    assert aware[1] == pytest.approx((4.0 * 1.0 * 0.1) ** (1 / 3))
    assert aware[3] == pytest.approx(4.0 ** (1 / 3))
    strict = [row("a", within=["-3"])]
    assert scores.wrong_at(strict[0], "einnet", -5) == "accuracy"
    assert scores.wrong_at(strict[0], "einnet", -3) is None


def test_the_table_says_what_is_capped_and_what_was_left_out() -> None:
    capped = {**row("a"), "asked": {"largest": 16, "fit": False}}
    skipped = {**capped, "name": "b", "status": "skipped", "why": "eager mode takes 30 s", "engines": {}}
    text = table.table("kernelbench", [capped, skipped], "a processor", 250)
    assert "Sizes are capped at 16: these are not the suite's problems" in text
    assert text.startswith("kernelbench: 2 of 250 problems on a processor")
    assert "| b | eager mode takes 30 s |" in text
    assert "| einnet | 1 | 1 | 0 | 0 | 0 | 0 |" in text
    assert "fast_1 100%" in text


def test_a_run_goes_on_where_it_stopped_and_runs_again_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, out, ran = tmp_path / "level1", tmp_path / "out.json", []
    suite.mkdir()
    for n in (10, 9):
        (suite / f"{n}_some.py").write_text(f"N = {n}\n")

    def run(orders: dict[str, Any], seconds: float, nbytes: int, nursery: Any) -> dict[str, Any]:
        ran.append(orders["name"])
        return {"status": "done", "engines": {e: row("")["engines"]["einnet"] for e in orders["engines"]}, "eager_s": 1.0}

    monkeypatch.setattr(command, "run", run)
    arguments = [str(tmp_path), "-o", str(out), "--untimed", "--engines", "einnet"]
    assert command.main("kernelbench", "", arguments) == 0
    assert ran == ["level1/9_some", "level1/10_some"]
    assert command.main("kernelbench", "", arguments) == 0
    assert len(ran) == 2, "nothing is run twice"
    (suite / "9_some.py").write_text("N = 8\n")
    command.main("kernelbench", "", arguments)
    assert ran[2:] == ["level1/9_some"]
    command.main("kernelbench", "", [*arguments, "--time-budget", "3"])
    assert len(ran) == 5, "another question has another answer"
    command.main("kernelbench", "", [*arguments, "--time-budget", "3", "--engines", "programs", "--seconds-left", "-1"])
    assert len(ran) == 5, "no time is left"
    command.main("kernelbench", "", [*arguments, "--time-budget", "3", "--engines", "programs"])
    assert len(ran) == 7, "another engine adds to what is there"
    assert {tuple(p["engines"]) for p in json.loads(out.read_text())["problems"]} == {("einnet", "programs")}
    assert [p["name"] for p in json.loads(out.read_text())["problems"]] == ["level1/9_some", "level1/10_some"]
    command.main("kernelbench", "", [*arguments, "--time-budget", "4", "level1/9"])
    assert ran[7:] == ["level1/9_some"], "prefixes stand where they like"
    with pytest.raises(SystemExit):
        command.main("kernelbench", "", [str(tmp_path / "absent")])


def test_what_a_limit_has_ended_runs_again_with_a_longer_one() -> None:
    orders = {"engines": ["programs"], "timed": False}
    ended = {"status": "ended", "why": "more than 60 s in programs", "engines_asked": ["programs"], "engines": {}, "limit": 60.0}
    assert [command.complete(ended, orders, limit) for limit in (30.0, 60.0, 61.0)] == [True, True, False]
    assert not command.complete({key: value for key, value in ended.items() if key != "limit"}, orders, 60.0)
    assert command.complete({**ended, "status": "unusable"}, orders, 61.0)


def test_a_sample_is_drawn_by_its_seed_and_grows() -> None:
    problems = [f"p{n}" for n in range(50)]
    ten = command.drawn(problems, 10, 0)
    assert len(set(ten)) == 10 and set(ten) <= set(problems)
    assert command.drawn(problems, 20, 0)[:10] == ten == command.drawn(problems[::-1], 10, 0)
    assert command.drawn(problems, 10, 1) != ten
    assert set(ten) - {"p50"} <= set(command.drawn([*problems, "p50"], 11, 0)), "a problem more replaces at most one"
    assert command.drawn(problems, None, 0) == problems


PROBLEM = """
import torch
N, K = 64, 3
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, 2)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.rand(K, N)]
def get_init_inputs():
    return [N]
"""

GRAPH = """
import torch
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: torch.Tensor, L_self_parameters_weight_: torch.nn.parameter.Parameter):
        y = torch.nn.functional.linear(L_x_, L_self_parameters_weight_)
        return (y + torch.arange(2, device=device(type='cuda', index=0)),)
""".replace("import torch\n", "import torch\nfrom torch import device\n", 1)

META = """
class A:
    name = "L_x_"
    shape = [3, 4]
    dtype = "torch.float32"
    device = "cuda:0"
    mean = 1.0
    std = 2.0
    data = None
class B:
    name = "L_self_parameters_weight_"
    shape = [2, 4]
    dtype = "torch.float32"
    device = "cuda:0"
    mean = 0.0
    std = 0.0
    data = None
"""


def test_sizes_are_capped_and_told() -> None:
    from benchmarks.kernelbench.load import capped

    text, changed = capped(PROBLEM, 16)
    assert changed == [] and "N, K = (64, 3)" in text, "what is no plain name is left"
    text, changed = capped("N = 64 * 2\nx = y = 5\ndef f(a=100):\n    return 200\n", 16)
    assert text == "N = 16 * 2\nx = y = 5\n\ndef f(a=100):\n    return 200"
    assert changed == ["N: 64 is 16"]


def test_the_form_of_a_problem_is_the_first_that_fits_or_the_one_with_least_work() -> None:
    limits = sizes.Work(100.0, 100.0, 10)

    def of(flops: float) -> sizes.Work:
        return sizes.Work(flops, 1.0, 1)

    assert str(found(limits, lambda form: of(50.0)).form) == "the suite's own sizes"
    assert str(found(limits, lambda form: of(200.0 if form.cap is None or form.cap > 64 else 50.0)).form) == "sizes at most 64"
    assert str(found(limits, lambda form: of(form.batch * 20.0) if form.batch and form.cap is None else None).form) == "a batch of at most 4"
    assert str(found(limits, lambda form: of(50.0) if form.cap == 32 and form.batch else None).form) == "sizes at most 32 and a batch of at most 1"
    over = found(limits, lambda form: of(1000.0 - (form.cap == 256)))
    assert (over.form, over.fits) == (sizes.Form(256), False)
    assert sizes.chosen(lambda form: None, limits) is None
    assert [sizes.Work(*w).share(limits) for w in ((200.0, 1.0, 1), (1.0, 300.0, 1), (1.0, 1.0, 40))] == [2.0, 3.0, 4.0]


def found(limits: sizes.Work, counted: Any) -> sizes.Chosen:
    chosen = sizes.chosen(counted, limits)
    assert chosen is not None
    return chosen


def test_work_is_counted_without_doing_it() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
    layer = torch.nn.Linear(8, 4, bias=False)
    assert sizes.count(lambda: (layer, [torch.rand(2, 8)])) in [sizes.Work(128.0, 4.0 * (2 * 8 + 8 * 4 + 2 * 4), n) for n in (1, 2)]
    assert sizes.count(lambda: (layer, [torch.rand(2, 9)])) is None
    assert sizes.count(lambda: (lambda x: x.reshape(4, 4).T + 1, [torch.rand(2, 8)])).nbytes == 4 * 2 * 16, "views take no memory"  # type: ignore[union-attr]
    vast = sizes.count(lambda: (torch.matmul, [torch.rand(1 << 20, 1 << 20), torch.rand(1 << 20, 1 << 20)]))
    assert vast is not None and vast.flops > 1e18, "nothing of it is held"

    def asks() -> Any:
        size = int(torch.linspace(1, 3, 3)[-1].item())
        return (lambda x: x[:size] * 2), [torch.rand(4)]

    assert sizes.count(asks).nbytes == 4 * (4 + 3), "a module may ask for values when it is made"


def test_fewer_elements_of_a_batch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
    inputs = [torch.rand(8, 3), torch.rand(3, 8), torch.rand(8), 8, torch.rand(())]
    cut = sizes.of_batch(inputs, 2)
    assert [getattr(x, "shape", x) for x in cut] == [(2, 3), (3, 8), (2,), 8, ()]
    assert sizes.of_batch(inputs, None) == inputs


def test_reasons_are_told_by_how_many_problems_they_concern() -> None:
    notes = ["einnet: operators that stay in eager mode: aten.lstm.input (no ONNX); aten.rand.default (it draws random numbers)"]
    one = row("a", notes=notes, breaks=["Unsupported call of line 12"])
    other = row("b", runs="eager", notes=[notes[0].partition(";")[0]], breaks=["Unsupported call of line 7", "Unsupported call of line 9"])
    told = table.stays([one, other])
    assert told["aten.lstm.input (no ONNX)"] == 2 and told["aten.rand.default (it draws random numbers)"] == 1
    assert told["a break of the graph: Unsupported call of line N"] == 2, "each problem counts once"
    assert told["a part: "] == 1 and table.NOTHING not in told
    assert table.stays([row("c", parts=[])]) == {table.NOTHING: 1}


def test_a_problem_of_kernelbench_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
    from benchmarks.kernelbench.load import load, tasks

    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "3_linear.py").write_text(PROBLEM)
    ((name, path),) = tasks(tmp_path).items()
    problem = load(Task("kernelbench", name, path))
    one, again, other = (problem.inputs(seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other) and one.shape == (3, 64)
    assert torch.equal(load(Task("kernelbench", name, path)).module(one), problem.module(one)), "the weights are drawn by a seed"
    fitted = load(Task("kernelbench", name, path, fit=True))
    assert fitted.changed == [] and fitted.told["form"] == "the suite's own sizes" and fitted.told["fits"]
    path.write_text(PROBLEM.replace("N, K = 64, 3", "N = 8192\nK = 3").replace("Linear(width, 2)", "Linear(width, width)"))
    fitted = load(Task("kernelbench", name, path, fit=True))
    assert (fitted.told["form"], fitted.told["fits"], fitted.changed) == ("sizes at most 2048", True, ["N: 8192 is 2048"])
    path.write_text("class Model: pass")
    with pytest.raises(Unusable, match="it cannot be made: AttributeError"):
        load(Task("kernelbench", name, path))


def test_a_sample_of_graphnet_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
    from benchmarks.graphnet.load import load, tasks, tolerances

    (tmp_path / "some" / "net").mkdir(parents=True)
    (tmp_path / "some" / "net" / "model.py").write_text(GRAPH)
    (tmp_path / "some" / "net" / "weight_meta.py").write_text(META)
    ((name, path),) = tasks(tmp_path).items()
    assert name == "some/net"
    problem = load(Task("graphnet", name, path))
    (x,) = problem.inputs(1)
    assert x.shape == (3, 4)
    assert [n for n, _ in problem.module.named_buffers()] == ["L_self_parameters_weight_"]
    assert torch.equal(problem.module(x)[0], torch.arange(2).expand(3, 2).float())
    assert tolerances()["0"] == (1.0, 1.0) and tolerances()["-5"] == pytest.approx((1e-5, 10**-5.886))
    with pytest.raises(Unusable, match="cannot be capped"):
        load(Task("graphnet", name, path, 16))


@pytest.mark.parametrize("name", ["kernelbench", "graphnet"])
def test_a_committed_table_is_made_of_its_rows(name: str) -> None:
    path = command.RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip("it was not measured yet")
    data = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == table.table(name, data["problems"], data["machine"]["cpu"], data["of"]) + "\n"


@pytest.mark.slow
def test_one_problem_from_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "3_linear.py").write_text(PROBLEM)
    out = tmp_path / "out.json"
    arguments = [str(tmp_path), "-o", str(out), "--engines", "programs,einnet", "--time-budget", "1", "--threads", "1", "--seconds", "0.1"]
    assert command.main("kernelbench", "", arguments) == 0
    (found,) = json.loads(out.read_text())["problems"]
    assert found["engines"]["einnet"]["right"]
    assert [p["runs"] for p in found["engines"]["programs"]["parts"]] == ["einnet"]
    assert set(found["ms"]) == {"eager", "einnet"}
