"""KernelBench's problems: a file with a class `Model`, `get_inputs()` and `get_init_inputs()`."""

from __future__ import annotations

import ast
import re
import sys
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.suites.problem import Problem, Task, Unusable, Value
from benchmarks.suites.sizes import Form, chosen, count, of_batch

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
    """The model with the suite's seed, in the mode of training, as the suite runs it. Raises Unusable where the file cannot be run.

    Sizes are as the file has them; with `fit` those of the form that the rule of `sizes` chooses; with `largest` capped there.
    """
    text = task.path.read_text()
    form = Form(task.largest)
    told: dict[str, Any] = {"form": str(form)}
    if task.fit:
        best = chosen(lambda form: count(lambda: made(text, form)))
        if best is None:
            raise Unusable("it runs at none of the sizes that were tried")
        form, told = best.form, {"form": str(best.form), "fits": best.fits, **asdict(best.work)}
    try:
        module, model = modelled(text, form)
    except Exception as error:
        raise Unusable(f"it cannot be made: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    return Problem(model, lambda seed: drawn(module, form, seed), {"suite": (TOLERANCE, TOLERANCE)}, changes(text, form), told)


def changes(text: str, form: Form) -> list[str]:
    """What is not as the suite has it."""
    caps = capped(text, form.cap)[1] if form.cap is not None else []
    return caps + ([f"a batch of at most {form.batch}"] if form.batch is not None else [])


def modelled(text: str, form: Form) -> tuple[types.ModuleType, Any]:
    """A problem's module in a form, and its model."""
    import torch

    module = types.ModuleType("problem")
    sys.modules["problem"] = module
    exec(compile(text if form.cap is None else capped(text, form.cap)[0], "problem", "exec"), module.__dict__)
    torch.manual_seed(SEED)
    model = module.Model(*module.get_init_inputs())
    return module, model if all(p.dtype is torch.float32 for p in model.parameters()) else model.float()


def drawn(module: types.ModuleType, form: Form, seed: int) -> list[Value]:
    """Inputs of a problem's module by a seed."""
    import torch

    torch.manual_seed(seed)
    return of_batch([x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in module.get_inputs()], form.batch)


def made(text: str, form: Form) -> tuple[Any, list[Value]]:
    """A model in a form and inputs of it."""
    module, model = modelled(text, form)
    return model, drawn(module, form, SEED)


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
