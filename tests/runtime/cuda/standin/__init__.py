"""Stand-ins for CuPy, cuDNN's frontend and cuBLASLt that execute on this machine's memory, through the few calls that einnet makes.

They check what the real libraries would be told: that addresses lie inside memory that was allocated, that strides, leading dimensions, batches,
epilogues and paddings describe the right numbers, that work is captured and replayed. They are written from the libraries' documentation and show
nothing about speed, nor that the real libraries accept a call.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.runtime.cuda.standin import blas, dnn
from tests.runtime.cuda.standin.card import Card, cupy_module


def install(patch: pytest.MonkeyPatch, **figures: int) -> Card:
    """Put the stand-ins where the libraries are imported from; gives the card that they share."""
    card = Card(**figures)
    modules = {
        "cupy": cupy_module(card), "cudnn": dnn.module(card), "nvmath": ModuleType("nvmath"), "nvmath.bindings": ModuleType("nvmath.bindings"),
        "nvmath.bindings.cublasLt": blas.module(card),
    }  # fmt: skip
    for name, module in modules.items():
        patch.setitem(sys.modules, name, module)
    return card
