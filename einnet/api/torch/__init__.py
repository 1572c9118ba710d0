"""PyTorch in: `torch.compile(model, backend="einnet")`, and what became of the parts of what was compiled.

    fast = torch.compile(model.eval(), backend="einnet", options={"time_budget": 20, "allow": "precision"})
    with torch.no_grad():
        y = fast(x)                       # the first call optimizes, or loads what an earlier process has optimized
    print(*einnet.api.torch.parts(), sep="\n")

torch finds the backend by the package's entry point; where the package runs from a folder that was never installed, importing this module
registers it.
"""

from __future__ import annotations

from einnet.api.torch.backend import compiled, register
from einnet.api.torch.eager_contest import parts
from einnet.api.torch.part import Told

__all__ = ["Told", "compiled", "parts", "register"]

register()
