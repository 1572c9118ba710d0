"""A problem's process from outside: its lines are gathered, and it is ended where it takes too long or too much memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

POLL_S = 0.2
PAGE = resource.getpagesize()

Row = dict[str, Any]


def run(orders: Mapping[str, Any], seconds: float, nbytes: int) -> Row:
    """What a problem's process found, ended after `seconds` or where it and its children hold more than `nbytes`."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(orders["threads"]), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        command = [sys.executable, "-m", "benchmarks.suites.worker", json.dumps(orders)]
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        ended = watch(process, seconds, nbytes)
        out.seek(0)
        err.seek(0)
        row = merged(out.read().splitlines())
        last = (err.read().strip().splitlines() or ["nothing was said"])[-1]
    if ended:
        return {**row, "status": "ended", "why": f"{ended} in {row['phase']}"}
    if "status" not in row:
        return {**row, "status": "ended", "why": f"exit code {process.returncode} in {row['phase']}: {last[:200]}"}
    return row


def watch(process: subprocess.Popen[str], seconds: float, nbytes: int) -> str | None:
    """Wait for the process's end; why it was ended, if it was."""
    end = time.monotonic() + seconds
    reason = None
    try:
        while process.poll() is None and reason is None:
            time.sleep(POLL_S)
            if time.monotonic() > end:
                reason = f"more than {seconds:g} s"
            elif held(process.pid) > nbytes:
                reason = f"more than {nbytes / 1e9:.3g} GB"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # it is the leader of its session's only group
            process.wait()
    return reason


def held(group: int) -> int:
    """Bytes in memory of the processes of a group."""
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * PAGE
        except (OSError, IndexError, ValueError):
            continue
    return total


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
