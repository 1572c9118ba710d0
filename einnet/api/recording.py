"""Which kernels a search for a CUDA device asks for, and their times on a card: `einnet profile`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einnet.api.settings import Settings
from einnet.errors import EinNetError, UsageError
from einnet.instantiate.kernels import Kernel, OpaqueCall

if TYPE_CHECKING:
    from einnet.runtime.cuda.profile import Profile

FORMAT = 1
SUFFIX = ".onnx"


def requests(model: Any, settings: Settings, profile: Profile) -> list[Kernel]:
    """The kernels that a search asks for and the profile has no time of: those whose recording can change what is chosen."""
    from einnet.api.optimize import prepare
    from einnet.api.pipeline import search
    from einnet.api.schedule import Schedule
    from einnet.graph.onnx import load
    from einnet.runtime.cuda.costs import CudaCost

    cost = CudaCost(profile)
    search(prepare(load(model, shapes=settings.shapes or None)), settings, cost, Schedule(time.monotonic(), settings.time_budget))
    return [k for k in cost.unmeasured if not isinstance(k, OpaqueCall)]


def requests_json(kernels: Iterable[Kernel]) -> dict[str, Any]:
    """A file of requests."""
    from einnet.runtime.serial import kernel_json

    return {"requests": FORMAT, "kernels": [kernel_json(k, lambda model: "") for k in kernels if not isinstance(k, OpaqueCall)]}


def read_requests(path: Path) -> list[Kernel]:
    """The kernels of a file of requests. Raises UsageError for a file that is missing or none."""
    from einnet.runtime.serial import read_kernel

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["requests"] != FORMAT:
            raise ValueError(f"format {value['requests']}")
        return [read_kernel(k, lambda n: b"") for k in value["kernels"]]
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror or e}") from e
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError, EinNetError) as e:
        raise UsageError(f"{path} holds no requests for times of kernels: {type(e).__name__} {e}") from e


def gather(sources: Sequence[Path], settings: Settings, known: Profile, tell: Callable[[str], None]) -> list[Kernel]:
    """The kernels of files of requests, and those that a search asks for of each ONNX model."""
    found: dict[Kernel, None] = {}
    for source in sources:
        more = requests(str(source), replace(settings, backend="cuda"), known) if source.suffix == SUFFIX else read_requests(source)
        tell(f"{source}: {len(more)} kernels")
        found |= dict.fromkeys(more)
    return list(found)


def record_profile(sources: Sequence[Path], output: Path, settings: Settings, math: str, seconds: float, tell: Callable[[str], None]) -> Profile:
    """Measure on the card that is here and write the profile, going on with what `output` holds for this card and these versions.

    Raises BackendError without a card, UsageError for a source or an output that is none.
    """
    from einnet.runtime.cuda import profile as profiles
    from einnet.runtime.cuda.record import begin, record

    started = time.monotonic()
    known = begin(math, profiles.load(output) if output.exists() else None)
    kernels = gather(sources, settings, known, tell)
    return record(known, kernels, lambda found: profiles.save(output, found), started + seconds)
