"""Versions of what computes and checks."""

from __future__ import annotations

import platform
from importlib import metadata

LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "apache-tvm", "apache-tvm-ffi", "onednn-cpu-gomp", "islpy", "sympy")


def versions() -> dict[str, str]:
    """Versions of Python, einnet and the installed libraries; those that are not installed are left out."""
    import einnet

    found = {"python": platform.python_version(), "einnet": einnet.__version__}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
