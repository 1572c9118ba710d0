"""What a user may rely on: the public names, a light import, and which module may import which library."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

import einnet
from einnet.search.settings import Arguments, Settings
from tests import rooms

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "einnet"
HEAVY = ("tvm", "tvm_ffi", "cupy", "cudnn", "onnx", "onnx_ir", "onnxruntime", "torch")

HOMES: dict[str, tuple[str, ...]] = {
    "islpy": ("einnet.expr.sets",),
    "msgspec": ("einnet.records",),
    "onnx": ("einnet.graph.onnx.*", "einnet.runtime.onnx.*", "einnet.compile.export.*", "einnet.compile.targets.onnx.*"),
    "onnx_ir": ("einnet.graph.onnx.*",),
    "google": ("einnet.graph.onnx.*",),
    "onnxruntime": ("einnet.runtime.*",),
    "threadpoolctl": ("einnet.expr.values.blas",),
    "tvm": ("einnet.instantiate.*", "einnet.runtime.*"),
    "tvm_ffi": ("einnet.instantiate.*", "einnet.runtime.*"),
    "cuda": ("einnet.runtime.cuda.*",),
    "cupy": ("einnet.runtime.cuda.*",),
    "cudnn": ("einnet.runtime.cuda.*",),
    "nvmath": ("einnet.runtime.cuda.*",),
    "distributed": ("einnet.compile.workers",),
    "torch": ("einnet.api.torch*", "einnet.graph.onnx.exported"),
    "onnxscript": ("einnet.graph.onnx.exported",),
    "rich": ("einnet.cli*", "einnet.evidence.pages.*"),
}
"""Where each library may be imported. Python's own modules and numpy may be imported anywhere; nothing else may."""

LINKS = ("derivation", "search", "instantiate", "runtime")


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Top-level packages that a module imports when it runs, function bodies included, `if TYPE_CHECKING` left out."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom) and tree.module and not tree.level:
        yield tree.module.partition(".")[0]
    for child in ast.iter_child_nodes(tree):
        yield from imported(child)


@cache
def libraries(path: Path) -> set[str]:
    """Packages a file imports beyond Python, numpy and einnet."""
    return set(imported(ast.parse(path.read_text()))) - sys.stdlib_module_names - {"numpy", "einnet"}


@pytest.mark.parametrize("module", modules())
def test_libraries_are_imported_in_their_home_alone(module):
    strangers = {lib for lib in libraries(modules()[module]) if not any(fnmatch(module, home) for home in HOMES.get(lib, ()))}
    assert not strangers, f"{module} imports {', '.join(sorted(strangers))}"


@pytest.mark.parametrize("library", ["tvm", "onnxruntime"])
def test_one_runtime_module_reaches_the_library(library):
    users = [m for m, path in modules().items() if m.startswith("einnet.runtime") and library in libraries(path)]
    assert len(users) <= 1, users


def test_the_import_scanner_sees_nested_and_skips_typing_imports():
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onnx\ndef f():\n    from tvm import te\n    from . import x\n"
    assert set(imported(ast.parse(text))) == {"typing", "tvm"}


def test_the_picture_of_imports_can_be_drawn():
    assert rooms.problems() == []


def test_what_cannot_be_drawn_is_told(tmp_path):
    """A cycle that hides in a function and one for type checkers, two rooms that import each other, and a crowded folder."""
    texts = {
        "einnet/a/one": "def f():\n    from einnet.a import two\n", "einnet/a/two": "from einnet.b.three import x\n",
        "einnet/b/three": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from einnet.a.one import f\n",
        **{f"einnet/c/m{n}": "" for n in range(21)},
    }  # fmt: skip
    for name, text in texts.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert rooms.problems(tmp_path) == [
        "these modules import each other: einnet.a.one, einnet.a.two, einnet.b.three", "these rooms import each other: a, b",
        "einnet/c holds 21 modules, 20 at most",
    ]  # fmt: skip


def test_import_is_light():
    code = f"import einnet, sys; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.split() == []


def test_public_names():
    assert {"EinNetError", "derive", "load", "optimize", "parse"} <= set(einnet.__all__)
    assert all(hasattr(einnet, name) for name in einnet.__all__)


@pytest.mark.parametrize("link", LINKS)
def test_stage_folders_are_relative_links(link):
    path = ROOT / link
    assert path.is_symlink()
    assert path.readlink() == Path("einnet") / link
    assert (path / "__init__.py").is_file()


def test_the_keyword_arguments_of_optimize_are_the_settings():
    settings = {f.name: f.type for f in fields(Settings)}
    assert settings == {name: value.__forward_arg__ for name, value in Arguments.__annotations__.items()}


NEAREST = [("time_bugdet", "did you mean 'time_budget'"), ("dynamics", "did you mean 'dynamic'"), ("zzz", "it has max_depth")]


@pytest.mark.parametrize(("wrong", "hint"), NEAREST)
def test_a_wrong_keyword_argument_is_told_with_the_nearest(wrong, hint):
    with pytest.raises(einnet.EinNetError, match=f"no argument '{wrong}'.*{hint}"):
        einnet.optimize("absent.onnx", **{wrong: 3})
