"""Versions of what computes and checks."""

from __future__ import annotations

import platform
from importlib import metadata

LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "apache-tvm", "apache-tvm-ffi", "onednn-cpu-gomp", "islpy", "sympy")


def _version() -> str:
    """The installed version; 0+unknown where the package runs from a folder that was never installed."""
    try:
        return metadata.version("einnet")
    except metadata.PackageNotFoundError:
        return "0+unknown"


__version__ = _version()


def versions() -> dict[str, str]:
    """Versions of Python, einnet and the installed libraries; those that are not installed are left out."""
    found = {"python": platform.python_version(), "einnet": __version__}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
