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
    from einnet.api.optimize import Optimization, optimize
    from einnet.expr.text import parse

    __version__: str

__all__ = ["EinNetError", "Optimization", "__version__", "by_hand", "derive", "load", "optimize", "parse"]

_HOMES = {
    "by_hand": "einnet.api.hand",
    "Optimization": "einnet.api.optimize",
    "derive": "einnet.api.derive",
    "load": "einnet.api.load",
    "optimize": "einnet.api.optimize",
    "parse": "einnet.expr.text",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use."""
    if name == "__version__":
        value: Any = _version()
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    """The installed version; 0+unknown where the package runs from a folder that was never installed."""
    from importlib import metadata

    try:
        return metadata.version("einnet")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
