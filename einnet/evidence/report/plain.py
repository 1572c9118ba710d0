"""Plain data: what JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from einnet.records import Record, as_json


def plain(data: object) -> Any:
    """Sequences as lists, numbers that are not finite as None (JSON has none of them), anything else by its text."""
    if isinstance(data, Record):
        return plain(as_json(data))
    if isinstance(data, Mapping):
        return {str(k): plain(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [plain(v) for v in data]
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    return data if data is None or isinstance(data, (bool, int, str)) else str(data)
