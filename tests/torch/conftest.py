"""A backend that keeps every program, however small its part and however slow, with a cache folder for these tests alone."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

KEPT = {"time_budget": 1.0, "trivial": 0.0, "slower": True, "threads": 1, "graph_budget": inf}
"""Options with which each part that can be a program is one: what is tested is what programs give."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels that are compiled are the same in many tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def apart(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
    monkeypatch.setenv("EINNET_CACHE", str(cache))
    monkeypatch.setattr("einnet.api.torch.frozen.traced", lambda module, inputs: pytest.fail("torch traces a part again"))
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def compile_kept() -> Any:
    """torch.compile with einnet, each part a program; keyword arguments are more options."""

    def call(model: Any, dynamic: bool | None = None, **options: Any) -> Any:
        import torch

        import einnet.api.torch  # noqa: F401

        return torch.compile(model, backend="einnet", dynamic=dynamic, options={**KEPT, **options})

    return call


@pytest.fixture
def told() -> Any:
    """What became of the parts, of this test's graphs alone."""
    import einnet.api.torch
    from einnet.api.torch.eager_contest import live

    live.clear()
    return einnet.api.torch.parts
