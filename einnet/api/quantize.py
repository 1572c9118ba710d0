"""Models with tensors of 8 bits, made by ONNX Runtime's quantiser and measured here."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.evidence.comparison.draws import as_draws
from einnet.evidence.comparison.saturation import saturated
from einnet.evidence.comparison.verify import errors
from einnet.graph.dtypes import dtype_name
from einnet.runtime.files import replacing
from einnet.runtime.ort import CALIBRATIONS, Session, quantise

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Quantised:
    """A model that was written: how its ranges were taken, and its greatest error on the draws, relative to max|y|, of each output.

    `beyond` are the shares of each rounded tensor's numbers, on the draws, that are beyond the range that was taken for it.
    """

    calibration: str
    draws: int
    errors: Mapping[str, float]
    beyond: Mapping[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """The greatest error of an output."""
        return max(self.errors.values(), default=0.0)


def quantize(model: str | Path, output: str | Path, inputs: Mapping[str, Array], max_error: float | None = None, threads: int = 1) -> Quantised:
    """Write a model of bytes to `output` whose ranges are those of some inputs, and measure it on these beside the model itself, in ONNX Runtime.

    Each array is one input, or several along one more dimension in front. Of the ways to take the ranges the first is kept, or with `max_error` the
    first whose error is no larger.

    Raises UsageError for inputs that do not fit, and where no way stays within `max_error`: nothing is written then. Raises BackendError where the
    quantiser fails.
    """
    source, session = Path(model), Session(Path(model), threads, title=str(model))
    draws = drawn(session, inputs)
    wanted = [session(one) for one in draws]
    tried: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for calibration in CALIBRATIONS if max_error is not None else CALIBRATIONS[:1]:
            made = Path(folder) / f"{calibration}.onnx"
            quantise(source, made, draws, calibration)
            found = Quantised(calibration, len(draws), apart(Session(made, threads, title="the quantised model"), draws, wanted))
            tried[calibration] = found.error
            if max_error is None or found.error <= max_error:
                found = replace(found, beyond=saturated(made, draws, threads))
                with replacing(Path(output)) as draft:
                    draft.write_bytes(made.read_bytes())
                return found
    told = ", ".join(f"{error:.2g} ({name})" for name, error in tried.items())
    raise UsageError(f"{model}: quantised, it errs by {told}, and {max_error:g} is allowed; nothing was written")


def drawn(session: Session, inputs: Mapping[str, Array]) -> list[dict[str, Array]]:
    """One set of inputs or several. Raises UsageError where arrays are missing, strange, of another rank, or of different numbers."""
    names = [a.name for a in session.inputs]
    if inputs.keys() != set(names):
        raise UsageError(f"the inputs of {session.title} are {', '.join(sorted(names))}; the arrays are {', '.join(sorted(inputs)) or 'none'}")
    kinds = [(a.name, tuple(n if isinstance(n, int) else -1 for n in a.shape), dtype_name(a.dtype) or "f32") for a in session.inputs if a.dtype]
    return as_draws(inputs, kinds, session.title)


def apart(session: Session, draws: Sequence[Mapping[str, Array]], wanted: Sequence[Mapping[str, Array]]) -> dict[str, float]:
    """The greatest error of each output over the draws."""
    found: dict[str, float] = {}
    for one, y in zip(draws, wanted, strict=True):
        for name, error in errors(session(one), y).items():
            found[name] = max(found.get(name, 0.0), error.max_rel)
    return found
