"""`einnet profile`: which kernels are asked for, how they are packed, and what is written of their times; on stand-ins for the card."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from einnet.cli import main
from einnet.compile.targets.cuda.recording import merge, read_requests, requests_json
from einnet.errors import BackendError, UsageError
from einnet.expr.nodes import Tensor
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Conv, EOperator, Matmul, View, dense_view
from einnet.runtime.cuda.profiling import measure, pack, precompile
from einnet.runtime.cuda.profiling.costs import CudaCost
from einnet.runtime.cuda.profiling.profile import H200, key, load
from tests.instantiate.cuda_cases import case
from tests.models import two_layers
from tests.runtime.cuda.standin import install
from tests.runtime.cuda.standin.card import Card

PRODUCT = Matmul(dense_view("a", (8, 8)), dense_view("w", (8, 8)), dense_view("c", (8, 8)))
CONV = Conv(dense_view("x", (1, 4, 5, 5)), dense_view("w", (1, 6, 4, 3, 3)), dense_view("y", (1, 6, 5, 5)), (1, 1), (1, 1), (1, 1), (1, 1))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Figures and caches of a card that is this machine."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "FLUSH", 1 << 12)
    monkeypatch.setattr(precompile, "PRODUCT", 16)
    monkeypatch.setattr(precompile, "COPY", 64)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return install(monkeypatch)


def packed(*kernels, maths=("fp32",)) -> pack.Pack:
    return precompile.prepare(dict.fromkeys(kernels, maths), "sm_90", lambda name: name.startswith("w"))


def rows_of(made: pack.Pack, tmp_path: Path, seconds: float = 1e9):
    measure.measure(made, tmp_path / "t", seconds, lambda line: None)
    return measure.read_times(tmp_path / "t")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a search of a small model asks for, written without a card; the model is beside it."""
    folder = tmp_path_factory.mktemp("asked")
    with pytest.MonkeyPatch.context() as without:
        without.setitem(sys.modules, "cupy", None)
        without.setenv("EINNET_CACHE", str(folder / "cache"))
        onnx.save(two_layers(), folder / "m.onnx")
        path = folder / "requests.json"
        assert main(["profile", "--requests", str(folder / "m.onnx"), "-o", str(path), "--list", "--max-depth", "1", "--time-budget", "2"]) == 0
    return path


def test_without_a_card_it_says_so_and_writes_nothing(requests, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main(["profile", "--requests", str(requests), "-o", str(tmp_path / "p.json")]) == 2
    assert "pip install cupy" in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


def test_three_steps_on_three_machines_give_what_one_gives(requests, tmp_path, card, capsys):
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    assert main(["profile", "--requests", str(requests), "-o", str(one), "--workers", "1"]) == 0
    assert main(["profile", "--requests", str(requests), "--prepare", str(tmp_path / "pack.zip"), "--workers", "1"]) == 0
    assert main(["profile", "--measure", str(tmp_path / "pack.zip"), "-o", str(tmp_path / "times.jsonl")]) == 0
    assert main(["profile", "--merge", str(tmp_path / "times.jsonl"), "-o", str(other)]) == 0
    found, again = load(one), load(other)
    count = len({key(k) for k in read_requests(requests)})
    assert (found.measured, found.device, len(found.seconds), dict(found.failed)) == (True, "Stand-in", count, {})
    assert (dict(found.seconds), found.versions) == (dict(again.seconds), again.versions)
    assert found.properties["multiProcessorCount"] == 132


def test_what_is_known_is_not_asked_for_again(tmp_path, card, capsys):
    onnx.save(two_layers(), tmp_path / "m.onnx")
    command = ["profile", "--requests", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "p.json"), "--workers", "1"]
    command += ["--max-depth", "1", "--time-budget", "2"]
    assert main(command) == 0
    before = dict(load(tmp_path / "p.json").seconds)
    assert before
    capsys.readouterr()
    assert main(command) == 0
    assert "m.onnx: 0 kernels" in capsys.readouterr().err
    assert dict(load(tmp_path / "p.json").seconds) == before


