"""Commands about the installation: doctor, db."""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
from importlib import metadata
from typing import Any, NotRequired, TypedDict

from einnet import environment
from einnet.cli.files import write_json
from einnet.errors import UsageError

FAILED = 1
WITHOUT = {
    "oneDNN": "without it vendor kernels run in ONNX Runtime",
    "TVM": "without it no kernel can be generated",
    "ONNX Runtime": "without it nothing can be verified",
}

EXPORT = ("torch", "onnxscript")
"""What models of PyTorch come in by."""

NO_DRIVER = "NVIDIA's driver is not there (libcuda.so.1 cannot be loaded): install it with the distribution's package, on a machine with a card"
INSTALL = "all Python parts at once: `pip install 'einnet[cuda]'`"


class Library(TypedDict):
    """A library that computes; what keeps it from working, and what that means."""

    works: bool
    problem: NotRequired[str]
    without: NotRequired[str]
    version: NotRequired[str | None]
    path: NotRequired[str]


class Backend(TypedDict):
    """Whether a backend works, and what there is to know of it."""

    works: bool
    problems: list[str]
    notes: NotRequired[list[str]]


class Pytorch(TypedDict):
    """Whether models of PyTorch come in."""

    works: bool
    problem: NotRequired[str]
    versions: NotRequired[dict[str, str]]


class Cpu(TypedDict):
    """The processor as programs see it."""

    name: str
    level: str | None
    features: list[str]
    physical_cores: int
    default_threads: int


class Diagnosis(TypedDict):
    """Everything that `doctor` knows."""

    versions: dict[str, str]
    system: str
    cpu: Cpu
    libraries: dict[str, Library]
    torch: Pytorch
    backends: dict[str, Backend]
    cache: str
    environment: dict[str, str]


def register(commands: Any) -> None:
    """Add the family's commands."""
    one = commands.add_parser("doctor", help="what is installed, and which backends work")
    one.add_argument("--json", metavar="FILE", help="write it as JSON; - is standard output")
    one.set_defaults(run=doctor)

    one = commands.add_parser("db", help="the profile database of measured kernel times")
    one.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="show (the default) or clear")
    one.add_argument("--json", metavar="FILE", help="write the entries as JSON; - is standard output")
    one.set_defaults(run=db)


def doctor(options: argparse.Namespace) -> int:
    """Print a diagnosis; exit code 1 where no backend works."""
    found = diagnosis()
    if options.json:
        write_json(options.json, found)
    if options.json != "-":
        print("\n".join(doctor_lines(found)))
    return 0 if any(b["works"] for b in found["backends"].values()) else FAILED


def diagnosis() -> Diagnosis:
    """Everything that `doctor` knows, as plain data."""
    from einnet.evidence.report.versions import versions
    from einnet.runtime import machine
    from einnet.runtime.cpu import levels, threads

    return {
        "versions": versions(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": {
            "name": machine.cpu_name(),
            "level": levels.level(),
            "features": sorted(machine.cpu_features()),
            "physical_cores": threads.physical_cores(),
            "default_threads": threads.resolve_threads(None),
        },
        "libraries": libraries(),
        "torch": pytorch(),
        "backends": backends(),
        "cache": str(environment.cache()),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("EINNET_")},
    }


def libraries() -> dict[str, Library]:
    """The libraries that compute: version and place, or what keeps them from working."""
    from einnet.runtime import ort
    from einnet.runtime.cpu import compile as generated
    from einnet.runtime.cpu import dnnl

    problems = {"oneDNN": dnnl.available(), "TVM": generated.available(), "ONNX Runtime": ort.available()}
    found: dict[str, Library] = {
        n: {"works": True} if p is None else {"works": False, "problem": p, "without": WITHOUT[n]} for n, p in problems.items()
    }
    if problems["oneDNN"] is None:
        library = dnnl.library()
        found["oneDNN"]["version"], found["oneDNN"]["path"] = ".".join(map(str, library.version)), library.path
    if problems["ONNX Runtime"] is None:
        found["ONNX Runtime"]["version"] = ort.version()
    return found


def backends() -> dict[str, Backend]:
    """Which backends work, and why the others do not."""
    from einnet.runtime.cuda.parts import missing

    needed = [f"{name}: {lib['problem']}" for name, lib in libraries().items() if not lib["works"] and name != "oneDNN"]
    found: dict[str, Backend] = {"cpu": {"works": not needed, "problems": needed}}
    if needed and libraries()["oneDNN"]["works"]:
        found["cpu"]["notes"] = ["stored programs run that have no opaque nodes and whose code fits this processor"]
    absent = missing()
    unanswered = [] if driver_library() else [NO_DRIVER]
    found["cuda"] = {"works": not absent, "problems": [*absent, *unanswered] if absent else [], "notes": notes(bool(absent))}
    return found


