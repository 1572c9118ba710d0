"""Results on disk: one JSON file, written after every entry, so that a run that was cut short goes on where it stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from einnet.runtime.files import replacing

Entry = dict[str, Any]
Key = tuple[str, int, int]


def key_of(entry: Entry) -> Key:
    """Model, batch, threads."""
    return entry["model"], entry["batch"], entry["threads"]


class Results:
    """The file's content: `machine`, `run` (settings, when it began, whether it is complete) and `models`, an entry for each key.

    A run goes on with the one in the file if that is not complete and has the same settings and machine. Entries of earlier runs stay until they
    are measured again; each says by `run` to which it belongs.
    """

    def __init__(self, path: Path, machine: dict[str, Any], settings: dict[str, Any], fresh: bool = False) -> None:
        self.path = path
        self.data: dict[str, Any] = read(path) if path.exists() else {"models": []}
        before = self.data.get("run", {})
        same = before.get("settings") == settings and self.data.get("machine", {}) | {"peak_gflops": None} == machine | {"peak_gflops": None}
        if fresh or before.get("complete", True) or not same:
            self.data["run"] = {"began": datetime.now(UTC).isoformat(), "settings": settings, "complete": False}
            self.data["machine"] = machine
        self.data = {name: self.data[name] for name in ("machine", "run", "models")}

    @property
    def machine(self) -> dict[str, Any]:
        return dict(self.data["machine"])

    def has(self, key: Key) -> bool:
        """This run has measured it."""
        return any(key_of(e) == key and e["run"] == self.data["run"]["began"] for e in self.data["models"])

    def put(self, entry: Entry) -> None:
        """Add or replace an entry, and write the file."""
        others = [e for e in self.data["models"] if key_of(e) != key_of(entry)]
        self.data["models"] = [*others, {**entry, "run": self.data["run"]["began"]}]
        self.write()

    def finish(self) -> None:
        """The run is complete."""
        self.data["run"]["complete"] = True
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, text(self.data))


def known(path: Path, name: str, asked: Entry) -> bool:
    """The file of cases has one of the name by these settings."""
    return path.exists() and any(case["name"] == name and case.get("asked") == asked for case in read(path)["cases"])


def keep(path: Path, machine: Entry, case: Entry, names: Iterable[str]) -> list[Entry]:
    """Put a case into the file in the order of the names, and give all. Other cases stay; those of names that are no more go."""
    before = read(path)["cases"] if path.exists() else []
    by_name = {c["name"]: c for c in [*before, case]}
    cases = [by_name[n] for n in names if n in by_name]
    write_whole(path, text({"machine": machine, "cases": cases}))
    return cases


def write_whole(path: Path, written: str) -> None:
    """Write a file, whole or not at all."""
    with replacing(path) as draft:
        draft.write_text(written, encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """What the file holds."""
    return dict(json.loads(path.read_text()))


def text(data: object) -> str:
    """JSON with a line for each member and each list of numbers."""
    spread = json.dumps(data, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-+\d.eE,\s]+\]", lambda m: re.sub(r"\s+", " ", m[0]).replace("[ ", "[").replace(" ]", "]"), spread) + "\n"
