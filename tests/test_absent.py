"""A library that another one would import is not found while that one is imported, and is found afterwards."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from einnet.absent import absent


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heavy library, with a part, and one that imports both where they are."""
    heavy = tmp_path / "einnet_test_heavy"
    heavy.mkdir()
    (heavy / "__init__.py").write_text("")
    (heavy / "part.py").write_text("")
    user = "try:\n    import einnet_test_heavy.part\n    found = True\nexcept ImportError:\n    found = False\n"
    (tmp_path / "einnet_test_user.py").write_text(user)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("einnet_test_heavy", "einnet_test_heavy.part", "einnet_test_user"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("libraries")
def test_it_is_not_found_within_and_found_afterwards() -> None:
    finders = list(sys.meta_path)
    with absent("einnet_test_heavy"):
        assert not importlib.import_module("einnet_test_user").found
    assert sys.meta_path == finders
    assert importlib.import_module("einnet_test_heavy")


@pytest.mark.usefixtures("libraries")
def test_what_is_imported_already_stays() -> None:
    """All of it, its parts that are not imported yet too."""
    importlib.import_module("einnet_test_heavy")
    with absent("einnet_test_heavy"):
        assert importlib.import_module("einnet_test_user").found


@pytest.mark.usefixtures("libraries")
def test_other_threads_find_it() -> None:
    found: list[object] = []
    with absent("einnet_test_heavy"):
        thread = threading.Thread(target=lambda: found.append(importlib.import_module("einnet_test_heavy")))
        thread.start()
        thread.join()
    assert found


@pytest.mark.usefixtures("libraries")
def test_an_error_ends_it_too() -> None:
    with pytest.raises(KeyError), absent("einnet_test_heavy"):
        raise KeyError
    assert importlib.import_module("einnet_test_heavy")


def test_a_name_that_begins_alike_is_another_library() -> None:
    sys.modules.pop("colorsys", None)
    with absent("color"):
        assert importlib.import_module("colorsys")


@pytest.mark.skipif(find_spec("tvm") is None or find_spec("torch") is None, reason="TVM or torch is not installed")
def test_generating_code_imports_no_torch() -> None:
    text = (
        "import sys\nfrom einnet.expr.notation.text import parse\nfrom einnet.instantiate.build import build\n"
        "from einnet.runtime.cpu.compiler.machine_code import compile_operators\n"
        "made = build(parse('A : f32[8]\\nL[i<8] exp(A[i])'), {}, 'out')\n"
        "assert compile_operators({'k': made.kernels[0]}, 1)\nassert 'tvm' in sys.modules\nassert 'torch' not in sys.modules, 'torch'\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
