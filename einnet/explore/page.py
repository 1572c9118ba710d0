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
    return (files("einnet.explore") / "assets" / name).read_text(encoding="utf-8")


def page(data: Mapping[str, Any], program: str = "") -> str:
    """The explorer of `data` (`einnet.api.explore` makes it); `program` is the HTML of the view of the whole program."""
    parts = {
        "TITLE": escape(f"{data['title']} · einnet"),
        "STYLE": asset("style.css"),
        "PROGRAM": program,
        "DATA": json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
        "SCRIPT": "\n".join(asset(name) for name in SCRIPTS),
    }
    return re.sub("@([A-Z]+)@", lambda m: parts[m[1]], asset("page.html"))
