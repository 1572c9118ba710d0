"""Stand-ins for CuPy, cuDNN's frontend and cuBLASLt that execute on this machine's memory, through the few calls that einnet makes.

They check what the real libraries would be told: that addresses lie inside memory that was allocated, that strides, leading dimensions, batches,
epilogues and paddings describe the right numbers, that work is captured and replayed. They are written from the libraries' documentation and show
nothing about speed, nor that the real libraries accept a call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest

from einnet.runtime.cuda import nvrtc
from tests.runtime.cuda.standin import blas, dnn
from tests.runtime.cuda.standin.card import Card, cupy_module


def install(patch: pytest.MonkeyPatch, **figures: int) -> Card:
    """Put the stand-ins where the libraries are imported from; gives the card that they share."""
    card = Card(**figures)
    modules = {
        "cupy": cupy_module(card), "cudnn": dnn.module(card), "nvmath": ModuleType("nvmath"), "nvmath.bindings": ModuleType("nvmath.bindings"),
        "nvmath.bindings.cublasLt": blas.module(card), "cuda": ModuleType("cuda"), "cuda.bindings": ModuleType("cuda.bindings"),
        "cuda.bindings.nvrtc": ModuleType("cuda.bindings.nvrtc"),
    }  # fmt: skip
    for name, module in modules.items():
        patch.setitem(sys.modules, name, module)
    patch.setattr(nvrtc, "available", lambda: None)
    patch.setattr(nvrtc, "version", lambda: "0.0")
    patch.setattr(nvrtc, "compiled_or_refused", each_text)
    patch.setattr(nvrtc, "compile_texts", all_texts)
    return card


def each_text(texts: Mapping[str, str], architecture: str = "sm_90", workers: int = 0) -> Iterator[tuple[str, bytes]]:
    """The machine code of the stand-in's card is the text."""
    assert architecture == "sm_90"
    return ((name, text.encode()) for name, text in texts.items())


def all_texts(texts: Mapping[str, str], architecture: str = "sm_90", workers: int = 0) -> dict[str, bytes]:
    """All texts in one, which is compiled once."""
    return dict.fromkeys(texts, "\n".join(texts.values()).encode())
