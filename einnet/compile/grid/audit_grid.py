"""A stored program for ranges of several dimensions against the model: each plan that there is, as a program for its sizes alone."""

from __future__ import annotations

from typing import Any

from einnet.compile.grid.domain import key
from einnet.compile.grid.served import GridProgram
from einnet.errors import UsageError
from einnet.evidence.audit import audit
from einnet.evidence.report.told import Tell, silent
from einnet.graph.onnx.dynamic import symbolic


def audit_grid(model: Any, stored: GridProgram, seed: int = 0, tell: Tell = silent) -> dict[str, Any]:
    """Verdict as plain data: `sizes`, the verdict of `audit` for each plan, in the file and beside it, `problems` and `passed`.

    The model of which later plans are made has to be the model, too. Raises ModelError for a model that cannot be read, UsageError for one with
    other inputs than the program.
    """
    found = symbolic(model, stored.domain.names)
    if set(found.declared) != set(stored.domain.shapes):
        raise UsageError(f"{stored.path} was made from another model: its inputs are {', '.join(stored.domain.shapes)}")
    same = found.model.SerializeToString() == stored.model.SerializeToString()
    problems = [] if same else [f"{stored.path} makes later plans of another model"]
    sizes = {key(one): audit(found.model, stored.plan(one), seed, tell) for one in stored.known}
    passed = not problems and all(verdict["passed"] for verdict in sizes.values())
    return {"model": str(model), "program": str(stored.path), "problems": problems, "sizes": sizes, "passed": passed}
