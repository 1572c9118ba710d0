"""Every code block of the documentation and the README runs, and prints what stands there (`...` stands for anything)."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest

from einnet.cli import main
from tests.docs.blocks import PAGES, ROOT, blocks, commands
from tests.models import tiny

README = ROOT / "README.md"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
KNOWN = {"python", "console", "text", "{toctree}", "{include}"}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_blocks_are_of_a_kind_that_is_tested_or_says_that_it_is_text(path: Path) -> None:
    assert {b.language for b in blocks(path) if not b.language.startswith("{einnet-")} <= KNOWN


@pytest.mark.parametrize("path", [p for p in PAGES if any(b.language == "python" for b in blocks(p))], ids=lambda p: p.stem)
def test_python(path: Path) -> None:
    text = "\n".join(b.text for b in blocks(path) if b.language == "python")
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "tutorial"}, path.name, str(path), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=report.append)
    assert result.attempted > 0 and not result.failed, "".join(report)


CONSOLES = [pytest.param(command, output, id=f"{p.stem}-{n}") for p in PAGES for n, (command, output) in enumerate(
    pair for b in blocks(p) if b.language == "console" for pair in commands(b.text))]  # fmt: skip


@pytest.mark.parametrize(("command", "output"), CONSOLES)
def test_console(command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "einnet"
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    pattern = re.escape(output.rstrip()).replace(re.escape("..."), "(?s:.*?)")
    assert re.fullmatch(pattern, printed.rstrip()), printed


def test_a_changed_output_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command, output = next(pair for p in PAGES for b in blocks(p) if b.language == "console" for pair in commands(b.text) if "--why-not" in pair[0])
    with pytest.raises(AssertionError):
        test_console(command, output.replace("not:", "never:"), tmp_path, monkeypatch, capsys)


@pytest.mark.slow
def test_the_python_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(tiny("small", size=8), tmp_path / "model.onnx")
    given = onnx.load(tmp_path / "model.onnx").graph.input[0].type.tensor_type.shape.dim
    names = {"x": np.ones([d.dim_value for d in given], np.float32)}
    found = [b for b in blocks(README) if b.language == "python"]
    assert found
    for block in found:
        exec(compile(block.text.replace("time_budget=60", "time_budget=5"), f"README.md:{block.line}", "exec"), names)


def test_the_options_that_the_readme_names_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    used = {
        (m[1], option) for m in re.finditer(r"^ +einnet (\w+)(.*)$", text, re.M) for option in re.findall(r"(?<!\S)--[a-z-]+", m[2].partition("#")[0])
    }
    assert used
    for command, option in used:
        assert main([command, "--help"]) == 0
        assert option in capsys.readouterr().out, (command, option)
