"""Commands about the installation: doctor, db."""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any

from einnet import settings
from einnet.cli.files import write_json
from einnet.errors import UsageError

FAILED = 1
WITHOUT = {
    "oneDNN": "without it vendor kernels run in ONNX Runtime",
    "TVM": "without it no kernel can be generated",
    "ONNX Runtime": "without it nothing can be verified",
}


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


def diagnosis() -> dict[str, Any]:
    """Everything that `doctor` knows, as plain data."""
    from einnet.api.versions import versions
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
        "backends": backends(),
        "cache": str(settings.cache()),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("EINNET_")},
    }


def libraries() -> dict[str, dict[str, Any]]:
    """The libraries that compute: version and place, or what keeps them from working."""
    from einnet.runtime import ort
    from einnet.runtime.cpu import compile as generated
    from einnet.runtime.cpu import dnnl

    problems = {"oneDNN": dnnl.available(), "TVM": generated.available(), "ONNX Runtime": ort.available()}
    found: dict[str, dict[str, Any]] = {n: {"works": p is None, **({"problem": p, "without": WITHOUT[n]} if p else {})} for n, p in problems.items()}
    if problems["oneDNN"] is None:
        library = dnnl.library()
        found["oneDNN"] |= {"version": ".".join(map(str, library.version)), "path": library.path}
    if problems["ONNX Runtime"] is None:
        found["ONNX Runtime"]["version"] = ort.version()
    return found


def backends() -> dict[str, dict[str, Any]]:
    """Which backends work, and why the others do not."""
    from einnet.runtime.cuda.parts import missing

    needed = [f"{name}: {lib['problem']}" for name, lib in libraries().items() if not lib["works"] and name != "oneDNN"]
    found: dict[str, dict[str, Any]] = {"cpu": {"works": not needed, "problems": needed}}
    if needed and libraries()["oneDNN"]["works"]:
        found["cpu"]["note"] = "stored programs run that have no opaque nodes and whose code fits this processor"
    absent = missing()
    found["cuda"] = {"works": not absent, "problems": [*absent, "programs are optimized for it all the same, by a profile"] if absent else []}
    found["cuda"]["note"] = "einnet itself has not been run on a card yet: `make gpu` tests it on one"
    return found


def doctor_lines(found: dict[str, Any]) -> list[str]:
    """The diagnosis for people."""
    cpu = found["cpu"]
    lines = [f"einnet {found['versions'].get('einnet', '')} on Python {found['versions']['python']}, {found['system']}", "", "backends"]
    for name, backend in found["backends"].items():
        lines.append(f"  {name:6} {'works' if backend['works'] else 'does not work: ' + '; '.join(backend['problems'])}")
        if backend.get("note"):
            lines.append(f"         {backend['note']}")
    lines += ["", "libraries"]
    for name, lib in found["libraries"].items():
        state = " ".join(str(lib[k]) for k in ("version", "path") if lib.get(k)) or "works"
        lines.append(f"  {name:15} {state if lib['works'] else lib['problem'] + ' (' + lib['without'] + ')'}")
    lines += [f"  {name:15} {version}" for name, version in found["versions"].items() if name not in ("einnet", "python")]
    name = f"{cpu['name']} ({cpu['level']})" if cpu["level"] else cpu["name"]
    lines += ["", "processor", f"  {name}; {cpu['physical_cores']} physical cores, {cpu['default_threads']} threads by default"]
    lines.append(f"  {' '.join(cpu['features']) or 'no extension known'}")
    lines += ["", f"cache         {found['cache']}"]
    lines += [f"{name:13} {value}" for name, value in found["environment"].items()]
    return lines


def db(options: argparse.Namespace) -> int:
    """Show or clear the profile database."""
    from einnet.runtime.cpu.objects import OBJECTS, clear
    from einnet.runtime.profile import ProfileDatabase

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
