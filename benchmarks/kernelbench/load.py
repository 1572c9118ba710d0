"""KernelBench's problems: a file with a class `Model`, `get_inputs()` and `get_init_inputs()`."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.suites.problem import Problem, Task, Unusable, Value

LEVELS = ("level1", "level2", "level3")
SEED = 42
TOLERANCE = 1e-4
"""atol and rtol of float32 in the suite's evaluation."""


def tasks(folder: Path) -> dict[str, Path]:
    """The files of levels 1 to 3 by level and number."""
    root = folder / "KernelBench" if (folder / "KernelBench").is_dir() else folder
    found = {}
    for level in LEVELS:
        files = [f for f in (root / level).glob("*.py") if re.match(r"\d+_", f.name)]
        found |= {f"{level}/{f.stem}": f for f in sorted(files, key=lambda f: int(f.name.partition("_")[0]))}
    return found


def load(task: Task) -> Problem:
    """The model with the suite's seed, in the mode of training, as the suite runs it. Raises Unusable where the file cannot be run."""
    import torch

    text, changed = task.path.read_text(), []
    if task.largest is not None:
        text, changed = capped(text, task.largest)
    module = types.ModuleType("problem")
    sys.modules["problem"] = module
    try:
        exec(compile(text, str(task.path), "exec"), module.__dict__)
        torch.manual_seed(SEED)
        model = module.Model(*module.get_init_inputs())
    except Exception as error:
        raise Unusable(f"it cannot be made: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error

    def inputs(seed: int) -> Sequence[Value]:
        torch.manual_seed(seed)
        return [x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in module.get_inputs()]

    return Problem(model.float(), inputs, {"suite": (TOLERANCE, TOLERANCE)}, changed)


def capped(text: str, largest: int) -> tuple[str, list[str]]:
    """The file with its module's own integers not above `largest`, and which were changed: no longer the suite's problem, but the same code."""
    tree = ast.parse(text)
    changed: list[str] = []

    class Cap(ast.NodeTransformer):
        def __init__(self, name: str) -> None:
            self.name = name

        def visit_Constant(self, node: ast.Constant) -> Any:
            if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value > largest:
                changed.append(f"{self.name}: {node.value} is {largest}")
                return ast.copy_location(ast.Constant(largest), node)
            return node

    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            statement.value = Cap(statement.targets[0].id).visit(statement.value)
    return ast.unparse(ast.fix_missing_locations(tree)), changed
