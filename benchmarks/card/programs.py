"""What is prepared for the card beside its engines: the programs of ours, and ONNX Runtime's outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.card.engines import OURS
from benchmarks.card.summary import Item
from benchmarks.models import SEVEN, build
from einnet.runtime.files import replacing


def program_of(folder: Path, item: Item) -> Path:
    """Where the program of an item lies."""
    return folder / f"{item.model}-b{item.batch}-{item.math}-{'derived' if item.engine == OURS[0] else 'plain'}.lean"


def reference_of(folder: Path, item: Item) -> Path:
    """Where ONNX Runtime's outputs lie."""
    return folder / f"{item.model}-b{item.batch}.npz"


def expected(folder: Path, item: Item, model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's outputs, kept for the next engine: of a batch of one of the seven models sample by sample, which takes less memory."""
    from benchmarks.card.predicted import one_by_one

    path = reference_of(folder, item)
    if path.exists():
        with np.load(path) as kept:
            return [kept[name] for name in sorted(kept, key=lambda name: int(name[1:]))]
    one = build(item.model, 1) if item.model in SEVEN and item.batch > 1 else model
    found = list(one_by_one(one, inputs, item.batch if one is not model else None).values())
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez(file, **{f"y{n}": y for n, y in enumerate(found)})
    return found
