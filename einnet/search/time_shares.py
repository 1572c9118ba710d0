"""Where the time of an optimization goes: every share and limit of time, in one table, which `einnet explain --limits` prints.

All of them were set by hand: no model's result depends on one of them but by how much is searched and measured.
"""

from __future__ import annotations

BUDGET, LEFT, SECONDS, COUNT = "of the budget", "of what is left", "s", ""
"""What the numbers count."""


class Limit(float):
    """A number with its unit and what it limits."""

    unit: str
    meaning: str

    def __new__(cls, value: float, unit: str, meaning: str) -> Limit:
        made = super().__new__(cls, value)
        made.unit, made.meaning = unit, meaning
        return made

    def seconds(self, budget: float) -> float | None:
        """Seconds of a time budget of so many seconds; None for what is no share of it."""
        return float(self) if self.unit == SECONDS else budget * self if self.unit == BUDGET else None


COSTING_SHARE = Limit(0.4, BUDGET, "until whose end the model's own operators are measured")
LEAST_SEARCH_SHARE = Limit(0.5, BUDGET, "until whose end is searched in any case")
EXPLORING_SHARE = Limit(1 / 3, "of a subprogram's time", "in which forms are looked for; in the rest they are measured")
MAKING_SHARE = Limit(0.5, "of the time to choose", "in which candidates are made; then they are measured. The original is made whatever the time")
LEAST_SHARE_S = Limit(0.5, SECONDS, "that a cheap subprogram gets at least")
CERTAIN_SHARE_S = Limit(1e-3, SECONDS, "that a subprogram gets where time is over, and some layers are searched whatever the time")
LEAST_EXPLORING_S = Limit(2.0, SECONDS, "of a search that the model's own operators, which are made before it, do not take away")
FIRST_TURNS_SHARE = Limit(0.5, "of the time to explore", "until whose end every subprogram has a first turn before any has its second")
MEASURED_BETWEEN_SHARE = Limit(0.2, "of the time that is left", "for measuring what a turn found, where a later turn goes deeper")
PROMISED_SHARE = Limit(0.5, "of the time that is left to a subprogram", "for measuring what is predicted to be much faster than what was measured")
PROVEN_AT_ONCE_SHARE = Limit(0.2, "of the search until then", "for proving what a turn has found before the next one; the rest is proven at the end")
BUNDLING_SHARE = Limit(0.25, "of the time to explore", "that is kept for subprograms computed together")
MOST_BUNDLE_SHARES = Limit(3, COUNT, "parts of the time that is left for groups, of which a group gets at least one")
STATES_PER_S = Limit(250, "states", "that a second of the budget stands for where states are counted: about what one core visits")
STITCHING_SHARE = Limit(0.2, LEFT, "after the search, in which is measured which copies can be left out")
KEEPING_SHARE = Limit(0.6, LEFT, "after the search, in which what was derived is proven, that which gains most first; the rest is not kept")
LEAST_KEEPING_S = Limit(5.0, SECONDS, "of the processor that these proofs may take in any case")
PROVING_SHARE = Limit(0.1, BUDGET, "for the proofs and the kernels of one program, at most")
ROUNDING_SHARE = Limit(0.3, LEFT, "after a program is verified, for choosing which of its products round their factors (--max-error)")
ARITHMETICS_SHARE = Limit(0.4, "of the time for rounding", "in which products are measured in other arithmetics, the longest first")
SELECTING_SHARE = Limit(0.7, "of the time for rounding that is left", "to find which products round; the rest is for other draws to confirm it")
GROUPS_SHARE = Limit(0.5, "of the time to find these", "in which products are tried alone or in groups; in the rest, how many there is room for")
WORKED_S = Limit(10.0, SECONDS, "of the processor that a run works in any case before ONNX Runtime has the whole model for want of time")
NAN_S = Limit(3.0, SECONDS, "that the report spends at most on trying what NaN does")
TIMING_SHARE = Limit(0.15, BUDGET, "that comparing the programs takes at most")
MOST_TIMING_S = Limit(20.0, SECONDS, "that comparing the programs takes at most")
LEAST_TIMING_S = Limit(2.5, SECONDS, "that comparing the programs takes at least: a few rounds of quick ones")
COMPARED_SHARE = Limit(0.7, LEFT, "in the end, for the comparisons of whole programs; the rest is for the profile of kernels")
FIRST_SHARE = Limit(0.5, "of the time for timing", "for the first comparison")
PARTS_SHARE = Limit(0.15, "of the time for timing", "for the kernels in their places; the rest is for another comparison, if there is reason")
CONTEST_RUNS = Limit(7, "runs", "of a program that another comparison takes at least")
PROFILE_S = Limit(1.0, SECONDS, "that the profile of the kernels takes, about")
PICKING_SHARE = Limit(0.6, LEFT, "after the search, in which subprograms are tried in the whole model (--target onnx)")
LEAST_RACE_S = Limit(0.8, SECONDS, "of one round of two models that take no time: pauses in which threads fall asleep, and warming up")
RELOADED = Limit(4, COUNT, "times that ONNX Runtime runs the model in a round, and loads it where not all programs fit into memory at once")
FINISHING_S = Limit(2.0, SECONDS, "that compiling, proving, verifying and profiling take in any case")
FINISHING_PART_S = Limit(0.05, SECONDS, "that they take for each distinct subprogram")
FINISHING_NODE_S = Limit(0.002, SECONDS, "that they take for each node of the program")
FINISHING_BYTES_PER_S = Limit(2.5e8, "bytes in a second", "of weights that they get through")
FINISHING_RUNS = Limit(12, "runs", "of the model that they take")
SEARCHED_SHARE = Limit(0.8, "of a part's time", "in a compiled graph: what an optimization is given: storing and comparing its program take the rest")
ORDER_SHARE = Limit(0.25, BUDGET, "in which each order of a card's data is searched: what one step finds tells little of what several do")
RANGE_SEARCH_SHARE = Limit(0.4, BUDGET, "for the search at the representative size of a range")
RANGE_FOLLOWING_SHARE = Limit(0.5, LEFT, "after that search, for the sizes that are not measured, at most")
RANGE_CHOOSING_SHARE = Limit(0.6, "of a measured size's time", "in which candidates are measured; the rest is for whole programs")
RANGE_LEAST_S = Limit(0.5, SECONDS, "that a measured size gets in any case")
LATE = Limit(1.1, "times the budget", "beyond which the report says that it was exceeded")


def table(budget: float) -> list[str]:
    """The table for a budget of so many seconds."""
    rows = [(name.lower().replace("_", " "), limit) for name, limit in globals().items() if isinstance(limit, Limit)]
    found = [("", "", f"of {budget:g} s", "")]
    for name, limit in rows:
        seconds = limit.seconds(budget)
        found.append((name, f"{float(limit):.4g} {limit.unit}".rstrip(), "" if seconds is None else f"{seconds:.3g} s", limit.meaning))
    widths = [max(len(row[column]) for row in found) for column in range(3)]
    return ["  ".join((*(cell.ljust(width) for cell, width in zip(row, widths)), row[3])).rstrip() for row in found]
