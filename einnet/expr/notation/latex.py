"""Expressions as LaTeX, in the notation of the paper."""

from __future__ import annotations

from einnet.expr.index import Index
from einnet.expr.nodes import LATEX, Add, Body, Call, Const, Div, Iter, Mul, Number, Read, Scope, Select, Tensor, Val
from einnet.expr.notation.printing import print_number

_COMMA = ",\\, "
_RELATION = {True: "= 0", False: r"\ge 0"}


@LATEX.define
def latex(scope: Scope) -> str:
    r"""The scope as a LaTeX formula without delimiters: `\mathop{L}_{..} \sum_{..} ..`."""
    text = rf"\mathop{{\mathrm{{L}}}}_{{{_iters(scope.loops)}}}\ "
    if scope.sums or scope.reduce != "sum":
        text += (r"\sum" if scope.reduce == "sum" else rf"\{scope.reduce}") + rf"_{{{_iters(scope.sums)}}} "
    return text + _body(scope.body, 0)


def _iters(iters: tuple[Iter, ...]) -> str:
    return _COMMA.join((rf"{name_latex(i.name)}<{i.hi}" if i.lo == 0 else rf"{i.lo}\le {name_latex(i.name)}<{i.hi}") for i in iters)


def name_latex(name: str) -> str:
    """Letters in italics, longer names upright, a trailing number as an index, primes kept."""
    stem = name.rstrip("'")
    primes = name[len(stem) :]
    letters = stem.rstrip("0123456789")
    number = stem[len(letters) :].strip("_")
    letters = letters.rstrip("_").replace("_", r"\_")
    shown = letters if len(letters) == 1 else rf"\mathrm{{{letters}}}"
    return shown + primes + (f"_{{{number}}}" if number else "")


def _index(e: Index) -> str:
    text = ""
    for atom, c in e.terms:
        shown = name_latex(atom) if isinstance(atom, str) else rf"\lfloor {_index(atom.num)} / {atom.den} \rfloor"
        sign = "-" if c < 0 else "+" if text else ""
        text += f"{sign}{'' if abs(c) == 1 else abs(c)}{shown}"
    if e.const or not text:
        text += f"{e.const:+d}" if text else str(e.const)
    return text if e.den == 1 else rf"\frac{{{text}}}{{{e.den}}}"


def _number(v: Number) -> str:
    text = print_number(v)
    if text.endswith("inf"):
        return text.replace("inf", r"\infty")
    if "/" in text:
        sign, (num, den) = ("-" if text.startswith("-") else ""), text.lstrip("-").split("/")
        return rf"{sign}\tfrac{{{num}}}{{{den}}}"
    return text


def _body(b: Body, level: int) -> str:
    """`level` 0 in a sum, 1 in a product."""
    match b:
        case Const(v):
            return _number(v) if level == 0 or v >= 0 else rf"\left({_number(v)}\right)"
        case Val(e):
            return rf"\left({_index(e)}\right)"
        case Read(base, index, fill):
            name = name_latex(base.name) if isinstance(base, Tensor) else rf"\left\{{{latex(base)}\right\}}"
            tail = "" if fill == 0 else rf"\big|_{{{_number(fill)}}}"
            return f"{name}[{_COMMA.join(map(_index, index))}]{tail}"
        case Add(args):
            text = " + ".join(_body(a, 0) for a in args).replace("+ -", "- ")
            return rf"\left({text}\right)" if level else text
        case Mul(args):
            return r"\, ".join(_body(a, 1) for a in args)
        case Div(num, den):
            return rf"\frac{{{_body(num, 0)}}}{{{_body(den, 0)}}}"
        case Call(name, args):
            return rf"\operatorname{{{name}}}\left({', '.join(_body(a, 0) for a in args)}\right)"
        case Select(conds, then, other):
            where = r",\ ".join(f"{_index(c.index)} {_RELATION[c.equal]}" for c in conds)
            return rf"\begin{{cases}} {_body(then, 0)} & {where} \\ {_body(other, 0)} & \text{{else}} \end{{cases}}"
    raise TypeError(f"not a body: {b!r}")
