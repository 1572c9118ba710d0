"""One search as a task for another process: text in, text out, so that any executor on any machine can run it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from einnet.expr.nodes import Scope
from einnet.instantiate.registry import TABLES
from einnet.search.ahead.letters import read, written
from einnet.search.encoding import Reader, Writer
from einnet.search.forms import Form
from einnet.search.space import Options, Statistics, deepen


def task(scope: Scope, options: Options, seconds: float) -> str:
    """What `solve` needs to search a scope. Its deadline is `seconds` after it starts, whatever the clock says there."""
    writer = Writer()
    given = {name: value for name, value in written(options).items() if name != "deadline"}
    return json.dumps({"scope": writer.scope(scope), "options": given, "seconds": seconds, **writer.tables})


def solve(text: str) -> str:
    """Search; the forms and the counts as text."""
    given = json.loads(text)
    options = Options(deadline=time.monotonic() + given["seconds"], **read(given["options"]))
    forms, statistics = deepen(Reader(given, TABLES).scopes[given["scope"]], options)
    writer = Writer()
    found = [writer.form(f) for f in forms]
    return json.dumps({"forms": found, "statistics": asdict(statistics), **writer.tables})


def solution(text: str) -> tuple[list[Form], Statistics]:
    """What `solve` found."""
    found = json.loads(text)
    reader = Reader(found, TABLES)
    return [reader.form(f) for f in found["forms"]], Statistics(**found["statistics"])
