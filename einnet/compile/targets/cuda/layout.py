"""In which order the data of a program is searched for a card: as its convolutions want it, or the other one where that is predicted to be faster."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from einnet.compile.budget import CountedClock, Schedule
from einnet.compile.program_search import search
from einnet.compile.subprogram_search import Cost
from einnet.graph.passes.prepare import prepare
from einnet.graph.passes.storage_order import channels_last
from einnet.graph.program import Program
from einnet.search.settings import Settings
from einnet.search.time_shares import ORDER_SHARE

GAIN = 0.03
"""Share of the predicted time by which the other order has to be faster."""


def in_order(program: Program, settings: Settings, cost: Cost, wanted: bool) -> tuple[Program, bool]:
    """The program in the order in which it is faster, and whether that has its channels last; `wanted` is what the card's convolutions want.

    Where nothing is run as a convolution, but as products, the order of the data decides only how these lie, and no law says which is better:
    both are searched, in a share of the budget.
    """
    first = prepare(program, permuted=wanted, finite=settings.settles)
    if not settings.derive or settings.force is not None or not channels_last(program):
        return first, wanted
    second = prepare(program, permuted=not wanted, finite=settings.settles)
    other = seconds(second, settings, cost) < (1 - GAIN) * seconds(first, settings, cost)
    return (second, not wanted) if other else (first, wanted)


def seconds(program: Program, settings: Settings, cost: Cost) -> float:
    """What the best program that a search in a share of the budget finds is predicted to take; infinite where nothing is found. It is not run."""
    brief = replace(settings, time_budget=ORDER_SHARE * settings.time_budget, progress=None)
    schedule = Schedule(0.0, brief.time_budget, clock=CountedClock())
    found = search(program, brief, cost, schedule, proven=False) if program.nodes else None
    return sum(cost.estimates(found.plan().kernels)) if found else inf
