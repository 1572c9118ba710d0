"""What a CUDA device needs beside einnet, and what of it is missing here. Nothing is imported before it is asked for."""

from __future__ import annotations

from importlib import import_module

PARTS = {
    "CuPy": ("cupy", "cupy-cuda13x"),
    "cuDNN frontend": ("cudnn", "nvidia-cudnn-frontend"),
    "NVRTC": ("cuda.bindings.nvrtc", "cuda-bindings nvidia-cuda-nvrtc"),
    "cuBLASLt through nvmath": ("nvmath.bindings.cublasLt", "nvmath-python[cu13]"),
}
"""Name -> the module to import, and what to install for it; `einnet[cuda]` has them all."""


def missing() -> list[str]:
    """One line for each part that does not work, with what to do about it; then whether there is a device. Empty where all is well."""
    found = []
    for name, (module, package) in PARTS.items():
        try:
            import_module(module)
        except Exception as e:  # a missing module or library, of several kinds
            found.append(f"{name} cannot be imported ({e}): `pip install {package}`")
    return found or _no_device()


def _no_device() -> list[str]:
    cupy = import_module("cupy")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as e:  # no driver, no device, or one that is not permitted
        return [f"no CUDA device answers ({e})"]
    return [] if count else ["there is no CUDA device"]
