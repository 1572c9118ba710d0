"""The notation of recursions: `parse_recursion(recursion_text(r)) == r`.

    Q : f32[8,3]
    B : f32[3]
    X : f32[8,3]
    at each of 8 times
    X = L[t<8,i<3] Q[t,i]*select(t-1>=0, X[t-1,i], B[i])
    gives X

All tensors are declared; those that no equation defines are given. Lines `before`, `at each of N times` and `after` begin the three parts.
"""

from __future__ import annotations

import re

from einnet.errors import UsageError
from einnet.expr.nodes import Tensor
from einnet.expr.notation.printing import print_declaration
from einnet.expr.notation.text import Parser, parse
from einnet.expr.recursions.recursion import Equation, Recursion

_DECLARED = re.compile(r"\S+ : ")


def recursion_text(r: Recursion) -> str:
    """The recursion in lines."""
    lines = [print_declaration(t) for t in (*r.inputs, *r.tables, *(e.tensor for e in r.equations))]
    for head, part in (("before", r.before), (f"at each of {r.count} times", r.steps), ("after", r.after)):
        if part or part is r.steps:
            lines += [head, *(f"{e.tensor.name} = {e.scope.text()}" for e in part)]
    return "\n".join([*lines, f"gives {', '.join(r.outputs)}"])


def parse_recursion(text: str) -> Recursion:
    """The inverse of `recursion_text`. Raises ParseError or UsageError."""
    declared: dict[str, Tensor] = {}
    parts: dict[str, list[Equation]] = {"before": [], "steps": [], "after": []}
    now, count = "", 0
    outputs: tuple[str, ...] = ()
    for line in filter(None, map(str.strip, text.splitlines())):
        if _DECLARED.match(line):
            reader = Parser(line, declared)
            reader.declarations()
            declared = reader.declared
        elif found := re.fullmatch(r"at each of (\d+) times", line):
            now, count = "steps", int(found[1])
        elif line in ("before", "after"):
            now = line
        elif line.startswith("gives "):
            outputs = tuple(line.removeprefix("gives ").split(", "))
        else:
            name = line.partition(" = ")[0]
            if name not in declared or not now:
                raise UsageError(f"expected an equation of a declared tensor, found {line!r}")
            parts[now].append(Equation(declared[name], parse(line.partition(" = ")[2], declared)))
    made = {e.tensor.name for part in parts.values() for e in part}
    given = tuple(t for t in declared.values() if t.name not in made and t.values is None)
    before, steps, after = map(tuple, parts.values())
    return Recursion(count, given, before, steps, after, outputs)
