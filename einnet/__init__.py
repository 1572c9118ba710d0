"""A derivation-based tensor program superoptimizer: ONNX in, a faster verified program and its derivation out.

    result = einnet.optimize("model.onnx")
    result.report, result.derivations, result.certificate, result.save("model.einnet"), result(inputs)

Importing the package loads no TVM, CuPy, ONNX or ONNX Runtime; each is loaded by the first function that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from einnet.errors import EinNetError

if TYPE_CHECKING:
    from einnet.api.derive import derive
    from einnet.api.hand import by_hand
    from einnet.api.load import load
    from einnet.api.optimize import optimize
    from einnet.compile.target import Optimization
    from einnet.expr.notation.text import parse

    __version__: str

__all__ = ["EinNetError", "Optimization", "__version__", "by_hand", "derive", "load", "optimize", "parse"]

_HOMES = {
    "__version__": "einnet.evidence.report.versions",
    "by_hand": "einnet.api.hand",
    "Optimization": "einnet.compile.target",
    "derive": "einnet.api.derive",
    "load": "einnet.api.load",
    "optimize": "einnet.api.optimize",
    "parse": "einnet.expr.notation.text",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
