"""Expressions as HTML: a definition for every scope, innermost first, and what differs between two expressions marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from einnet.expr.index import Floor, Index
from einnet.expr.nodes import HTML, Add, Body, Call, Const, Div, Iter, Mul, Read, Scope, Select, Tensor, Val, map_reads, nested
from einnet.expr.notation.printing import print_number

STYLE = """
.einnet { font: 14px/1.45 system-ui, sans-serif; margin: .4em 0 }
.einnet .row { display: flex; gap: 9px; align-items: flex-start; padding: 5px 10px; border-left: 3px solid transparent }
.einnet .row { font: 17px/1.3 "STIX Two Text", Cambria, "Times New Roman", serif }
.einnet .row.changed { border-left-color: #c2571a; background: rgba(128,128,128,.09); border-radius: 6px }
.einnet .lhs { min-width: 24px; text-align: right; color: #3d72d8 }
.einnet .def { color: #3d72d8 }
.einnet .rhs { display: flex; flex-wrap: wrap; align-items: flex-start; row-gap: 6px }
.einnet .big { display: inline-flex; flex-direction: column; align-items: center; margin-right: 9px }
.einnet .sym { font-size: 22px; line-height: 24px }
.einnet .loops .sym { font-style: italic }
.einnet .under { font-size: 11.5px; opacity: .7; display: flex; flex-wrap: wrap; gap: 0 6px; justify-content: center; max-width: 260px }
.einnet .tensor { font-weight: 600 }
.einnet .br, .einnet .op, .einnet .w, .einnet .new { white-space: pre }
.einnet .new { background: rgba(255,200,40,.32); border-radius: 3px }
.einnet sub { font-size: 70%; line-height: 0 }
.einnet .step { margin: .9em 0 .2em }
.einnet .meta { opacity: .7 }
.einnet code { font-size: 13px }
"""


@dataclass(frozen=True)
class Row:
    """One definition: the scope at `path`, called `name`; `words` are the pieces of its right side that are compared, as HTML."""

    name: str
    scope: Scope
    path: tuple[int, ...]
    words: tuple[str, ...]


Names = dict[Scope, int]
"""Numbers of scopes, kept over the steps of a derivation."""


def definitions(scope: Scope, names: Names | None = None, before: Sequence[Row] = ()) -> list[Row]:
    """A row for every distinct scope, innermost first; the last, Y, is the expression.

    A scope that differs from one of `before` only by what the scopes that it reads became keeps that one's name, and so
    does one that takes its place.
    """
    numbers = {} if names is None else names
    found = _distinct(scope, ())
    free = [r for r in before if r.path and r.scope not in found]
    for s, path in found.items():
        if path and s not in numbers:
            twin = next((r for r in free if frame(r.scope) == frame(s)), None) or next((r for r in free if r.path == path), None)
            if twin:
                free.remove(twin)
            numbers[s] = numbers[twin.scope] if twin else len(set(numbers.values())) + 1
    title = {s: f"T{numbers[s]}" if path else "Y" for s, path in found.items()}
    return [Row(title[s], s, path, tuple(_words(s, title))) for s, path in found.items()]


def _distinct(scope: Scope, path: tuple[int, ...]) -> dict[Scope, tuple[int, ...]]:
    found: dict[Scope, tuple[int, ...]] = {}
    for n, inner in enumerate(nested(scope)):
        for s, p in _distinct(inner, (*path, n)).items():
            found.setdefault(s, p)
    return {**found, scope: path}


def frame(scope: Scope) -> Scope:
    """The scope with the scopes that it reads made alike."""
    return replace(scope, body=map_reads(scope.body, lambda r: replace(r, base=Tensor("", ())) if isinstance(r.base, Scope) else r))


def unchanged(row: Row, other: Sequence[Row]) -> bool:
    """The other side has a definition that reads the same; what became of the scopes in it is shown in their own rows."""
    return any(row.name == q.name and row.words == q.words for q in other)


def rows_html(rows: Sequence[Row], other: Sequence[Row] | None = None) -> str:
    """The rows; where `other` is given, rows that it has not are marked, and in them the words that its nearest row has not."""
    gone = [q for q in other or () if not unchanged(q, rows)]
    return "".join(_row_html(r, other is not None and not unchanged(r, other), gone) for r in rows)


def _row_html(row: Row, changed: bool, gone: Sequence[Row]) -> str:
    twin = next((q for q in gone if q.path == row.path), gone[0] if gone else None) if changed else None
    kept = _common(row.words, twin.words) if twin else [True] * len(row.words)
    body = "".join(f'<span class="{"w" if keep else "new"}">{w}</span>' for w, keep in zip(row.words, kept))
    mark = " changed" if changed else ""
    return f'<div class="row{mark}"><span class="lhs">{name_html(row.name)}</span><span>=</span><span class="rhs">{body}</span></div>'


def _common(a: Sequence[str], b: Sequence[str]) -> list[bool]:
    """Which words of a stand in a longest common subsequence with b."""
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        for j in range(len(b) - 1, -1, -1):
            best[i][j] = best[i + 1][j + 1] + 1 if a[i] == b[j] else max(best[i + 1][j], best[i][j + 1])
    kept, i, j = [False] * len(a), 0, 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            kept[i] = True
            i, j = i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return kept


@HTML.define
def html(scope: Scope) -> str:
    """The expression on its own, with its styles."""
    return wrapped(rows_html(definitions(scope)))


def wrapped(body: str) -> str:
    """HTML with the styles that it needs."""
    return f'<div class="einnet"><style>{STYLE}</style>{body}</div>'


# ------------------------------------------------------------------------------------------------------------------- words


def name_html(name: str) -> str:
    """t1' is an italic t, an index 1 and a prime; longer names stand upright."""
    m = re.fullmatch(r"([A-Za-z.:]+)((?:_?\d+)*)('*)", name)
    if not m:
        return escape(name.replace("'", "′"))
    letters = f"<i>{m[1]}</i>" if len(m[1]) == 1 else m[1]
    return letters + (f"<sub>{m[2].lstrip('_').replace('_', ',')}</sub>" if m[2] else "") + "′" * len(m[3])


def _words(s: Scope, names: Mapping[Scope, str]) -> Iterator[str]:
    if s.loops:
        yield _big("L", s.loops, "loops")
    if s.sums or s.reduce != "sum":
        yield _big("Σ" if s.reduce == "sum" else s.reduce, s.sums, "sums")
    yield from _body(s.body, 0, names)


def _big(symbol: str, iters: tuple[Iter, ...], kind: str) -> str:
    under = " ".join(f"<span>{f'{i.lo}≤'.replace('-', '−') if i.lo else ''}{name_html(i.name)}&lt;{i.hi}</span>" for i in iters)
    return f'<span class="big {kind}"><span class="sym">{symbol}</span><span class="under">{under}</span></span>'


def _op(text: str) -> str:
    return f'<span class="op">{text}</span>'


def _body(b: Body, level: int, names: Mapping[Scope, str]) -> Iterator[str]:
    """`level` 0 in a sum, 1 in a product."""
    match b:
        case Const(v):
            yield _op(print_number(v).replace("-", "−"))
        case Val(e):
            yield _op(f"({index_html(e)})")
        case Read(base, index, fill):
            inner = isinstance(base, Scope)
            title = name_html(names[base] if isinstance(base, Scope) else base.name)
            yield f'<span class="{"def" if inner else "tensor"}">{title}</span><span class="br">[</span>'
            for n, e in enumerate(index):
                yield index_html(e) + ('<span class="br">, </span>' if n + 1 < len(index) else "")
            yield '<span class="br">]</span>' + ("" if fill == 0 else f"<sub>|{print_number(fill)}</sub>")
        case Add(args) if level > 0:
            yield _op("(")
            yield from _body(b, 0, names)
            yield _op(")")
        case Add(args):
            yield from _apart(args, " + ", 0, names)
        case Mul(args):
            yield from _apart(args, "\u2009", 1, names)
        case Div(num, den):
            yield from _body(num, 1, names)
            yield _op(" ∕ ")
            yield from _body(den, 1, names)
        case Call(name, args):
            yield _op(f"{name}(")
            yield from _apart(args, ", ", 0, names)
            yield _op(")")
        case Select(conds, then, other):
            yield _op("(" + " and ".join(f"{index_html(c.index)} {'=' if c.equal else '≥'} 0" for c in conds) + " ? ")
            yield from _body(then, 0, names)
            yield _op(" : ")
            yield from _body(other, 0, names)
            yield _op(")")


def _apart(bodies: Iterable[Body], by: str, level: int, names: Mapping[Scope, str]) -> Iterator[str]:
    """Bodies with a sign between them."""
    for n, b in enumerate(bodies):
        yield from [_op(by)] * (n > 0)
        yield from _body(b, level, names)


def index_html(e: Index) -> str:
    """An index function; floor divisions in their brackets."""
    text = ""
    for atom, c in sorted(e.terms, key=lambda term: term[1] < 0):
        shown = floor_html(atom) if isinstance(atom, Floor) else name_html(atom)
        text += ("−" if c < 0 else "+" if text else "") + ("" if abs(c) == 1 else str(abs(c))) + shown
    if e.const or not text:
        text += f"{e.const:+d}".replace("-", "−") if text else str(e.const).replace("-", "−")
    return text if e.den == 1 else f"({text})∕{e.den}"


def floor_html(f: Floor) -> str:
    """⌊h∕2⌋ or ⌊(h+1)∕2⌋."""
    inner = index_html(f.num)
    return f"⌊{inner}∕{f.den}⌋" if len(f.num.terms) == 1 and not f.num.const else f"⌊({inner})∕{f.den}⌋"
