"""Arithmetics of products: what operands are rounded to before they are multiplied, or the integers that they are.

Products of floats are added up in float32, products of bytes in 32-bit integers, which is exact; the result is float32.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Numbers of so many significant binary `digits`, normal ones from `least` to `largest`, in so many bytes of memory.

    A processor computes with them that has all of the `instructions`, which have the names of the system's list; None where no processor does.
    `elements` are the types of both factors in memory: where these are integers, nothing is rounded.
    """

    name: str
    digits: int
    least: float
    largest: float
    nbytes: int
    instructions: frozenset[str] | None = frozenset()
    elements: tuple[str, str] = ("f32", "f32")

    @property
    def whole(self) -> bool:
        """The factors are integers in memory."""
        return self.elements != ("f32", "f32")

    @property
    def short(self) -> bool:
        """Factors are rounded to numbers of 16 bits, in which they can lie in memory."""
        return self.rounds and self.nbytes == 2

    @property
    def operands(self) -> tuple[str, str]:
        """The types of both factors as they are multiplied."""
        return (self.name, self.name) if self.rounds else self.elements

    @property
    def rounds(self) -> bool:
        """Factors that are float32 in memory are rounded to other numbers."""
        return not self.whole and self.digits < F32.digits

    @property
    def roundoff(self) -> float:
        """How far rounding a normal number may move it, relative to it. Operands that are kept as they are in memory have none."""
        return 2.0**-self.digits if self.rounds else 0.0

    @property
    def integers(self) -> int:
        """Integers up to here are numbers of the arithmetic."""
        return 1 << self.digits

    def missing(self, features: Collection[str]) -> tuple[str, ...]:
        """The instructions that a processor with these features lacks."""
        return ("arithmetic",) if self.instructions is None else tuple(sorted(self.instructions - set(features)))


F32 = Arithmetic("f32", 24, 2.0**-126, (2.0 - 2.0**-23) * 2.0**127, 4)
VNNI = frozenset({"avx512_vnni"})
"""Instructions that add four products of bytes to a 32-bit integer. What processors without them have instead saturates 16 bits, and is not exact."""
U8I8 = Arithmetic("u8i8", 7, 1.0, 127.0, 1, VNNI, ("u8", "i8"))
I8U8 = Arithmetic("i8u8", 7, 1.0, 127.0, 1, VNNI, ("i8", "u8"))

ARITHMETICS: Mapping[str, Arithmetic] = {
    a.name: a
    for a in (
        F32,
        Arithmetic("tf32", 11, 2.0**-126, (2.0 - 2.0**-10) * 2.0**127, 4, None),
        Arithmetic("f16", 11, 2.0**-14, (2.0 - 2.0**-10) * 2.0**15, 2, frozenset({"avx512_fp16"})),
        Arithmetic("bf16", 8, 2.0**-126, (2.0 - 2.0**-7) * 2.0**127, 2, frozenset({"avx512_bf16"})),
        U8I8,
        I8U8,
    )
}
"""All arithmetics by name: those of floats, the finest first, then those of bytes."""


MATHS: Mapping[str, Arithmetic] = {"fp32": F32, "tf32": ARITHMETICS["tf32"], "fp16": ARITHMETICS["f16"], "bf16": ARITHMETICS["bf16"]}
"""The coarsest arithmetic that products of a program for a card may have, by what it is called there."""


def math_of(arithmetic: Arithmetic) -> str:
    """What an arithmetic is called on cards."""
    return next(name for name, a in MATHS.items() if a == arithmetic)


def coarsest(arithmetics: Collection[Arithmetic]) -> Arithmetic:
    """That of the fewest digits among those that round; float32 where none does."""
    return min((a for a in arithmetics if a.rounds), key=lambda a: (a.digits, -a.least), default=F32)
