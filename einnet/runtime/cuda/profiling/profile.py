"""What kernels cost on a card, as a file: times that were measured there, the card's figures, and laws by which the rest is estimated.

A file holds both arithmetics of products: strict float32, and TF32 on tensor cores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from einnet.errors import UsageError
from einnet.instantiate.kernels import Kernel
from einnet.runtime.costs import kernel_key
from einnet.runtime.cuda.profiling.laws import Laws, laws_json, read_laws, scaled
from einnet.runtime.files import replacing
from einnet.runtime.serial import canonical

FORMAT, FIRST = 2, 1
"""A file of the first format holds one arithmetic, named by "math", and no laws."""

MATHS = ("fp32", "tf32")
SHIPPED = "h100"
"""The card whose recorded profile searches take if they are told of none."""



@dataclass(frozen=True, slots=True)
class Card:
    """float32 operations per second outside tensor cores, bytes per second of memory and to the host, seconds of a launch and of a wait."""

    peak: float
    bandwidth: float
    host_bandwidth: float
    launch: float
    wait: float


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
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    laws: Laws | None = None

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


def profile_json(*profiles: Profile) -> dict[str, Any]:
    """The file's content: one card in one or more arithmetics. What the card is comes from the first."""
    first = profiles[0]
    card = {name: getattr(first.card, name) for name in Card.__dataclass_fields__}
    return {
        "format": FORMAT, "device": first.device, "kind": "measured" if first.measured else "estimate", "card": card,
        "versions": dict(first.versions), "properties": dict(first.properties), "arithmetics": {p.math: _arithmetic(p) for p in profiles},
    }  # fmt: skip


def _arithmetic(profile: Profile) -> dict[str, Any]:
    found: dict[str, Any] = {"laws": laws_json(profile.laws)} if profile.laws else {}
    return {**found, **{name: dict(sorted(getattr(profile, name).items())) for name in ("seconds", "details", "failed")}}


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
            draft.write_text(json.dumps(profile_json(*kept), indent=1) + "\n", encoding="utf-8")
    except OSError as e:
        raise UsageError(f"the profile {path} cannot be written: {e.strerror or e}") from e


def load(path: Path, math: str = MATHS[0]) -> Profile:
    """Read a profile in one arithmetic. Raises UsageError for a file that is missing or none, or has not that arithmetic."""
    value, found = _opened(path)
    if math not in found:
        raise UsageError(f"the profile {path} has no times in {math}; it has {', '.join(found) or 'none'}")
    with _profile(path):
        return _read(value, math, found[math])


def held(path: Path) -> list[str]:
    """The arithmetics of a profile. Raises UsageError for a file that is missing or none."""
    return list(_opened(path)[1])


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The file's content, and what it holds for each arithmetic."""
    with _profile(path):
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] not in (FIRST, FORMAT) or value["kind"] not in ("measured", "estimate"):
            raise ValueError(f"format {value['format']}, kind {value['kind']}")
        found = {str(value.get("math", MATHS[0])): value} if value["format"] == FIRST else dict(value["arithmetics"])
        return value, found


@contextmanager
def _profile(path: Path) -> Iterator[None]:
    """Errors of a file that is no profile are told as such."""
    try:
        yield
    except OSError as e:
        raise UsageError(f"the profile {path} cannot be read: {e.strerror or e}") from e
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as e:
        raise UsageError(f"{path} is no profile of a CUDA device: {type(e).__name__} {e}") from e


def _read(value: Mapping[str, Any], math: str, own: Mapping[str, Any]) -> Profile:
    card = Card(**{name: _positive(value["card"][name]) for name in Card.__dataclass_fields__})
    seconds = {str(k): _positive(v) for k, v in own["seconds"].items()}
    more = {name: dict(own.get(name, {})) for name in ("details", "failed")}
    laws = read_laws(own["laws"]) if "laws" in own else None
    versions, properties = dict(value["versions"]), dict(value.get("properties", {}))
    return Profile(str(value["device"]), card, value["kind"] == "measured", versions, seconds, math, properties, laws=laws, **more)


def shipped(math: str = MATHS[0]) -> Profile:
    """The recorded profile that comes with einnet. Raises UsageError where its file is not there."""
    return _shipped(math)


@lru_cache
def _shipped(math: str) -> Profile:
    package = Path(__file__).parents[3]
    places = [folder / "profiles" / f"{SHIPPED}.json" for folder in (package, package.parent)]
    return load(next((p for p in places if p.exists()), places[0]), math)


def laws_of(profile: Profile) -> Laws:
    """The laws of the profile's card: its own, else those of the shipped one, scaled by what both cards compute, move and take to begin."""
    if profile.laws is not None:
        return profile.laws
    known = shipped(profile.math if profile.math in MATHS else MATHS[0])
    assert known.laws is not None, "the shipped profile has laws"
    ours, theirs = profile.card, known.card
    found = scaled(known.laws, ours.peak / theirs.peak, ours.bandwidth / theirs.bandwidth, ours.launch / theirs.launch)
    processors = profile.properties.get("multiProcessorCount", found.processors)
    return replace(found, processors=processors) if isinstance(processors, int) and processors > 0 else found


def _positive(value: Any) -> float:
    if not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{value!r} is no positive number")
    return float(value)
