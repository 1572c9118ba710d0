"""The measured counts beside the original engine's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEADER = ("case", "states", "seconds", "states/s", "speedup", "depth", "steps", "no fingerprint", "pruned", "all scopes", "original engine")


def table(data: Mapping[str, Any]) -> str:
    """One line for every case.

    A `+` after the states: the search ended by its limits. `speedup` is predicted; `depth` is the least with the best candidate, `steps` the
    steps of its derivation with and without converging; `no fingerprint` and `pruned` count under intensity analysis, `all scopes` without it
    ("states of how many, pruned").
    """
    rows = [HEADER, *(row(case) for case in data["cases"])]
    widths = [max(len(r[n]) for r in rows) for n in range(len(HEADER))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(r, widths)).rstrip() for r in rows)


def row(case: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a line."""
    last, target, (analysed, everything) = case["layers"][-1], case["target"], case["fingerprint"]
    published = case.get("published")
    before = "-"
    if published:
        without, converging = published["steps"]
        before = f"{short(published['states'])} of {short(published['without'])}, d{published['depth']}, steps {converging} / {without}"
    return (
        case["name"], str(last["states"]) + ("+" if last["stopped"] else ""),
        f"{last['seconds']:.1f}", f"{last['states_per_s']:.0f}", f"{last['speedup']:.2f}",
        f"d{target['explorative']}", f"{target['explorative']} / {target['steps']}", whole(analysed), pruned(analysed),
        f"{everything['with']['states']} of {whole(everything)}, {pruned(everything)}", before,
    )  # fmt: skip


def pruned(ablation: Mapping[str, Any]) -> str:
    """The share of states that fingerprints save; unknown where the search with them did not end."""
    return "unknown" if ablation["with"]["stopped"] else f"{ablation['pruned']:.1%}"


def whole(ablation: Mapping[str, Any]) -> str:
    """The most states that were visited or counted without fingerprints, and how deep that was where it is no complete search."""
    groups, expressions = ablation["without"], ablation["whole_expressions"]
    most = groups if groups["states"] >= expressions["states"] else expressions
    complete = ablation["with"]["depth"]
    return f"{short(most['states'])}" if most["depth"] >= complete else f">{short(most['states'])} (d{most['depth']})"


def short(count: float) -> str:
    """1234567 as 1.2M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if count >= 10 * unit or (count >= unit and name == "M"):
            return f"{count / unit:.3g}{name}"
    return f"{count:.0f}"