def pytorch() -> Pytorch:
    """Whether `torch.compile(model, backend="einnet")` works, by what is installed: torch itself is not imported."""
    found: dict[str, str] = {}
    for name in EXPORT:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            return {"works": False, "problem": f"{name} is not installed: `pip install 'einnet[torch]'`"}
    return {"works": True, "versions": found}


def driver_library() -> bool:
    """NVIDIA's driver is there to be loaded; whether there is a card is another question."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def notes(absent: bool) -> list[str]:
    """What else there is to know of the CUDA backend, and what it does here where something is `absent`."""
    from einnet.runtime.cuda import shim

    told = ["measured on one card so far, an NVIDIA H100 (docs/cuda.md): `make gpu` tests it on another"]
    if not absent:
        return [*card_notes(), *told]
    compiler = shim.compiler()
    text = f"their CUDA text through {compiler}" if compiler else "their expressions by numpy (for their CUDA text install a C++ compiler: g++)"
    here = f"without a card: `optimize --backend cuda` searches by a profile; `verify` and `run --host` execute programs here, {text}"
    return [INSTALL, here, *told]


def card_notes() -> list[str]:
    """What the card that is here is good for."""
    from einnet.runtime.cuda import nvrtc
    from einnet.runtime.cuda.driver import Driver
    from einnet.runtime.cuda.profiling.profile import shipped

    found, known = Driver().properties(), shipped()
    tensor = "TF32 on tensor cores, and products of 16 bits (--math fp16, bf16)" if found["major"] >= 8 else "no TF32: programs run in float32"
    size = f"{found['multiProcessorCount']} multiprocessors, {found.get('totalGlobalMem', 0) / 1e9:.0f} GB"
    figures = f"{found['name']} (sm_{found['major']}{found['minor']}): {size}; {tensor}; text is compiled by NVRTC {nvrtc.version()}"
    if found["name"] == known.device:
        return [figures, f"searches go by {len(known.seconds)} times of kernels that were recorded on such a card"]
    return [figures, f"searches go by what was recorded on an {known.device}: `einnet profile` records this card's times"]


def doctor_lines(found: Diagnosis) -> list[str]:
    """The diagnosis for people."""
    cpu = found["cpu"]
    lines = [f"einnet {found['versions'].get('einnet', '')} on Python {found['versions']['python']}, {found['system']}", "", "backends"]
    for name, backend in found["backends"].items():
        lines.append(f"  {name:6} {'works' if backend['works'] else 'does not work:'}")
        lines += [f"         - {problem}" for problem in backend["problems"]]
        lines += [f"         {note}" for note in backend.get("notes", ())]
    lines += ["", "libraries"]
    for name, lib in found["libraries"].items():
        state = " ".join(filter(None, (lib.get("version"), lib.get("path")))) or "works"
        lines.append(f"  {name:15} " + (state if lib["works"] else f"{lib['problem']} ({lib['without']})"))
    lines += [f"  {name:15} {version}" for name, version in found["versions"].items() if name not in ("einnet", "python")]
    torch = found["torch"]
    state = ", ".join(f"{n} {v}" for n, v in torch["versions"].items()) if torch["works"] else f"no torch.compile: {torch['problem']}"
    lines.append(f"  {'PyTorch':15} {state}")
    name = f"{cpu['name']} ({cpu['level']})" if cpu["level"] else cpu["name"]
    lines += ["", "processor", f"  {name}; {cpu['physical_cores']} physical cores, {cpu['default_threads']} threads by default"]
    lines.append(f"  {' '.join(cpu['features']) or 'no extension known'}")
    lines += ["", f"cache         {found['cache']}"]
    lines += [f"{name:13} {value}" for name, value in found["environment"].items()]
    return lines


def db(options: argparse.Namespace) -> int:
    """Show or clear the profile database."""
    from einnet.runtime.cpu.objects import OBJECTS, clear
    from einnet.runtime.database import ProfileDatabase

    database = ProfileDatabase()
    if options.action == "clear":
        if options.json:
            raise UsageError("db clear writes no JSON")
        count = len(database.rows()) if database.path.exists() else 0
        if count:
            database.clear()
        kernels = clear(database.path.parent / OBJECTS)
        print(f"{database.path}: {count} entries removed" + (f", and {kernels} compiled kernels beside it" if kernels else ""))
        return 0
    rows = database.rows() if database.path.exists() else []
    if options.json:
        entries = [{"what": what, "median_ms": t.median * 1e3, "spread_ms": t.spread * 1e3, "samples": t.n} for what, t in rows]
        write_json(options.json, {"path": str(database.path), "entries": entries})
    if options.json != "-":
        size = database.path.stat().st_size if database.path.exists() else 0
        print(f"{database.path}: {len(rows)} entries, {size / 1e6:.1f} MB" if size else f"{database.path}: not there yet")
    return 0
