"""What a user can ask of the backend: `torch.compile(model, backend="einnet", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from einnet.errors import UsageError, nearest
from einnet.search.settings import CANDIDATE, Arguments, Settings, chosen

WEIGHTS, SIZES = ("constant", "inputs"), ("recurring", "all")
SEARCH = (
    "allow", "certified", "cpu", "fresh", "max_depth", "max_error", "memory_limit", "rules", "seed", "strict_nan", "tested", "threads", "time_budget",
    "workers",
)  # fmt: skip
"""The arguments of `einnet.optimize` that the backend takes as they are."""

TIME_BUDGET = 30.0
"""Seconds for the search of each part, where none are given: somebody waits for the first call."""

GRAPH_BUDGET = 120.0
"""Seconds for which a call waits for the programs of a graph, export and all, where none are given."""


@dataclass(frozen=True)
class Options:
    """The backend's own options.

    weights    "constant": parameters and buffers are constants of the programs, which are made again where these have changed; "inputs": they are
               inputs, read anew in every call
    strict     True raises what keeps a part from being optimized; by default it runs in eager mode, and a warning says why
    store      False keeps programs out of the cache folder, and does not look for them there
    graph_budget   seconds for which one call of a graph waits for programs, those of all parts together; what is not ready then stays in eager mode
    programs   most programs of one part, for as many sizes and sets of weights; what comes after them runs in eager mode
    sizes      "recurring": other sizes than the first have programs when calls of them have taken as long in eager mode as programs take to make;
               "all": at once
    trivial    a part that takes less than so many microseconds in eager mode stays there
    slower     True keeps programs that are slower than eager mode, for tests
    """

    weights: str = "constant"
    strict: bool = False
    store: bool = True
    graph_budget: float = GRAPH_BUDGET
    programs: int = 8
    sizes: str = "recurring"
    trivial: float = 50.0
    slower: bool = False

    def __post_init__(self) -> None:
        if not self.graph_budget > 0:
            raise UsageError(f"graph_budget must be more than 0 seconds, not {self.graph_budget}")
        if self.weights not in WEIGHTS:
            raise UsageError(f"weights {self.weights!r} is not one of {', '.join(WEIGHTS)}")
        if self.sizes not in SIZES:
            raise UsageError(f"sizes {self.sizes!r} is not one of {', '.join(SIZES)}")
        if self.programs < 1:
            raise UsageError(f"programs must be 1 or more, not {self.programs}")


def read_options(given: Mapping[str, Any] | None, threads: int) -> tuple[Options, Settings]:
    """The backend's options and the settings of its searches; `threads` where none are given.

    Raises UsageError for an option that there is not, with the nearest one that there is, and for a value that is not possible.
    """
    own = {f.name for f in fields(Options)}
    known = sorted({*own, *SEARCH})
    for name in given or {}:
        if name not in known:
            raise UsageError(f"the backend has no option {name!r}; {nearest(name, known, 'it has ' + ', '.join(known))}")
    taken = dict(given or {})
    options = Options(**{name: taken.pop(name) for name in list(taken) if name in own})
    arguments: Arguments = {"time_budget": TIME_BUDGET, "threads": threads, "whole": CANDIDATE}  # what a user has already is eager mode
    arguments.update(taken)  # type: ignore[typeddict-item]
    return options, chosen(None, arguments)
