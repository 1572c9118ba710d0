"""Which kernels a search for a CUDA device asks for, and their times on a card: `einnet profile`.

Three steps, which may be taken on three machines: requests are prepared (searched, lowered, compiled) where there is no card, timed where there is
nothing but a card, and the times merged into a profile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einnet.errors import EinNetError, UsageError
from einnet.instantiate.kernels import EOperator, Kernel, Matmul, OpaqueCall
from einnet.instantiate.kernels.arithmetics import MATHS
from einnet.runtime.cuda.profiling import pack
from einnet.runtime.cuda.profiling.card_files import Detail
from einnet.runtime.cuda.profiling.costs import GENERATED, CudaCost, in_float32, in_pieces
from einnet.runtime.cuda.profiling.measure import read_times
from einnet.runtime.cuda.profiling.precompile import prepare
from einnet.runtime.cuda.profiling.profile import FINER, Profile
from einnet.runtime.serial import kernel_json, read_kernel
from einnet.search.outcome import is_constant

if TYPE_CHECKING:
    from einnet.runtime.cuda.profiling.card_files import Head, Row
    from einnet.runtime.cuda.profiling.costs import CudaCost
    from einnet.runtime.cuda.profiling.profile import Profile
    from einnet.search.settings import Settings

FORMAT = 1
SUFFIX = ".onnx"


class Asked:
    """Costs that remember which kernels were of candidates that could be chosen."""

    noise = CudaCost.noise

    def __init__(self, cost: CudaCost) -> None:
        self.cost = cost
        self.close: dict[Kernel, None] = {}

    def estimates(self, kernels: Sequence[Kernel]) -> Sequence[float]:
        return self.cost.estimates(kernels)

    def at_least(self, kernels: Sequence[Kernel]) -> Sequence[float]:
        return self.cost.at_least(kernels)

    def measured(self, kernels: Sequence[Kernel], until: float) -> Sequence[float | None]:
        self.close.update(dict.fromkeys(kernels))
        return self.cost.measured(kernels, until)


def requests(model: Any, settings: Settings, profile: Profile) -> list[Kernel]:
    """The kernels that the search of `optimize` asks for and the profile has no time of: those whose recording can change what is chosen.

    First those of the program that is chosen and of the model's own operators, then those of candidates that were compared at last, then all others.
    """
    from einnet.compile.targets.cuda.layout import in_order
    from einnet.compile.targets.cuda.lowering import without_copies
    from einnet.compile.targets.cuda.target import search_counted
    from einnet.graph.onnx.importer import load

    asked = Asked(CudaCost(profile, is_constant))
    program, _ = in_order(load(model, shapes=settings.shapes or None), settings, asked, asked.cost.channels_last)
    outcome = search_counted(program, settings, asked)
    chosen = [k for original in (False, True) for k in without_copies(outcome, asked.cost, original=original)[0].kernels]
    order = dict.fromkeys(k for kernel in (*chosen, *asked.close, *asked.cost.unmeasured) for k in variants(kernel, asked.cost))
    return [k for k in order if not isinstance(k, OpaqueCall) and unknown(k, profile)]


def unknown(kernel: Kernel, profile: Profile) -> bool:
    """There is no time of the kernel: a product has one in each arithmetic, what never lies in 16 bits the one in TF32."""
    others = [] if isinstance(kernel, Matmul) or profile.finer is None else [profile.finer]
    return all(p.time(kernel) is None for p in (profile, *others))


def variants(kernel: Kernel, cost: CudaCost) -> list[Kernel]:
    """The kernel as it runs; and a generated one that may be much faster where it rounds its factors, as it does so."""
    cost = cost.finer or cost
    found = [cost.as_run(in_float32(kernel))]
    rounds = isinstance(kernel, EOperator) and cost.arithmetic.name in GENERATED and in_pieces(kernel)
    return [*found, cost.as_run(kernel.in_arithmetic(cost.arithmetic))] if rounds and isinstance(kernel, EOperator) else found


def requests_json(kernels: Iterable[Kernel]) -> dict[str, Any]:
    """A file of requests."""
    return {"requests": FORMAT, "kernels": [kernel_json(k, lambda model: "") for k in kernels if not isinstance(k, OpaqueCall)]}


def read_requests(path: Path) -> list[Kernel]:
    """The kernels of a file of requests. Raises UsageError for a file that is missing or none."""
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
    """The kernels of files of requests, and those that a search asks for of each ONNX model; what matters most of each source first."""
    found: list[list[Kernel]] = []
    for source in sources:
        more = requests(str(source), replace(settings, backend="cuda"), known) if source.suffix == SUFFIX else read_requests(source)
        tell(f"{source}: {len(more)} kernels")
        found.append(more)
    longest = max(map(len, found), default=0)
    return list(dict.fromkeys(kernels[n] for n in range(longest) for kernels in found if n < len(kernels)))


def prepare_pack(
    kernels: Sequence[Kernel], maths: Sequence[str], output: Path, architecture: str, workers: int, tell: Callable[[str], None]
) -> None:
    """Write the kernels as a pack. An eOperator is the same in every arithmetic, and is wanted in one: in its own where it rounds its factors.

    Raises BackendError without TVM or NVRTC, UsageError where the output cannot be written.
    """
    wanted = {k: found for k in kernels if (found := wanted_in(k, with_finer(maths)))}
    made = prepare(wanted, architecture, is_constant, workers, tell)
    pack.write(output, made)
    size = output.stat().st_size / 1e6
    tell(f"{output}: {len(made.kernels)} kernels for {architecture}, {size:.1f} MB; {len(made.failed)} cannot be made")


def wanted_in(kernel: Kernel, maths: Sequence[str]) -> Sequence[str]:
    """The arithmetics of these in which a kernel is to be timed."""
    if not isinstance(kernel, EOperator):
        return maths
    return [m for m in maths if MATHS[m] == kernel.factors or not (kernel.factors.rounds or MATHS[m].short)][:1]


def with_finer(maths: Sequence[str]) -> list[str]:
    """The arithmetics, and beside those of 16 bits the one in which all else runs there."""
    return list(dict.fromkeys(m for math in maths for m in ((math, FINER) if MATHS[math].short else (math,))))


def merge(known: Profile | None, files: Sequence[Path], math: str) -> Profile:
    """A profile with the times of files in one arithmetic, added to what is known of the same card, or a new one.

    Times of generated kernels count for every arithmetic, but for those of kernels that round their factors to one. Raises UsageError for files
    that are none, or of several devices or versions.
    """
    found = known
    for path in files:
        head, rows = read_times(path)
        if found is not None and (found.device, found.measured) != (head.device, True):
            raise UsageError(f"{path} holds times on {head.device}, and the profile is of {found.device}")
        if found is None:
            figures = head.card.get(math) or next(iter(head.card.values()))
            found = Profile(head.device, figures, True, head.versions, {}, math, head.properties)
        found = _added(found, head, rows, math)
    if found is None:
        raise UsageError("there are no times to merge")
    return found


def _added(profile: Profile, head: Head, rows: Sequence[Row], math: str) -> Profile:
    """The profile with the rows that hold in its arithmetic; a time takes the place of an older one.

    Generated kernels that round no factors are the same in every arithmetic.
    """
    seconds, details, failed = dict(profile.seconds), dict(profile.details), dict(profile.failed)
    for row in rows:
        if row.math != math and (row.kind != "EOperator" or row.arithmetic is not None):
            continue
        for place in (seconds, details, failed):
            place.pop(row.key, None)
        if row.seconds is None or row.hot is None:
            failed[row.key] = str(row.failed)
            continue
        seconds[row.key] = max(row.seconds[0], 1e-9)
        generator = head.made_by["generator"] if row.kind == "EOperator" else None
        details[row.key] = Detail(
            kind=row.kind, seconds=row.seconds, hot=row.hot, calls=row.calls, generator=generator, arithmetic=row.arithmetic
        )  # fmt: skip
    failed |= {name: why for name, why in head.failed.items() if name not in seconds}
    return replace(profile, seconds=seconds, details=details, failed=failed)
