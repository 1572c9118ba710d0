"""What kernels cost on a card, as a file: times that were measured there, and the card's figures, from which the rest is estimated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from einnet.errors import UsageError
from einnet.instantiate.kernels import Kernel
from einnet.runtime.costs import kernel_key
from einnet.runtime.files import replacing
from einnet.runtime.serial import canonical

FORMAT = 1


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

    `details` tells more of each time: what the kernel is, cold and hot seconds, their spread. `failed` says why a kernel does not run.
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

    def time(self, kernel: Kernel) -> float | None:
        """What was measured, infinite for what does not run, None where nothing is known."""
        if not self.seconds and not self.failed:
            return None
        name = key(kernel)
        return inf if name in self.failed else self.seconds.get(name)


H200 = Profile("NVIDIA H200", Card(67e12, 4.8e12, 25e9, 2.5e-6, 20e-6), measured=False)
"""By its data sheet: estimates only."""


def key(kernel: Kernel) -> str:
    """The kernel without names."""
    return hashlib.blake2b(canonical(kernel_key(kernel, frozenset())).encode(), digest_size=16).hexdigest()


def profile_json(profile: Profile) -> dict[str, Any]:
    """The file's content."""
    card = {name: getattr(profile.card, name) for name in Card.__dataclass_fields__}
    return {
        "format": FORMAT, "device": profile.device, "kind": "measured" if profile.measured else "estimate", "card": card,
        "math": profile.math, "versions": dict(profile.versions), "properties": dict(profile.properties),
        **{name: dict(sorted(getattr(profile, name).items())) for name in ("seconds", "details", "failed")},
    }  # fmt: skip


def save(path: Path, profile: Profile) -> None:
    """Write the file, whole or not at all. Raises UsageError where the path cannot be written."""
    try:
        with replacing(path) as draft:
            draft.write_text(json.dumps(profile_json(profile), indent=1) + "\n", encoding="utf-8")
    except OSError as e:
        raise UsageError(f"the profile {path} cannot be written: {e.strerror or e}") from e


def load(path: Path) -> Profile:
    """Read a profile. Raises UsageError for a file that is missing or none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] != FORMAT or value["kind"] not in ("measured", "estimate"):
            raise ValueError(f"format {value['format']}, kind {value['kind']}")
        card = Card(**{name: _positive(value["card"][name]) for name in Card.__dataclass_fields__})
        seconds = {str(k): _positive(v) for k, v in value["seconds"].items()}
        more = {name: dict(value.get(name, {})) for name in ("properties", "details", "failed")}
        math = str(value.get("math", "fp32"))
        return Profile(str(value["device"]), card, value["kind"] == "measured", dict(value["versions"]), seconds, math, **more)
    except OSError as e:
        raise UsageError(f"the profile {path} cannot be read: {e.strerror or e}") from e
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as e:
        raise UsageError(f"{path} is no profile of a CUDA device: {type(e).__name__} {e}") from e


def _positive(value: Any) -> float:
    if not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{value!r} is no positive number")
    return float(value)
