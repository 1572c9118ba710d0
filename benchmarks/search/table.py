"""The measured counts beside the original engine's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEADER = (
    "case", "states", "seconds", "states/s", "speedup", "depth", "steps", "bare depth", "bare speedup",
    "default with / without", "isolated with / without", "pruned", "original engine",
)  # fmt: skip


def table(data: Mapping[str, Any]) -> str:
    """One line for every case.

    A `+` after the states: the search ended by its limits. `speedup` is predicted; `depth` is the least with the best candidate, `steps` the
    steps of its derivation with and without converging; `bare` is the search without converging derivation. `default` are the states of the
    search as it is, with and without fingerprints; `isolated` those with every other pruning off, without fingerprints counted over whole
    expressions: `>` a lower bound, in brackets the number of first steps that are counted in every order. `pruned` is the share
    that fingerprints save there, in brackets if the scopes that states read are counted for states too, on their side only.
    The original engine's states are with and without fingerprints.
    """
    return aligned([HEADER, *(row(case) for case in data["cases"])])


def markdown(data: Mapping[str, Any]) -> str:
    """The same as a table of a page, after what it means."""
    lines = [HEADER, tuple("---" for _ in HEADER), *(row(case) for case in data["cases"])]
    meaning = "\n".join(line.strip() for line in (table.__doc__ or "").strip().splitlines())
    return "\n".join(("# " + meaning, "", f"Costs: {data['cost']}.", "", *("| " + " | ".join(line) + " |" for line in lines), ""))


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns of equal width."""
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(r, widths)).rstrip() for r in rows)


def row(case: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a line."""
    last, bare, target = case["layers"][-1], case["without_converging"][-1], case["target"]
    default, isolated = case["fingerprint"]["default"], case["fingerprint"]["isolated"]
    published = case.get("published")
    before = "-"
    if published:
        without, converging = published["steps"]
        before = f"{short(published['states'])} of {short(published['without'])}, d{published['depth']}, steps {converging} / {without}"
    return (
        case["name"], str(last["states"]) + ("+" if last["stopped"] else ""),
        f"{last['seconds']:.1f}", f"{last['states_per_s']:.0f}", f"{last['speedup']:.2f}",
        f"d{target['explorative']}", f"{target['explorative']} / {target['steps']}", f"d{bare['depth']}", f"{bare['speedup']:.2f}",
        f"{visited(default['with'])} / {visited(default['without'])}", f"{visited(isolated['with'])} / {counted(isolated)}", pruned(isolated), before,
    )  # fmt: skip


def visited(search: Mapping[str, Any]) -> str:
    """The states of a search, and the depth at which its limits ended it."""
    return short(search["states"]) if not search["stopped"] else f">{short(search['states'])} (d{search['depth']})"


def counted(ablation: Mapping[str, Any]) -> str:
    """The most states that there are without fingerprints."""
    whole, search = ablation["whole_expressions"], ablation["without"]
    if whole["orders"] == whole["depth"]:
        return short(whole["states"])
    return f">{short(max(whole['states'], search['states']))} ({whole['orders']})"


def pruned(ablation: Mapping[str, Any]) -> str:
    """The share of states that fingerprints save; unknown where the search with them did not end."""
    if "pruned" not in ablation:
        return "unknown"
    sign = "" if ablation["whole_expressions"]["orders"] == ablation["whole_expressions"]["depth"] else "≥"
    return f"{sign}{ablation['pruned']:.1%} ({ablation['pruned_of_visited']:.1%})"


def short(count: float) -> str:
    """1234567 as 1.2M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if count >= 10 * unit or (count >= unit and name == "M"):
            return f"{count / unit:.3g}{name}"
    return f"{count:.0f}"
