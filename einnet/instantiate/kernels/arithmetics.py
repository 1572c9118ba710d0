"""Arithmetics of products: what operands are rounded to before they are multiplied. Products are added up in float32, which the result is, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Numbers of so many significant binary `digits`, normal ones from `least` to `largest`, in so many bytes of memory.

    A processor computes with them that has all of the `instructions`, which have the names of the system's list; None where no processor does.
    """

    name: str
    digits: int
    least: float
    largest: float
    nbytes: int
    instructions: frozenset[str] | None = frozenset()

    @property
    def roundoff(self) -> float:
        """How far rounding a normal number may move it, relative to it. Float32 operands are not rounded at all."""
        return 0.0 if self == F32 else 2.0**-self.digits

    @property
    def integers(self) -> int:
        """Integers up to here are numbers of the arithmetic."""
        return 1 << self.digits

    def missing(self, features: Collection[str]) -> tuple[str, ...]:
        """The instructions that a processor with these features lacks."""
        return ("arithmetic",) if self.instructions is None else tuple(sorted(self.instructions - set(features)))


F32 = Arithmetic("f32", 24, 2.0**-126, (2.0 - 2.0**-23) * 2.0**127, 4)

ARITHMETICS: Mapping[str, Arithmetic] = {
    a.name: a
    for a in (
        F32,
        Arithmetic("tf32", 11, 2.0**-126, (2.0 - 2.0**-10) * 2.0**127, 4, None),
        Arithmetic("f16", 11, 2.0**-14, (2.0 - 2.0**-10) * 2.0**15, 2, frozenset({"avx512_fp16"})),
        Arithmetic("bf16", 8, 2.0**-126, (2.0 - 2.0**-7) * 2.0**127, 2, frozenset({"avx512_bf16"})),
    )
}
"""All arithmetics by name, the finest first."""


def coarsest(arithmetics: Collection[Arithmetic]) -> Arithmetic:
    """That of the fewest digits; float32 where there is none."""
    return min(arithmetics, key=lambda a: (a.digits, -a.least), default=F32)