def test_a_search_reads_what_was_recorded(requests, tmp_path, card):
    out = tmp_path / "p.json"
    main(["profile", "--requests", str(requests), "-o", str(out), "--workers", "1"])
    report = tmp_path / "r.json"
    command = ["optimize", str(requests.with_name("m.onnx")), "--backend", "cuda", "--profile", str(out), "--no-derive", "--json", str(report)]
    assert main(command) == 0
    assert json.loads(report.read_text())["profile"] == "measured"
    assert not any(k["estimated"] for k in json.loads(report.read_text())["kernels"])


def test_the_search_that_asks_is_the_search_that_chooses(tmp_path):
    """What `optimize` runs is among what `profile` lists, the first of all."""
    from einnet.compile.targets.cuda.recording import requests as asked
    from einnet.compile.targets.cuda.target import searched
    from einnet.graph.onnx.importer import load as read
    from einnet.graph.passes.prepare import prepare as prepared
    from einnet.search.settings import Settings

    settings = Settings(backend="cuda", max_depth=2, time_budget=4)
    made, _ = searched(prepared(read(two_layers())), settings, H200)
    wanted = [key(k) for k in made.plan.kernels]
    assert [key(k) for k in asked(two_layers(), settings, H200)][: len(dict.fromkeys(wanted))] == list(dict.fromkeys(wanted))


def test_packs_are_plain_data_and_come_back(tmp_path, card):
    made = packed(PRODUCT, CONV, case("softmax"), case("two reductions"), maths=("fp32", "tf32"))
    pack.write(tmp_path / "p.zip", made)
    assert pack.read(tmp_path / "p.zip") == made
    pack.write(tmp_path / "q.zip", made)
    assert (tmp_path / "p.zip").read_bytes() == (tmp_path / "q.zip").read_bytes()


@pytest.mark.parametrize("damage", ["format", "sizes", "code", "length"])
def test_files_that_are_no_packs(damage, tmp_path, card):
    import zipfile

    pack.write(tmp_path / "p.zip", packed(case("softmax")))
    with zipfile.ZipFile(tmp_path / "p.zip") as archive:
        value, codes = json.loads(archive.read("pack.json")), archive.read("codes")
    match damage:
        case "format":
            value["pack"] = 9
        case "sizes":
            value["kernels"][0]["sizes"].popitem()
        case "code":
            value["kernels"][0]["steps"][0]["number"] = 99
        case "length":
            codes = codes[:-1]
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("pack.json", json.dumps(value))
        archive.writestr("codes", codes)
    with pytest.raises(UsageError, match="is no pack of kernels"):
        pack.read(tmp_path / "p.zip")


def test_the_card_needs_neither_a_generator_nor_a_search(tmp_path, card):
    """Timing and merging in a process in which what a card's machine may lack cannot be imported."""
    pack.write(tmp_path / "p.zip", packed(PRODUCT, case("softmax")))
    program = f"""
import sys
for name in ("tvm", "tvm_ffi", "islpy", "onnx", "onnxruntime", "sympy"):
    sys.modules[name] = None
import pytest
from einnet.cli import main
from einnet.runtime.cuda.profiling import measure
from tests.runtime.cuda.standin import install
measure.FLUSH = 4096
with pytest.MonkeyPatch.context() as patch:
    install(patch)
    assert main(["profile", "--measure", {str(tmp_path / "p.zip")!r}, "-o", {str(tmp_path / "t")!r}]) == 0
    assert main(["profile", "--merge", {str(tmp_path / "t")!r}, "-o", {str(tmp_path / "profile.json")!r}]) == 0
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(load(tmp_path / "profile.json").seconds) == {key(PRODUCT), key(case("softmax"))}


def test_weights_are_cold_and_lie_apart_and_all_else_stays(tmp_path, card, monkeypatch):
    """A product's launches of one graph read weights of their own behind an overwritten cache, and one and the same other operand."""
    seen: list[tuple[int, int]] = []
    bind = measure.Libraries.products

    def products(self, math):
        found = bind(self, math)

        def bound(step, at, algorithm):
            seen.append((at["a"], at["w"]))
            return type(found).bind(found, step, at, algorithm)

        monkeypatch.setattr(found, "bind", bound)
        return found

    monkeypatch.setattr(measure.Libraries, "products", products)
    made = packed(PRODUCT)
    timer = measure.Bench(made)
    seen.clear()
    card.log.clear()
    row = timer.time(made.kernels[0], "fp32")
    assert len({a for a, _ in seen}) == 1
    weights = sorted({w for _, w in seen})
    assert len(weights) == measure.COPIES
    assert all(b - a >= 4 * 64 for a, b in itertools.pairwise(weights))
    assert card.log.count("fill") == measure.ROUNDS + 1
    assert row.seconds[0] == row.hot[0] == pytest.approx(1e-3), "what the flush takes is not the kernel's"


