"""Code that another process compiles: the same bytes and the same words as here, whatever becomes of that process; and nobody else loads TVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import onnx
import pytest

import einnet
from einnet.compile import garbage
from einnet.compile.targets.cpu import contest
from einnet.errors import BackendError, OutOfTimeError
from einnet.expr.nodes import Tensor
from einnet.expr.notation.text import parse
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.child import Child
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.compiler import machine_code, serving
from einnet.runtime.cpu.objects import Objects
from tests.models import two_layers
from tests.runtime.test_child import MODULE, gone
from tests.runtime.test_costs import operator

ROOT = Path(einnet.__file__).parents[1]
NO_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
SMALL = operator("A : f32[9]\nL[i<9] relu(A[i])")
HARD = EOperator(parse("A : c64[4]\nL[i<4] A[i]"), (("A", dense_view("a", (4,))),), dense_view("y", (4,)))


def operators() -> dict[str, EOperator]:
    """Of many kinds: functions, sums, parts that are computed before, borders, strides, a table, integers, halves and code for several threads."""
    texts = {
        "function": "A : f32[8]\nL[i<8] exp(A[i])",
        "product": "A : f32[32,40]\nB : weight f32[40,24]\nL[i<32,j<24] Σ[k<40] A[i,k]*B[k,j]",
        "rows": "A : f32[32,320]\nL[i<32,j<320] A[i,j] / {L[i<32] Σ[k<320] A[i,k]}[i]",
        "largest": "A : f32[7,9]\nL[i<7] max[k<9] A[i,k]",
        "border": "A : f32[30,50]\nL[i<30,j<50] Σ[r<3,s<3] exp(A[i+r-1,j+s-1])",
        "large": "A : f32[512,512]\nL[i<512,j<512] relu(A[j,i]) + 1",
        "half": "A : f16[33]\nL[i<33] tanh(A[i])",
    }
    found = {name: k for name, text in texts.items() for k in build(parse(text), {}, "out").kernels if isinstance(k, EOperator)}
    matrix = Tensor("C", (2, 2), values=tuple(Fraction(v) for v in (1, -1, 0, 2)))
    scope = parse("L[i<2,j<6] Σ[k<2] C[i,k]*A[k,j]", {"C": matrix, "A": Tensor("A", (2, 6))})
    found["table"] = EOperator(scope, (("C", dense_view("c", (2, 2))), ("A", View("a", (2, 6), (9, 1), 21))), dense_view("y", (2, 6)))
    return found


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A compiler that dies at every question while there is a file."""
    file = tmp_path / "dies"
    text = MODULE.replace("    what, *more = asked", f"    what, *more = ['die' if os.path.exists({str(file)!r}) else 'data', 3]")
    (tmp_path / "einnet_test_compiler.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Child("einnet_test_compiler")
    monkeypatch.setattr(codegen, "compiler", made)
    yield file
    made.end()


def test_the_bytes_are_those_that_are_compiled_here() -> None:
    named = operators()
    for name, op in named.items():
        for threads in (1, 3):
            assert codegen.compile_operators({name: op}, threads) == machine_code.compile_operators({name: op}, threads), name
    assert codegen.compile_operators(named, 2) == machine_code.compile_operators(named, 2), "several in one"
    assert codegen.compile_operators(named, 2, "x86-64-v2") == machine_code.compile_operators(named, 2, "x86-64-v2")
    assert codegen.compile_operators(named, 2, "x86-64-v2") != codegen.compile_operators(named, 2)
    assert codegen.compile_stepwise({"function": named["function"]}) == machine_code.compile_stepwise({"function": named["function"]})
    codegen.support_object.cache_clear()
    machine_code.support_object.cache_clear()
    assert codegen.support_object() == machine_code.support_object()


def test_many_at_once_have_each_their_own() -> None:
    named = {f"{name}{n}": op for name, op in operators().items() for n in range(2)}
    assert len(named) >= serving.WORTH_SHARING
    found = dict(codegen.compile_each({**named, "hard": HARD}, 2, "native", lambda: None))
    assert str(found.pop("hard")) == refused(HARD)
    assert found == {name: machine_code.compile_operators({name: op}, 2) for name, op in named.items()}


def refused(op: EOperator) -> str:
    with pytest.raises(BackendError) as error:
        machine_code.compile_operators({"k": op}, 1)
    return str(error.value)


def test_what_is_refused_is_refused_in_the_same_words() -> None:
    with pytest.raises(BackendError) as error:
        codegen.compile_operators({"k": HARD}, 1)
    assert str(error.value) == refused(HARD)


def test_a_defect_of_the_generator_is_told_as_one() -> None:
    told, _ = serving.answered(lambda: bytes(1 // 0))
    assert "ZeroDivisionError" in told["failure"]
    with pytest.raises(RuntimeError, match=r"(?s)the code generator fails:.*ZeroDivisionError"):
        codegen._code((told, b""))


def test_a_compiler_that_was_killed_is_begun_again() -> None:
    before, number = codegen.compile_operators({"k": SMALL}, 1), codegen.compiler.number
    assert number is not None
    os.kill(number, signal.SIGKILL)
    assert codegen.compile_operators({"k": SMALL}, 1) == before
    assert codegen.compiler.number not in (number, None)
    codegen.rest()
    assert codegen.compiler.number is None
    assert codegen.compile_operators({"k": SMALL}, 1) == before


def test_a_kernel_at_which_it_dies_again_is_refused(fragile: Path) -> None:
    fragile.touch()
    with pytest.raises(BackendError, match="the compiler ends with signal 9 at k"):
        codegen.compile_operators({"k": SMALL}, 1)
    assert list(codegen.compile_each({"k": SMALL}, 1, "native", lambda: None)) == []
    assert codegen.available() == "the compiler ends with signal 9"
    with pytest.raises(codegen.NotGenerated, match=r"no code for .*: the compiler ends with signal 9 at e"):
        Objects(1).get([SMALL])
    fragile.unlink()
    assert codegen.compile_operators({"k": SMALL}, 1) == b"\3\3\3"


def test_one_that_dies_once_is_asked_again(fragile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fragile.touch()
    running = Child._running

    def recovers(self: Child) -> object:
        if self._process is not None and self._process.poll() is not None:
            fragile.unlink()
        return running(self)

    monkeypatch.setattr(Child, "_running", recovers)
    assert codegen.compile_operators({"k": SMALL}, 1) == b"\3\3\3"


def test_where_no_process_can_be_begun_it_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    before = codegen.compile_operators({"k": SMALL}, 1)
    monkeypatch.setattr(codegen, "compiler", Child(serving.__name__))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    codegen.begin()
    assert codegen.available() is None
    assert codegen.compile_operators({"k": SMALL}, 1) == before
    assert list(codegen.compile_each({"k": SMALL}, 1, "native", lambda: None)) == []


def test_who_waits_for_many_may_stop() -> None:
    def look() -> None:
        raise OutOfTimeError("no time was left")

    with pytest.raises(OutOfTimeError):
        list(codegen.compile_each({f"k{n}": op for n, op in enumerate(operators().values())}, 1, "native", look))
    assert codegen.compile_operators({"k": SMALL}, 1) == machine_code.compile_operators({"k": SMALL}, 1)


def test_it_begins_while_the_model_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And where it is not needed any more, while programs of large models are compared, its memory is given back."""
    told: list[str] = []
    monkeypatch.setattr(codegen, "begin", lambda: told.append("begin"))
    monkeypatch.setattr(codegen, "rest", lambda: told.append("rest"))
    decide = contest.Contest.decide
    monkeypatch.setattr(contest.Contest, "decide", lambda self, *given: (told.append("compared"), decide(self, *given))[1])
    path = tmp_path / "none.onnx"
    with pytest.raises(einnet.EinNetError):
        einnet.optimize(path, threads=1, time_budget=5)
    assert told == ["begin"]
    onnx.save(two_layers(), path)
    einnet.optimize(path, threads=1, time_budget=5)
    assert told == ["begin", "begin", "compared"]
    monkeypatch.setattr(garbage, "LARGE", 1)
    einnet.optimize(path, threads=1, time_budget=5)
    assert told[3:] == ["begin", "rest", "compared"]


SCRIPT = """
import sys, einnet
from einnet.runtime.cpu import compile as codegen
print("begun")
found = einnet.optimize(sys.argv[1], threads=1, time_budget=5)
found.save(sys.argv[2])
print(codegen.compiler.number, *(m for m in ("tvm", "tvm_ffi", "torch") if m in sys.modules))
"""


@NO_FORK
def test_optimizing_loads_tvm_in_another_process_alone(tmp_path: Path) -> None:
    """A script that runs when it is imported runs once, and the compiler ends with it."""
    onnx.save(two_layers(), tmp_path / "m.onnx")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "m.onnx"), str(tmp_path / "m.einnet")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "EINNET_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    begun, number = done.stdout.split()
    assert begun == "begun"
    assert gone(int(number))


HELP = "from einnet.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"


@NO_FORK
@pytest.mark.parametrize("text", [HELP, "einnet.load(sys.argv[1]).executable"])
def test_what_compiles_nothing_begins_no_compiler(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.einnet"
    einnet.optimize(two_layers(), threads=1, time_budget=5).save(path)
    text = f"import sys, einnet\n{text}\nfrom einnet.runtime.cpu import compile as codegen\nassert codegen.compiler._process is None"
    subprocess.run([sys.executable, "-c", text, str(path)], check=True, cwd=ROOT, capture_output=True)
