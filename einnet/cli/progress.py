"""Progress of an optimization: a moving line on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from einnet.evidence.report.told import Tell
from einnet.search.settings import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

Report = Callable[[Progress], None]
INTERVAL_S = 0.1
LINE_S = 10.0
"""Seconds between two lines where the error stream is no terminal."""


@contextmanager
def progress(quiet: bool) -> Iterator[Report | None]:
    """A function that shows where an optimization stands, on one line that vanishes at the end; None where nothing is to be shown.

    Where the error stream is no terminal, that is a line every ten seconds: short runs say nothing there.
    """
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield lines(time.monotonic)
        return
    from rich.progress import BarColumn, TextColumn

    with _line(BarColumn(bar_width=24), TextColumn("{task.fields[detail]}"), detail="") as (console, show):

        def report(p: Progress) -> None:
            if (line := finding(p)) is not None:
                console.print(line, highlight=False)
            show(p.phase != "search", description=p.phase, total=p.total or None, completed=p.done, detail=detail(p))

        yield report


@contextmanager
def _line(*columns: ProgressColumn, **fields: Any) -> Iterator[tuple[Console, Callable[..., None]]]:
    """A line of a terminal that vanishes at the end: its console, and a function that changes it and draws it again, seldom or `at_once`."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn

    # No refreshing thread: it would run beside what is being timed.
    with Bar(SpinnerColumn(), TextColumn("{task.description}"), *columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task, shown = bar.add_task("", total=None, **fields), 0.0

        def show(at_once: bool = False, **changed: Any) -> None:
            nonlocal shown
            bar.update(task, **changed)
            if at_once or time.monotonic() - shown > INTERVAL_S:
                bar.refresh()
                shown = time.monotonic()

        yield bar.console, show


def lines(clock: Callable[[], float]) -> Report:
    """A function that writes where an optimization stands to the error stream, at most one line in LINE_S by the clock."""
    due = now_and_then(clock)

    def report(p: Progress) -> None:
        if due():
            print(f"einnet: {p.phase}: {detail(p)}", file=sys.stderr, flush=True)

    return report


def now_and_then(clock: Callable[[], float]) -> Callable[[], bool]:
    """A function that says whether LINE_S have passed since it last said so, or since now."""
    last = clock()

    def due() -> bool:
        nonlocal last
        if clock() - last < LINE_S:
            return False
        last = clock()
        return True

    return due


@contextmanager
def checks() -> Iterator[Tell]:
    """A function that shows what is being checked, as `progress` does."""
    if not sys.stderr.isatty():
        yield seldom(time.monotonic)
        return
    with _line() as (_, show):
        yield lambda what: show(description=f"verify: {what}")


def seldom(clock: Callable[[], float]) -> Tell:
    """A function that writes what is being checked to the error stream, at most one line in LINE_S by the clock."""
    due = now_and_then(clock)

    def tell(what: str) -> None:
        if due():
            print(f"einnet: verify: {what}", file=sys.stderr, flush=True)

    return tell


def finding(p: Progress) -> str | None:
    """A line that stays, where something faster was found for a subprogram: `subprogram 3 of 17   0.15 ms -> 0.12 ms   1.25x`."""
    if not p.best or not p.original or p.best >= p.original:
        return None
    ahead = f"{p.detail}   " if p.detail else ""
    gain = f"{p.original:.3g} ms -> [bold]{p.best:.3g} ms[/bold]   {p.original / p.best:.2f}x"
    return f"[green]✓[/green] subprogram {p.done} of {p.total}   {ahead}{gain}"


def detail(p: Progress) -> str:
    """`subprogram 3 of 17 · 1200 states/s · 0.12 ms, was 0.15 ms · 84 s left`"""
    parts = [f"subprogram {min(p.done + 1, p.total)} of {p.total}"] if p.total else []
    if p.states:
        parts.append(f"{p.states_per_s:.0f} states/s" if p.states_per_s else f"{p.states} states")
    if p.best is not None and p.original is not None:
        parts.append(f"best {p.best:.3g} ms, original {p.original:.3g} ms")
    return " · ".join([*parts, p.detail] if p.detail else parts) + f" · {p.left:.0f} s left"
