"""GraphNet's samples: a folder with a class `GraphModule` and, for each of its arguments, a shape, a type and the moments of its values."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.suites.problem import Problem, Task, Unusable, Value

SEED = 123
LEVELS = range(-10, 1)
"""The suite's levels of tolerance, t: from the strictest to one."""

SPREAD = 0.2
"""The suite draws values with this share of the spread that was recorded."""

STATE = re.compile(r"_(parameters|buffers)_")
"""In the names of arguments that were the module's own."""


def tasks(folder: Path) -> dict[str, Path]:
    """The samples' folders by source and name."""
    root = folder / "samples" if (folder / "samples").is_dir() else folder
    found = sorted(file.parent for file in root.rglob("model.py") if (file.parent / "weight_meta.py").exists())
    return {str(path.relative_to(root)): path for path in found}


def tolerances() -> dict[str, tuple[float, float]]:
    """atol and rtol of float32 at each level, by the suite's formula."""
    return {str(t): (10.0**t, 10.0 ** (t * 5.886 / 5)) for t in LEVELS}


def load(task: Task) -> Problem:
    """The graph with its parameters and buffers as those of a module, its other arguments as inputs. Raises Unusable."""
    import torch

    if task.largest is not None or task.fit:
        raise Unusable("a captured graph has its sizes in its code: they cannot be capped, nor fitted")
    text = on_processor((task.path / "model.py").read_text())
    namespace: dict[str, Any] = {}
    try:
        exec(compile(text, str(task.path / "model.py"), "exec"), namespace)
        graph = namespace["GraphModule"]()
        metas = {**described(task.path / "weight_meta.py"), **described(task.path / "input_meta.py")}
        torch.manual_seed(SEED)
        names = [p for p in inspect.signature(graph.forward).parameters if p != "self"]
        state = {name: drawn(metas[name]) for name in names if STATE.search(name)}
    except Exception as error:
        raise Unusable(f"it cannot be made: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    given = [name for name in names if name not in state]

    class Bound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = graph
            for name, value in state.items():
                self.register_buffer(name, value)

        def forward(self, *args: Value) -> Value:
            return self.graph(**{name: getattr(self, name) for name in state}, **dict(zip(given, args)))

    def inputs(seed: int) -> Sequence[Value]:
        torch.manual_seed(seed)
        return [drawn(metas[name]) for name in given]

    return Problem(Bound().eval(), inputs, tolerances(), ["parameters and buffers are the module's again; devices are the processor"])


def on_processor(text: str) -> str:
    """The code with the processor in the place of cards."""
    text = re.sub(r"device\(type\s*=\s*(['\"])cuda\1(?:\s*,\s*index\s*=\s*\d+)?\)", "device(type='cpu')", text)
    return re.sub(r"(['\"])cuda(?::\d+)?\1", "'cpu'", text)


def described(path: Path) -> dict[str, dict[str, Any]]:
    """The descriptions in a file by the arguments' names."""
    if not path.exists():
        return {}
    module = types.ModuleType("meta")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    classes = [vars(value) for value in vars(module).values() if isinstance(value, type)]
    return {c["name"]: dict(c) for c in classes if "name" in c}


def drawn(meta: dict[str, Any]) -> Value:
    """A tensor as the suite draws it: its data if they were recorded, else normal values of its moments, in its bounds."""
    import torch

    shape, dtype = meta.get("shape", []), getattr(torch, str(meta.get("dtype", "torch.float32")).rpartition(".")[2])
    low, high = meta.get("min_val"), meta.get("max_val")
    if meta.get("data") is not None:
        return torch.tensor(meta["data"], dtype=dtype).reshape(shape)
    if dtype is torch.bool:
        return torch.randn(shape) > 0.5
    if not dtype.is_floating_point and low is not None and high is not None:
        return torch.randint(low, high + 1, shape, dtype=dtype)
    mean, std = meta.get("mean") or 0.0, 0.1 if meta.get("std") is None else meta["std"]
    found = torch.full(shape, mean).to(dtype) if std == 0 else (torch.randn(shape) * std * SPREAD + mean).to(dtype)
    if low is not None or high is not None:
        found = found.clamp(low, high)
    return found.clamp(-100, 100) if dtype.is_floating_point else found