def test_one_driver_and_one_handle_serve_all_kernels(tmp_path, card, monkeypatch):
    made: list[str] = []
    for kind in (measure.Driver, *(measure.Libraries(measure.Driver()).products("fp32").__class__,)):
        begin = kind.__init__
        monkeypatch.setattr(kind, "__init__", lambda self, *args, begin=begin, name=kind.__name__: (made.append(name), begin(self, *args))[1])
    kernels = [Matmul(dense_view("a", (n, 8)), dense_view("w", (8, 8)), dense_view("c", (n, 8))) for n in range(2, 6)]
    _, rows = rows_of(packed(*kernels, maths=("fp32", "tf32")), tmp_path)
    assert len(rows) == 8
    assert sorted(made) == ["Driver", "Products", "Products"]


def test_what_cannot_run_has_its_reason_and_costs_infinitely_much(tmp_path, card, monkeypatch):
    assert {b.name: b.role for b in precompile.plan_of(CONV).buffers} == {"x": "input", "w": "constant", "y": "output"}
    made = packed(CONV, PRODUCT)
    monkeypatch.setattr("tests.runtime.cuda.standin.dnn.PLANS", ())
    assert measure.measure(made, tmp_path / "t", 60.0, lambda line: None) == (1, 1)
    found = merge(None, [tmp_path / "t"], "fp32")
    assert "cuDNN has no fp32 plan" in found.failed[key(CONV)]
    assert CudaCost(found).seconds(CONV) == float("inf")


def test_what_cannot_be_prepared_has_its_reason_in_the_profile(tmp_path, card, monkeypatch):
    from einnet.runtime.cuda import nvrtc
    from tests.runtime.cuda.standin import each_text

    bad = case("softmax")

    def compiled(texts, architecture, workers=0):
        for name, code in each_text(texts, architecture):
            yield name, BackendError("NVRTC ends with signal 11") if "exp" in code.decode() else code

    monkeypatch.setattr(nvrtc, "compiled_or_refused", compiled)
    rows_of(packed(PRODUCT, bad), tmp_path)
    found = merge(None, [tmp_path / "t"], "fp32")
    assert (set(found.seconds), dict(found.failed)) == ({key(PRODUCT)}, {key(bad): "NVRTC ends with signal 11"})


def test_times_are_there_line_by_line_and_end_in_time(tmp_path, card, monkeypatch):
    made = packed(PRODUCT, CONV)
    assert measure.measure(made, tmp_path / "t", -1.0, lambda line: None) == (0, 0)
    assert measure.read_times(tmp_path / "t")[1] == []
    time = measure.Bench.time
    monkeypatch.setattr(measure.Bench, "time", lambda self, kernel, math: 1 / 0 if kernel.kind == "Conv" else time(self, kernel, math))
    with pytest.raises(ZeroDivisionError):
        measure.measure(made, tmp_path / "t", 60.0, lambda line: None)
    assert len((tmp_path / "t").read_text().splitlines()) == 2, "what was timed before stays"


