"""What a program was built on, and whether another machine can run its code."""

from __future__ import annotations

import platform
import re
from functools import cache
from importlib import metadata
from pathlib import Path

from einnet.records import Record, added
from einnet.runtime.cpu import dnnl

_ISA = re.compile(r"(sse|ssse|avx|fma|f16c|bmi|abm|popcnt|movbe|adx|aes|vaes|gfni|pclmul|vpclmul|sha|amx|xsave|clflushopt|clwb|rdrand|rdseed).*")
_PACKAGES = ("einnet", "numpy", "apache-tvm", "apache-tvm-ffi", "onnxruntime")


@cache
def cpu_features() -> frozenset[str]:
    """Instruction set extensions that the processor has, by the kernel's names."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(f for f in flags[1].split() if _ISA.fullmatch(f)) if flags else frozenset()


@cache
def cpu_name() -> str:
    """The processor's name, with family and model where virtual machines leave only a generic name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {key: re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE) for key in ("model name", "cpu family", "model")}
    return " ".join(m[1].strip() for m in fields.values() if m) or platform.machine()


@cache
def versions() -> dict[str, str]:
    """Versions of what is installed among the libraries that a program depends on; do not change the answer."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if dnnl.available() is None:
        found["onednn"] = ".".join(map(str, dnnl.library().version))
    return found


class Machine(Record):
    """System, architecture, processor and its extensions."""

    system: str
    architecture: str
    cpu: str
    features: list[str]


class Built(Machine):
    """What code was built for: `code` names the processors, whose extensions are `features` (see `cpu.levels`).

    It takes arrays from `anywhere`, or those that begin with a cache line.
    """

    code: str
    anywhere: bool = added(False)


def description() -> Machine:
    """This machine."""
    return Machine(system=platform.system(), architecture=platform.machine(), cpu=cpu_name(), features=sorted(cpu_features()))


def misfit(recorded: Machine) -> str | None:
    """Why code built on the recorded machine does not run here, None if it does."""
    here = description()
    if (recorded.system, recorded.architecture) != (here.system, here.architecture):
        return f"built for {recorded.system} {recorded.architecture}, this is {here.system} {here.architecture}"
    missing = sorted(set(recorded.features) - cpu_features())
    return f"built for {recorded.cpu}; this processor lacks {' '.join(missing)}" if missing else None
