"""One self-contained HTML page: the data, the styles and the scripts that show it. Nothing is loaded from anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

SCRIPTS = ("notation.js", "atlas.js", "app.js")


def asset(name: str) -> str:
    """A file of the page."""
    return (files("einnet.evidence.pages") / "assets" / name).read_text(encoding="utf-8")


def page(data: Mapping[str, Any], program: str = "") -> str:
    """The explorer of `data` (`einnet.evidence.pages.explore_page` makes it); `program` is the HTML of the view of the whole program."""
    parts = {
        "TITLE": escape(f"{data['title']} · einnet"),
        "STYLE": asset("style.css"),
        "PROGRAM": program,
        "DATA": json.dumps(shown(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
        "SCRIPT": "\n".join(asset(name) for name in SCRIPTS),
    }
    return re.sub("@([A-Z]+)@", lambda m: parts[m[1]], asset("page.html"))


def shown(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the scripts read of the data: of a program the derivations that run, of a derivation's step the whole expression after it."""
    graphs = [{**g, "derivations": [without_sides(d) for d in g["derivations"]]} for g in data["graphs"]]
    found = {name: value for name, value in data.items() if name not in ("report", "program")} | {"graphs": graphs}
    if "program" in data:
        chapters = data["program"]["subprograms"]
        told = [c for c in chapters if "derivation" in c]
        found["program"] = [{"key": c["key"], "nodes": c["nodes"], "derivation": without_sides(c["derivation"])} for c in told]
    return found


def without_sides(derivation: Mapping[str, Any]) -> dict[str, Any]:
    """A derivation whose steps do not repeat the scope before and after."""
    return {**derivation, "steps": [{name: value for name, value in s.items() if name not in ("before", "after")} for s in derivation["steps"]]}
