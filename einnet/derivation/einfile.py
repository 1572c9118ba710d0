"""Derivations as text. A `.ein` file is a certificate, a golden test and a piece of documentation at once.

    # a comment
    A : f32[56,56,64]
    from L[h<56,..] Σ[..] A[..]*K[..]
    by sum-split outside=r,s
       L[h<56,..] Σ[r<3,..] {..}[..]
    by substitute at 0 kind exact t=h+r
       ...
    match Matmul(m=t*u, n=r*s*f, k=c)

After `by`: the rule, `at` and the path of the scope that it rewrites (left out at the root), `kind` and `bound` (left out where exact), and the
parameters. The indented lines are the whole expression after the step. `match` lines are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einnet.derivation.steps import KINDS, TEXT, Derivation, Step, replace_at, subscope
from einnet.errors import CertificateError, ParseError
from einnet.expr.nodes import Scope, Tensor, tensors
from einnet.expr.notation.printing import print_declaration
from einnet.expr.notation.text import Known
from einnet.expr.notation.text import parse as parse_scope

_BY = re.compile(
    r"by\s+(?P<rule>\S+)(?:\s+at\s+(?P<path>\d+(?:\.\d+)*))?(?:\s+kind\s+(?P<kind>\w+))?(?:\s+bound\s+(?P<bound>\S+))?(?:\s+(?P<parameters>.*))?$"
)


@dataclass(frozen=True, slots=True)
class EinFile:
    """What a `.ein` file holds: a derivation and its `match` lines."""

    derivation: Derivation
    matches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that starts something, with the indented lines below it; `line` counts from 1."""

    line: int
    text: str


@TEXT.define
def write(derivation: Derivation, matches: Sequence[str] = ()) -> str:
    """The text of a derivation; `parse` reads it back."""
    declared: dict[str, Tensor] = {}
    states = list(derivation.states())
    for state in states:
        declared.update(tensors(state))
    lines = [*map(print_declaration, declared.values()), f"from {states[0].text()}"]
    for step, state in zip(derivation.steps, states[1:], strict=True):
        words = ["by", step.rule]
        if step.path:
            words += ["at", ".".join(map(str, step.path))]
        if step.kind != "exact":
            words += ["kind", step.kind]
        if step.bound is not None:
            words += ["bound", repr(step.bound)]
        lines += [" ".join((*words, *([step.parameters] if step.parameters else []))), f"   {state.text()}"]
    return "\n".join((*lines, *(f"match {m}" for m in matches))) + "\n"


def parse(text: str) -> EinFile:
    """Read a derivation.

    Raises ParseError, with the line, for text that is none, and CertificateError where a step changes something outside its path.
    """
    declarations, found = entries(text)
    declared = _declared(declarations)
    known: dict[str, Known] = {}
    state: Scope | None = None
    start: Scope | None = None
    steps: list[Step] = []
    matches: list[str] = []
    for entry in found:
        word, _, rest = entry.text.partition(" ")
        if word == "match":
            matches.append(rest.strip())
        elif matches:
            raise ParseError(f"line {entry.line}: 'match' lines stand at the end")
        elif word == "from" and state is None:
            start = state = _scope(rest, declared, entry.line)
            declared.update(tensors(state))
        elif word == "by" and state is not None:
            header, _, expression = entry.text.partition("\n")
            if not expression.strip():
                raise ParseError(f"line {entry.line}: the indented expression after {header!r} is missing")
            after = _scope(expression, declared, entry.line + 1, known)
            steps.append(_step(header, state, after, entry.line))
            state = after
        else:
            raise ParseError(f"line {entry.line}: expected {'by or match' if state else 'a declaration or from'}, found {word!r}")
    if start is None:
        raise ParseError("the file has no 'from' line")
    return EinFile(Derivation(start, tuple(steps)), tuple(matches))


def entries(text: str) -> tuple[str, list[Entry]]:
    """The declarations, with all else blank so that their lines keep their numbers, and the entries."""
    declarations: list[str] = []
    found: list[Entry] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].rstrip() if not raw.startswith("match") else raw.rstrip()
        declarations.append("")
        if not line.strip():
            continue
        if line[0].isspace():
            if not found:
                raise ParseError(f"line {number}: an indented line without a line that it belongs to\n    {line.strip()}")
            found[-1] = Entry(found[-1].line, f"{found[-1].text}\n{line}")
        elif re.match(r"(from|by|match)\b", line):
            found.append(Entry(number, line))
        else:
            declarations[-1] = line
    return "\n".join(declarations), found


def _declared(text: str) -> dict[str, Tensor]:
    """Declarations are read by the parser of expressions, before one that reads nothing."""
    found: dict[str, Tensor] = {}
    for number, line in enumerate(text.splitlines()):
        if line:
            scope = _scope(f"{line}\nL[] 0*{_read(line, number + 1)}", found, number + 1)
            for name, tensor in tensors(scope).items():
                if found.setdefault(name, tensor) != tensor:
                    raise ParseError(f"line {number + 1}: tensor {name} is declared twice, differently")
    return found


def _read(declaration: str, line: int) -> str:
    """A read of the declared tensor."""
    name, _, kind = declaration.partition(":")
    dimensions = re.search(r"\[([^\]]*)\]", kind)
    if dimensions is None:
        raise ParseError(f"line {line}: expected a declaration such as 'A : f32[8,8]', 'from', 'by' or 'match', found {declaration!r}")
    rank = len(dimensions[1].split(",")) if dimensions[1].strip() else 0
    return f"{name.strip()}[{','.join('0' * rank)}]"


def _scope(text: str, declared: Mapping[str, Tensor], line: int, known: dict[str, Known] | None = None) -> Scope:
    try:
        return parse_scope(text.strip(), declared, known)
    except ParseError as error:
        raise ParseError(f"in the expression that starts in line {line}: {error}") from None


def _step(header: str, before: Scope, after: Scope, line: int) -> Step:
    m = _BY.match(header.strip())
    if m is None:
        raise ParseError(f"line {line}: expected 'by rule [at path] [kind class] [bound number] parameters', found {header!r}")
    kind, parameters = m["kind"] or "exact", (m["parameters"] or "").strip()
    if kind not in KINDS:
        raise ParseError(f"line {line}: {kind!r} is no numerical class: expected one of {', '.join(KINDS)}")
    try:
        bound = float(m["bound"]) if m["bound"] else None
        path = tuple(map(int, m["path"].split("."))) if m["path"] else ()
        old, new = subscope(before, path), subscope(after, path)
    except (ValueError, IndexError):
        raise ParseError(f"line {line}: there is no scope at {m['path']}, or {m['bound']} is no number") from None
    if replace_at(before, path, new).key != after.key:
        raise CertificateError(f"line {line}: the step changes more than the scope at {m['path']}")
    return Step(m["rule"], parameters, old, new, path, kind, bound)
