"""A problem's process from outside: its lines are gathered, and it is ended where it takes too long or too much memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

POLL_S, PAGE = 0.3, os.sysconf("SC_PAGE_SIZE")

Row = dict[str, Any]


class Nursery:
    """The process of which those of problems are forks, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def order(self, orders: Mapping[str, Any]) -> int:
        """Begin to carry out the orders; the number of their process."""
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "OMP_NUM_THREADS": str(orders["threads"]), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            command = [sys.executable, "-m", "benchmarks.suites.nursery"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(orders) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def code(self) -> int:
        """The exit code of the last orders' process, which has ended."""
        return int(self._answer())

    def close(self) -> None:
        """End the process, which has no orders left."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _answer(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.readline()


def run(orders: Mapping[str, Any], seconds: float, nbytes: int, nursery: Nursery) -> Row:
    """What a problem's process found, ended after `seconds` or where it and its children hold more than `nbytes`."""
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        process = nursery.order({**orders, "out": out.name, "err": err.name})
        ended = watch(process, seconds, nbytes)
        code = nursery.code()
        row = merged(out.read().splitlines())
        last = (err.read().strip().splitlines() or ["nothing was said"])[-1]
    if ended:
        return {**row, "status": "ended", "why": f"{ended} in {row['phase']}"}
    if "status" not in row:
        return {**row, "status": "ended", "why": f"exit code {code} in {row['phase']}: {last[:200]}"}
    return row


def watch(process: int, seconds: float, nbytes: int) -> str | None:
    """Wait for the process's end; why it was ended, if it was."""
    end = time.monotonic() + seconds
    while alive(process):
        time.sleep(POLL_S)
        reason = None
        if time.monotonic() > end:
            reason = f"more than {seconds:g} s"
        elif more_than(nbytes, process):
            reason = f"more than {nbytes / 1e9:.3g} GB"
        if reason and alive(process):
            os.killpg(process, signal.SIGKILL)  # it is the leader of its session's only group
            return reason
    return None


def alive(process: int) -> bool:
    """A process is there and has not ended: what has and was not waited for yet is a zombie."""
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def more_than(nbytes: int, group: int) -> bool:
    """A group's processes have more in memory; what several of all processes share is divided among them.

    Without that division it is known at once, and is no less. To divide takes the system some hundredths of a second, in which what is timed there is
    disturbed: so it is asked for only where it matters.
    """
    processes = members(group)
    return sum(map(resident, processes)) > nbytes and sum(map(proportional, processes)) > nbytes


def members(group: int) -> list[Path]:
    """The folders of a group's processes in /proc."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                    found.append(folder)
    return found


def resident(process: Path) -> int:
    """Bytes in memory of a process, shared pages as a whole; 0 where it has ended."""
    with suppress(OSError, IndexError, ValueError):
        return PAGE * int((process / "statm").read_text().split()[1])
    return 0


def proportional(process: Path) -> int:
    """Bytes in memory of a process, shared pages in proportion; 0 where it has ended."""
    with suppress(OSError, StopIteration):
        return 1024 * next(int(line.split()[1]) for line in (process / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    return 0


def merged(lines: list[str]) -> Row:
    """One row of a process's lines: engines by name, the last of everything else."""
    row: Row = {"phase": "start", "engines": {}}
    for line in lines:
        if not line.startswith("{"):
            continue
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "engine" in found:
            row["engines"][found.pop("engine")] = found
        else:
            row.update(found)
    return row
