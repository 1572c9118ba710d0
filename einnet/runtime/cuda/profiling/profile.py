"""What kernels cost on a card, as a file: times that were measured there, the card's figures, and laws by which the rest is estimated.

A file holds both arithmetics of products: strict float32, and TF32 on tensor cores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, Literal

from einnet.errors import UsageError
from einnet.instantiate.kernels import Kernel
from einnet.instantiate.kernels.arithmetics import MATHS as ARITHMETICS
from einnet.records import as_text, read
from einnet.runtime.costs import kernel_key
from einnet.runtime.cuda.profiling.card_files import Arithmetic, Card, Detail, ProfileFile
from einnet.runtime.cuda.profiling.laws import Laws, scaled, shortened
from einnet.runtime.files import replacing
from einnet.runtime.serial import canonical

FORMAT: Literal[2] = 2
FIRST = 1
"""A file of the first format holds one arithmetic, named by "math", and no laws."""

MATHS = tuple(name for name, a in ARITHMETICS.items() if not a.short)
SHORT, FINER = tuple(name for name, a in ARITHMETICS.items() if a.short), "tf32"
"""Arithmetics of which no record has to be there, since they are estimated by TF32, and that."""

SHIPPED = "h100"
"""The card whose recorded profile searches take if they are told of none."""


@dataclass(frozen=True)
class Profile:
    """Seconds of kernels by their key. `measured` says whether the figures of the card come from one, or from its data sheet.

    `details` tells more of each time: what the kernel is, cold and hot seconds, their spread. `failed` says why a kernel does not run. `laws`
    price what has no time; without them those of the shipped card do, scaled by the cards' figures (see `laws_of`).
    """

    device: str
    card: Card
    measured: bool
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    math: str = "fp32"
    properties: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Detail] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    laws: Laws | None = None
    finer: Profile | None = None
    """The same card in TF32, of an arithmetic whose factors lie in 16 bits: what is not a product of those costs what it does there."""

    def time(self, kernel: Kernel) -> float | None:
        """What was measured, infinite for what does not run, None where nothing is known."""
        if not self.seconds and not self.failed:
            return None
        name = key(kernel)
        return inf if name in self.failed else self.seconds.get(name)


H200 = Profile("NVIDIA H200", Card(51.7e12, 4.3e12, 15.8e9, 1.38e-6, 10.1e-6), measured=False)
"""An estimate: an H100 as it was measured, with the bandwidth in the proportion of the data sheets."""


def key(kernel: Kernel) -> str:
    """The kernel without names."""
    return hashlib.blake2b(canonical(kernel_key(kernel, frozenset())).encode(), digest_size=16).hexdigest()


def as_file(*profiles: Profile) -> ProfileFile:
    """The file's content: one card in one or more arithmetics. What the card is comes from the first."""
    first = profiles[0]
    return ProfileFile(
        format=FORMAT,
        device=first.device,
        kind="measured" if first.measured else "estimate",
        card=first.card,
        versions=first.versions,
        properties=first.properties,
        arithmetics={p.math: _arithmetic(p) for p in profiles},
    )


def _arithmetic(profile: Profile) -> Arithmetic:
    return Arithmetic(laws=profile.laws, **{name: dict(sorted(getattr(profile, name).items())) for name in ("seconds", "details", "failed")})


def save(path: Path, *profiles: Profile) -> None:
    """Write the file, whole or not at all; other arithmetics of the same card and versions that it holds are kept.

    Raises UsageError where the path cannot be written.
    """
    first, kept = profiles[0], list(profiles)
    for math in held(path) if path.exists() else ():
        known = load(path, math)
        if math not in {p.math for p in profiles} and (known.device, known.versions) == (first.device, first.versions):
            kept.append(known)
    try:
        with replacing(path) as draft:
            draft.write_text(as_text(as_file(*kept)) + "\n", encoding="utf-8")
    except OSError as e:
        raise UsageError(f"the profile {path} cannot be written: {e.strerror or e}") from e


def load(path: Path, math: str = MATHS[0]) -> Profile:
    """Read a profile in one arithmetic. Raises UsageError for a file that is missing or none, or has not that arithmetic."""
    file = _opened(path)
    own, finer = file.arithmetics.get(math), None
    if math in SHORT and FINER in file.arithmetics:
        finer = load(path, FINER)
        own = own or Arithmetic(seconds={}, details={}, failed={})
    if own is None:
        raise UsageError(f"the profile {path} has no times in {math}; it has {', '.join(file.arithmetics) or 'none'}")
    measured = file.kind == "measured"
    return Profile(file.device, file.card, measured, file.versions, own.seconds, math, file.properties, own.details, own.failed, own.laws, finer)


def held(path: Path) -> list[str]:
    """The arithmetics of a profile. Raises UsageError for a file that is missing or none."""
    return list(_opened(path).arithmetics)


def _opened(path: Path) -> ProfileFile:
    """The file's content."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(value, dict) and value.get("format") == FIRST:
            value |= {"format": FORMAT, "arithmetics": {str(value.get("math", MATHS[0])): dict(value)}}
        return read(ProfileFile, value)
    except OSError as e:
        raise UsageError(f"the profile {path} cannot be read: {e.strerror or e}") from e
    except (RecursionError, ValueError) as e:
        raise UsageError(f"{path} is no profile of a CUDA device: {e}") from e


def shipped(math: str = MATHS[0]) -> Profile:
    """The recorded profile that comes with einnet. Raises UsageError where its file is not there."""
    return _shipped(math)


@lru_cache
def _shipped(math: str) -> Profile:
    package = Path(__file__).parents[3]
    places = [folder / "profiles" / f"{SHIPPED}.json" for folder in (package, package.parent)]
    return load(next((p for p in places if p.exists()), places[0]), math)


def finer_of(profile: Profile) -> Profile:
    """The card of a profile in TF32: as it was recorded, else by laws."""
    if profile.finer is not None:
        return profile.finer
    return replace(profile, math=FINER, seconds={}, details={}, failed={}, laws=None)


def laws_of(profile: Profile) -> Laws:
    """The laws of the profile's card: its own, else those of the shipped one, scaled by what both cards compute, move and take to begin."""
    if profile.laws is not None:
        return profile.laws
    if profile.math in SHORT:
        return shortened(laws_of(finer_of(profile)))
    return scaled_to(profile, shipped(profile.math if profile.math in MATHS else MATHS[0]))


def scaled_to(profile: Profile, known: Profile) -> Laws:
    """The laws of a card that are `known`, scaled to that of the profile."""
    assert known.laws is not None, "the profile has laws"
    ours, theirs = profile.card, known.card
    found = scaled(known.laws, ours.peak / theirs.peak, ours.bandwidth / theirs.bandwidth, ours.launch / theirs.launch)
    processors = profile.properties.get("multiProcessorCount", found.processors)
    return replace(found, processors=processors) if isinstance(processors, int) and processors > 0 else found
