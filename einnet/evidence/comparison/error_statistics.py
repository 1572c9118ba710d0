"""How far two results are apart: error statistics by output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def error_statistics(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> dict[str, dict[str, Any]]:
    """By output: mean and percentiles of |got - wanted|, and where it is greatest with both values there; for floats of equal shape.

    Places where both are NaN, or the same infinity, differ by 0; where one is not finite and the other is another, by infinity.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, y in wanted.items():
        x = got[name]
        if x.shape != y.shape or y.dtype.kind != "f" or not y.size:
            continue
        a, b = x.astype(np.float64), y.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.where(np.isnan(a) & np.isnan(b) | (a == b), 0.0, np.abs(a - b))
        apart = np.nan_to_num(apart, nan=np.inf)
        where = np.unravel_index(int(np.argmax(apart)), apart.shape)
        ranks = np.percentile(apart, PERCENTILES, method="higher")
        found[name] = {
            "mean_abs": float(np.mean(apart)),
            "percentiles": {f"{p:g}": float(value) for p, value in zip(PERCENTILES, ranks, strict=True)},
            "where": [int(n) for n in where],
            "got": float(a[where]),
            "wanted": float(b[where]),
        }
    return found
