"""What README, CONTRIBUTING and the documentation tell to type: commands and their options exist, files are there, examples hold."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.__main__ import main as generate
from einnet.cli import main
from einnet.cli.parser import build_parser
from einnet.derivation import einfile, ranged
from einnet.derivation.checker import check
from tests.docs.blocks import PAGES, ROOT, blocks

TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
README = TEXTS[0]
OURS = re.compile(r"(einnet|make|python|pip|\.venv/bin/\w+)\b(?! *=)")


def typed(path: Path) -> Iterator[str]:
    """Commands between backquotes, on indented lines and in blocks."""
    text = path.read_text(encoding="utf-8")
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.S))
    lines = [line.strip().removeprefix("$ ") for line in re.findall(r"^    .*$|^\$ .*$|^einnet .*$", text, re.M)]
    for command in (*inline, *lines):
        if OURS.match(command):
            yield re.sub(r"\s+#.*$", "", command)


def helped(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([command, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.stem)
def test_commands_options_and_targets_exist(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = {name for action in build_parser()._actions if isinstance(action.choices, dict) for name in action.choices}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for line in typed(path):
        program, *words = shlex.split(line.replace("'", "ʹ")) or [""]
        if program == "einnet" and words and words[0] in commands:
            assert options_exist(words, helped(words[0], capsys)), line
        elif program == "einnet" and words and "/" not in line:
            assert not re.fullmatch(r"[a-z]+", words[0]), f"no command {words[0]}: {line}"
        elif program == "make":
            assert not words or words[0] in targets or "=" in words[0], line
        elif program.endswith("python") and words:
            assert runs(words[1].replace(".", "/") if words[0] == "-m" else words[0]), line


def options_exist(words: list[str], told: str) -> bool:
    """A command's help names every option."""
    wanted = {w.partition("=")[0] for w in words if w.startswith("--")}
    return all(re.search(rf"(?<![\w-]){option}(?![\w-])", told) for option in wanted)


def runs(module: str) -> bool:
    """Python has something to run under that name: here, or in every environment."""
    places = [ROOT / module, ROOT / f"{module}.py", ROOT / module / "__main__.py"]
    return any(p.exists() for p in places) or module in ("pytest", "venv", "pip")


def test_the_readmes_derivation_holds_and_its_broken_one_is_rejected_as_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    declared = re.search(r"^    A : .*\n    K : .*\n", text, re.M)
    steps = re.search(r"^    from L\[.*?(?=\n\n)", text, re.M | re.S)
    assert declared and steps
    whole = re.sub(r"(?m)^    ", "", declared[0] + steps[0]) + "\n"
    assert [p.method for p in check.check(einfile.parse(whole).derivation)] == ["inline", "inline"]
    before, last = whole.rstrip("\n").rsplit("\n", 1)
    (tmp_path / "bad.ein").write_text(f"{before}\n{last.replace('K[r,s,f,c]', 'K[s,r,f,c]')}\n", encoding="utf-8")
    assert main(["check", str(tmp_path / "bad.ein")]) == 1
    told = re.search(r"^    einnet: (bad\.ein: .*), \.\.\.$", text, re.M)
    assert told and told[1] in capsys.readouterr().err


def test_derivations_in_the_documentation_hold() -> None:
    found = [b.text for p in PAGES for b in blocks(p) if b.language == "text" and re.search(r"^from ", b.text, re.M)]
    assert found
    for text in found:
        if ranged.is_ranged(text):
            assert set(ranged.parse(text).check().proofs) == set(ranged.parse(text).sizes)
        else:
            assert check.check(einfile.parse(text).derivation)


@pytest.mark.slow
def test_the_quick_start_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of it, in order, with a small time budget."""
    monkeypatch.chdir(tmp_path)
    section = README.read_text(encoding="utf-8").partition("## Quick start")[2].partition("\n## ")[0]
    lines = [re.sub(r"\s+#.*$", "", line.strip()) for line in re.findall(r"^    .*$", section.partition("```python")[0], re.M)]
    assert len(lines) >= 5
    np.save("z.npy", np.zeros((1, 228, 1, 1), np.float32))
    for line in lines:
        program, *words = shlex.split(line.replace("--time-budget 60", "--time-budget 6"))
        if program == "python":
            assert words[:2] == ["-m", "benchmarks.models"]
            assert not generate(words[2:])
        else:
            assert program == "einnet" and main(words) == 0, line
    assert list((tmp_path / "out").glob("*.npy"))
