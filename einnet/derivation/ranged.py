"""Derivations for a range of sizes as text: a `.ein` file in which a named dimension stands for its size.

    batch in 1..32
    holds at 1..32
    A : f32[batch,64]
    from L[n<batch,f<8] Σ[c<64] A[n,c]*K[c,f]
    by ...

An integer that follows the size is written `batch` or `7*batch`. At every size that `holds at` names, the file with the size put in is a
derivation like any other. Where all its expressions are as many copies of one function as the size says (`slices`), its proof at size 1 is one for
every size; else each of the finitely many sizes is proven by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from einnet.derivation import einfile
from einnet.derivation.checker.check import Proof, check
from einnet.derivation.checker.slices import sliced, told
from einnet.derivation.steps import Derivation
from einnet.errors import CertificateError, ParseError
from einnet.expr.nodes import Scope
from einnet.expr.notation.sized_text import SIZE, parse_sized
from einnet.expr.sized import Unsliced

_INTEGER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")
_HEAD = re.compile(r"by\s+\S+(?:\s+at\s+\d+(?:\.\d+)*)?(?:\s+kind\s+\w+)?(?:\s+bound\s+\S+)?")
_RANGE = re.compile(r"(?P<name>[A-Za-z_]\w*) in (?P<lowest>[0-9]{1,6})\.\.(?P<highest>[0-9]{1,6})$")
_SPAN = r"[0-9]{1,6}(?:\.\.[0-9]{1,6})?"
_HOLDS = re.compile(rf"holds at ({_SPAN}(?:, {_SPAN})*)$")
_STEPS = re.compile(r"^(?:by|match)\b", re.MULTILINE)


@dataclass(frozen=True)
class Claim:
    """Proofs of the steps of a derivation by size, the same for all sizes where there is one proof, and `holds`: where they hold, and by what."""

    proofs: dict[int, list[Proof]]
    holds: str


@dataclass(frozen=True)
class RangedFile:
    """A derivation with a named size: `body` is its text, `sizes` are those at which it is claimed to hold."""

    name: str
    lowest: int
    highest: int
    sizes: tuple[int, ...]
    body: str

    def __str__(self) -> str:
        return f"{self.name} in {self.lowest}..{self.highest}\nholds at {spans(self.sizes)}\n{self.body}"

    def at(self, size: int) -> einfile.EinFile:
        """The derivation at a size. Raises CertificateError where it is not claimed to hold, with the guard."""
        if size not in self.sizes:
            raise CertificateError(f"{self.name} = {size} is not among the sizes at which it holds: {spans(self.sizes)}")
        return einfile.parse(put_in(self.body, self.name, size))

    def start(self, size: int) -> Scope:
        """The expression that it starts from, at a size."""
        first = _STEPS.split(self.body, maxsplit=1)[0]
        return replace(self, body=first).at(size).derivation.start

    def check(self) -> Claim:
        """A proof of every step at every size. Raises CertificateError, with the size, at the first that does not hold."""
        found = self.for_every_size()
        proofs = {size: self.at_one(size) if isinstance(found, str) else found for size in self.sizes}
        return Claim(proofs, self.holds(found))

    def holds(self, found: list[Proof] | str) -> str:
        """What `for_every_size` found, for people."""
        if isinstance(found, str):
            return f"at {'each of ' if len(self.sizes) > 1 else ''}{spans(self.sizes)}, because {found}"
        return f"for every {self.name} >= 1, by one proof"

    def at_one(self, size: int) -> list[Proof]:
        """A proof of every step at a size by itself. Raises CertificateError, with the size."""
        try:
            return check(self.at(size).derivation)
        except (CertificateError, ParseError) as error:
            raise CertificateError(f"at {self.name} = {size}: {error}") from error

    def for_every_size(self) -> list[Proof] | str:
        """The proofs at size 1 where they are proofs for every size, else why they are not."""
        if min(self.sizes, default=1) < 1:
            return "a size is less than 1"
        try:
            sliced(self.sized())
            return check(einfile.parse(put_in(self.body, self.name, 1)).derivation)
        except CertificateError as error:
            return f"at {self.name} = 1, {told(error, self.name)}"
        except (Unsliced, ParseError) as reason:
            return told(reason, self.name)

    def sized(self) -> list[Scope]:
        """The expressions of the derivation, with the size as a symbol. Raises Unsliced, ParseError."""
        declarations, entries = einfile.entries(put_in(self.body, self.name, SIZE))
        texts = (e.text.partition("\n")[2] if e.text.startswith("by") else e.text[len("from") :] for e in entries if not e.text.startswith("match"))
        states = [parse_sized(f"{declarations}\n{text}") for text in texts]
        if not states:
            raise ParseError("the file has no 'from' line")
        return states


def ranged(derivation: Derivation, matches: Sequence[str], size: int, name: str, bounds: tuple[int, int], sizes: Iterable[int]) -> RangedFile:
    """A derivation at a size as one for a range: multiples of the size follow it.

    Raises ValueError where the name stands in the text already, so that it could not be read back.
    """
    text = einfile.write(derivation, matches)
    body = "\n".join(take_out(line, name, size) for line in text.split("\n"))
    if put_in(body, name, size) != text or _name(name).search(text):
        raise ValueError(f"the derivation cannot be written with {name} for {size}")
    return RangedFile(name, *bounds, tuple(sorted(sizes)), body)


def take_out(line: str, name: str, size: int) -> str:
    """One line of a `.ein` file with the name in place of the size."""
    head = _HEAD.match(line)
    kept = len(line) if line.startswith("match") else head.end() if head else 0

    def named(m: re.Match[str]) -> str:
        value = int(m[0])
        if not value or value % size:
            return m[0]
        return name if value == size else f"{value // size}*{name}"

    return line[:kept] + _INTEGER.sub(named, line[kept:])


def put_in(body: str, name: str, size: int) -> str:
    """The text with the size in place of the name."""
    return _name(name).sub(lambda m: str(int(m["factor"] or 1) * size), body)


def _name(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![\w.'])(?P<factor>[0-9]{{1,18}})\*)?(?<![\w.']){re.escape(name)}(?![\w'])")


def parse(text: str) -> RangedFile:
    """Read what `str` of a RangedFile gives. Raises ParseError."""
    first, _, rest = text.partition("\n")
    second, _, body = rest.partition("\n")
    bounds, holds = _RANGE.match(first.strip()), _HOLDS.match(second.strip())
    if bounds is None or holds is None:
        raise ParseError(f"expected 'NAME in 1..32' and 'holds at 1..32' in the first two lines, found {first!r} and {second!r}")
    low, high = int(bounds["lowest"]), int(bounds["highest"])
    sizes: list[int] = []
    for first_size, last_size in map(_span, holds[1].split(", ")):
        if not low <= first_size <= last_size <= high:
            raise ParseError(f"'{second.strip()}' names a size outside {low}..{high}")
        if sizes and first_size <= sizes[-1]:
            raise ParseError(f"'{second.strip()}' does not name its sizes in ascending order")
        sizes += range(first_size, last_size + 1)
    return RangedFile(bounds["name"], low, high, tuple(sizes), body)


def is_ranged(text: str) -> bool:
    """The text is a derivation for a range of sizes."""
    return _RANGE.match(text.partition("\n")[0].strip()) is not None


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("..")
    return int(low), int(high or low)


def spans(sizes: Iterable[int]) -> str:
    """1..4, 7, 9..12."""
    found: list[list[int]] = []
    for size in sorted(sizes):
        if found and found[-1][1] == size - 1:
            found[-1][1] = size
        else:
            found.append([size, size])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in found)
