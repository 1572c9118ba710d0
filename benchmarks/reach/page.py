"""The results as JSON and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.reach.measure import Reached
from benchmarks.reach.probes import Probe

Case = dict[str, Any]


def case(probe: Probe, reached: Reached) -> Case:
    """One case, as the JSON has it."""
    return {
        "name": probe.name, "ops_model": reached.model, "ops_chosen": reached.chosen, "ops_best_known": round(probe.best), "source": probe.source,
        "states": reached.states, "seconds": round(reached.seconds, 2), "ratio": round(reached.ratio, 3), "noise": round(reached.noise, 4),
        "proof": reached.proof, "reached": reached.found(probe), "ops_least": reached.least or reached.chosen, "among": reached.among(probe),
        "runs": reached.runs,
    }  # fmt: skip


def page(machine: Mapping[str, Any], cases: Sequence[Case]) -> str:
    """A table: what the model takes, what was chosen, what is known to be best."""
    head = ("probe", "model", "chosen", "best known", "chosen / best", "source", "states", "seconds", "times faster", "proof")
    rows = []
    for c in cases:
        counts = (c["ops_model"], c["ops_chosen"], c["ops_best_known"])
        share, faster = counts[1] / max(counts[2], 1), f"{c['ratio']:.2f} ± {c['noise']:.0%}" if c["ratio"] else "not run"
        names = (c["name"].replace("_", " "), *(f"{n:.3g}" for n in counts), f"{share:.2f}", c["source"])
        cells = (*names, c["states"], f"{c['seconds']:.1f}", faster, c["proof"])
        rows.append(f'<tr class="{"reached" if c["reached"] else "missed"}">' + "".join(f"<td>{escape(str(x))}</td>" for x in cells) + "</tr>")
    reached = sum(c["reached"] for c in cases)
    cells_css = "table{border-collapse:collapse}td,th{padding:2px 8px;text-align:right}"
    style = cells_css + "td:first-child,td:nth-child(6){text-align:left}.missed{background:#fdd}"
    title = f"{reached} of {len(cases)} probes at the best known form"
    headings = "".join(f"<th>{h}</th>" for h in head)
    described = escape(", ".join(f"{k}: {v}" for k, v in machine.items()))
    return (
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{style}</style><h1>{title}</h1><p>{described}</p>'
        f"<table><tr>{headings}</tr>{''.join(rows)}</table>\n"
    )
