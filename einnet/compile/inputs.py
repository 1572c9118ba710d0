"""How programs take their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from einnet.errors import UsageError

Array = np.ndarray[Any, np.dtype[Any]]


def gather_inputs(names: Sequence[str], args: tuple[Any, ...], keywords: Mapping[str, Array]) -> Mapping[str, Array]:
    """Positional arrays or one mapping, and keywords, as one mapping by input name. Raises UsageError for too many and for one given twice."""
    if not args:
        return keywords
    if len(args) == 1 and type(args[0]) is dict and not keywords:
        return args[0]
    if len(args) == 1 and isinstance(args[0], Mapping):
        given = dict(args[0])
    elif len(args) > len(names):
        raise UsageError(f"the model has {len(names)} inputs ({', '.join(names)}), not {len(args)}")
    else:
        given = dict(zip(names, args))
    twice = given.keys() & keywords.keys()
    if twice:
        raise UsageError(f"input {min(twice)!r} is given twice")
    return {**given, **keywords}
