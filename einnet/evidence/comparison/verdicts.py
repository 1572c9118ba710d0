"""What a verification says where there was nothing to compare, what may be written to disk, and from which model something was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from einnet.errors import ArtifactError
from einnet.evidence.report.schema import Verification

Array = np.ndarray[Any, np.dtype[Any]]


def not_compared(tolerance: float, why: str) -> Verification:
    """The verification of what runs the model itself: it has neither passed nor failed. The form is that of `verify.compare_outputs`."""
    return Verification(max_abs=0.0, max_rel=0.0, tolerance=tolerance, outputs={}, passed=None, not_compared=why, compared_on=0)


def nowhere_a_number(reference: Mapping[str, Array]) -> list[str]:
    """Outputs that are NaN in every element: whatever is NaN there, too, would pass."""
    return [name for name, y in reference.items() if isinstance(y, np.ndarray) and y.dtype.kind == "f" and y.size and bool(np.isnan(y).all())]


def failed(verification: Verification) -> bool:
    """Something was compared, and differs."""
    return verification.passed is False


def refuse_failed(path: object, *verdicts: Verification) -> None:
    """Raise ArtifactError for a program that does not give the model's results: it is not written."""
    for v in filter(failed, verdicts):
        error = f"error {v.max_rel:.2g} of max|y|, {v.tolerance:g} allowed"
        raise ArtifactError(f"{path} is not written: the program failed its verification ({error})")


def other_model(model: Any, path: object, digest: str | None) -> list[str]:
    """What is wrong with a program, at this path, that was made from a model of another digest; None is that of any model."""
    same = digest is None or digest == model_digest(model)
    return [] if same else [f"{path} was made from another model: nodes, weights, inputs or outputs differ"]


def model_digest(model: Any) -> str | None:
    """32 hex digits of what a model computes; None for one of more than 2 GB."""
    from einnet.graph.onnx.digest import digest

    return digest(model)