def test_arithmetics_are_kept_apart_and_generated_kernels_belong_to_both(tmp_path, card):
    kernels = {PRODUCT: ["fp32", "tf32"], case("softmax"): ["fp32"]}
    rows_of(precompile.prepare(kernels, "sm_90"), tmp_path)
    fp32, tf32 = (merge(None, [tmp_path / "t"], math) for math in ("fp32", "tf32"))
    assert fp32.seconds.keys() == tf32.seconds.keys()
    assert fp32.details[key(case("softmax"))].generator == tf32.details[key(case("softmax"))].generator


def test_times_of_another_card_are_not_merged(tmp_path, card):
    rows_of(packed(PRODUCT), tmp_path)
    found = merge(None, [tmp_path / "t"], "fp32")
    other = (tmp_path / "t").read_text().replace("Stand-in", "Another")
    (tmp_path / "u").write_text(other)
    with pytest.raises(UsageError, match="holds times on Another"):
        merge(found, [tmp_path / "u"], "fp32")


def test_a_pack_for_another_architecture_is_refused(card):
    from dataclasses import replace

    with pytest.raises(BackendError, match="machine code for sm_100, and the device is of sm_90"):
        measure.Bench(replace(packed(case("softmax")), architecture="sm_100"))


@pytest.mark.parametrize("text", ["", "{}", '{"times": 9}', '{"times": 1}\n{"key": "k"}'])
def test_files_that_are_no_times(text, tmp_path, capsys):
    (tmp_path / "t").write_text(text)
    assert main(["profile", "--merge", str(tmp_path / "t"), "-o", str(tmp_path / "p.json")]) == 2
    assert "holds no times of kernels: line 1" in capsys.readouterr().err


@pytest.mark.parametrize(("row", "why"), [({}, "either"), ({"failed": "x", "seconds": [1, 0, 1]}, "either"), ({"seconds": [-1, 0, 1]}, ">= 0")])
def test_a_row_that_is_no_time_is_told_with_its_line(row, why, tmp_path, card):
    rows_of(packed(PRODUCT), tmp_path)
    with (tmp_path / "t").open("a") as file:
        file.write(json.dumps({"key": "k", "kind": "Matmul", "math": "fp32", "hot": [1, 0, 1], **row}) + "\n")
    with pytest.raises(UsageError, match=f"holds no times of kernels: line 3: .*{why}"):
        measure.read_times(tmp_path / "t")


@pytest.mark.parametrize("text", ["", "{}", '{"requests": 9, "kernels": []}', '{"requests": 1, "kernels": [{"kind": "dance"}]}'])
def test_files_that_are_no_requests(text, tmp_path, capsys):
    (tmp_path / "r.json").write_text(text)
    assert main(["profile", "--requests", str(tmp_path / "r.json"), "-o", str(tmp_path / "p.json"), "--list"]) == 2
    assert "holds no requests" in capsys.readouterr().err


def test_the_processor_is_not_profiled_so(tmp_path, capsys):
    assert main(["profile", "--backend", "cpu", "--requests", "x", "-o", str(tmp_path / "p.json")]) == 2
    assert "measures a CUDA card" in capsys.readouterr().err


def test_kernels_in_place_are_given_what_they_overwrite(card):
    scope = parse("L[i<8] relu(A[i])", {"A": Tensor("A", (8,))})
    kernel = EOperator(scope, (("A", View("x", (8,), (1,), 4)),), View("x", (8,), (1,), 4))
    plan = precompile.plan_of(kernel)
    assert [name for name, _ in plan.inputs] == [name for name, _ in plan.outputs] == ["x"]
    assert plan.buffers[0].size == 12
    (found,) = packed(kernel).kernels
    assert (found.read, found.weights) == ((), ()), "what is written is not taken from the region that is only read"


def test_requests_have_no_opaque_nodes():
    from einnet.instantiate.kernels import OpaqueCall

    assert len(requests_json([PRODUCT, OpaqueCall(b"", (), (), "n")])["kernels"]) == 1
