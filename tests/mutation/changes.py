"""Small changes of Python functions: one each, of the kinds that slips of the hand make."""

from __future__ import annotations

import ast
import inspect
import pickle
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import CodeType

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Pow: ast.Mult,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "flatnonzero": "nonzero", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True, slots=True)
class Change:
    """Where and what; the code of the outermost function that it changes, before and after, or the name and value of a constant of the module."""

    line: int
    what: str
    function: str
    codes: tuple[CodeType, CodeType] | None = None
    value: int | float | None = None


def changes(source: str, path: str, within: Container[str] | None = None) -> Iterator[Change]:
    """All changes of the functions of a module, in the order of its lines, and of its constants that are numbers.

    What is the same text again in a function is told apart by a number. Where only some functions and classes matter, `within` has their names:
    the others are passed over, since most of the time goes into compiling them.
    """
    seen: Counter[tuple[str, str]] = Counter()
    tree = ast.parse(source)
    known = iter(_codes(compile(source, path, "exec")))
    for top in tree.body:
        part = ast.Module([top], [])
        if within is not None and isinstance(top, (ast.FunctionDef, ast.ClassDef)) and top.name not in within:
            deque(islice(known, len(_codes(compile(part, path, "exec")))), 0)
            continue
        for node, what, pair in _changes(part, path, known):
            name = pair[0].co_qualname
            seen[name, what] += 1
            yield Change(node.lineno, what if seen[name, what] == 1 else f"{what} ({seen[name, what]})", name, pair)
    for line, name, words, value in _constants(tree):
        yield Change(line, words, name, value=value)


def told(source: str) -> list[tuple[str, str]]:
    """The function and the words of all changes, as `changes` tells them, without making any: nothing is compiled."""
    seen: Counter[tuple[str, str]] = Counter()
    found: list[tuple[str, str]] = []
    tree = ast.parse(source)
    for name, what in ((name, words()) for name, (_, words, _) in _owned(tree, "")):
        seen[name, what] += 1
        found.append((name, what if seen[name, what] == 1 else f"{what} ({seen[name, what]})"))
    return found + [(name, what) for _, name, what, _ in _constants(tree)]


def _owned(node: ast.AST, within: str) -> Iterator[tuple[str, Site]]:
    """What can be changed, by the qualified name of the outermost function that it stands in."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
        yield from ((within + name, site) for site in _sites(node))
        return
    for child in ast.iter_child_nodes(node):
        yield from _owned(child, f"{within}{node.name}." if isinstance(node, ast.ClassDef) else within)


def _constants(tree: ast.Module) -> Iterator[tuple[int, str, str, int | float]]:
    """The changes of constants of a module that are numbers: the line, the name, the words and the new value."""
    for top in tree.body:
        match top:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _number(value) is not None:
                doubled = 2 * (_number(value) or 1)
                yield top.lineno, name, f"{name} = {ast.unparse(value)} -> {doubled}", doubled


def _changes(part: ast.Module, path: str, known: Iterator[CodeType]) -> Iterator[tuple[ast.expr | ast.stmt, str, tuple[CodeType, CodeType]]]:
    """The changes of one statement of a module, which is compiled alone: most of a module is other functions.

    `known` has the codes of the module itself, those of this statement next: compiled alone they may have other instructions.
    """
    before = _codes(compile(part, path, "exec"))
    own = list(islice(known, len(before)))
    stored = pickle.dumps(part)
    for number, (node, told, _) in enumerate(_sites(part)):
        what = told()
        changed = pickle.loads(stored)
        next(change for n, (_, _, change) in enumerate(_sites(changed)) if n == number)()
        pair = _pair(own, before, _codes(compile(ast.fix_missing_locations(changed), path, "exec")))
        if pair is not None:
            yield node, what, pair


def _number(node: ast.expr) -> int | float | None:
    """The value of an expression of numbers alone."""
    if any(not isinstance(n, (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)) for n in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "", "eval"), {})
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


Site = tuple[ast.expr | ast.stmt, Callable[[], str], Callable[[], None]]


def _sites(node: ast.AST) -> Iterator[Site]:
    """What can be changed within functions, methods, and lambdas outside of them: a node, words (made when asked), and the change itself."""
    if isinstance(node, ast.FunctionDef):
        for statement in node.body:
            yield from _of(statement, node)
    elif isinstance(node, ast.Lambda):
        yield from _of(node.body, node)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _sites(child)


def _of(node: ast.AST, parent: ast.AST) -> Iterator[Site]:
    if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr)):
        return
    if isinstance(node, ast.AnnAssign):
        yield from (_of(node.value, node) if node.value is not None else ())
        return
    if isinstance(node, ast.stmt):
        yield from _statement(node, parent)
    elif isinstance(node, ast.expr):
        yield from _expression(node, parent)
    for child in ast.iter_child_nodes(node):
        yield from _of(child, node)


def _statement(node: ast.stmt, parent: ast.AST) -> Iterator[Site]:
    match node:
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node, lambda: f"return {ast.unparse(value)} -> return None", lambda: setattr(node, "value", ast.Constant(None))
        case ast.AugAssign() | ast.Continue() | ast.Break():
            yield node, lambda: f"{ast.unparse(node)} -> pass", lambda: _replace(parent, node, ast.Pass())
        case ast.Expr(value=ast.Call()):
            yield node, lambda: f"{ast.unparse(node)} -> pass", lambda: _replace(parent, node, ast.Pass())
        case ast.If(test=test) if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            yield node, lambda: f"if {ast.unparse(test)} -> if not", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))


def _expression(node: ast.expr, parent: ast.AST) -> Iterator[Site]:
    def text() -> str:
        return ast.unparse(node)

    match node:
        case ast.Compare(ops=ops):
            for n, op in enumerate(ops):
                new = _COMPARISONS[type(op)]
                yield node, lambda op=op, new=new: f"{text()}: {type(op).__name__} -> {new.__name__}", lambda n=n, new=new: ops.__setitem__(n, new())
        case ast.BoolOp(op=op):
            other = ast.Or if isinstance(op, ast.And) else ast.And
            yield node, lambda: f"{text()} -> {other.__name__.lower()}", lambda: setattr(node, "op", other())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, lambda: f"{text()} -> without not", lambda: _replace(parent, node, operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield node, lambda: f"{text()} -> without sign", lambda: _replace(parent, node, operand)
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            changed = _OPERATORS[type(op)]
            yield node, lambda: f"{text()}: {type(op).__name__} -> {changed.__name__}", lambda: setattr(node, "op", changed())
        case ast.Constant(value=bool() as value):
            yield node, lambda: f"{value} -> {not value}", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() as value):
            yield node, lambda: f"{value} -> {value + 1}", lambda: setattr(node, "value", value + 1)
        case ast.IfExp(test=test):
            yield node, lambda: f"{text()} -> not", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Call(func=ast.Name(id=name) as function) if name in _NAMES:
            yield node, lambda: f"{text()} -> {_NAMES[name]}", lambda: setattr(function, "id", _NAMES[name])


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for name, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, name, new)
        elif isinstance(value, list):
            for n, item in enumerate(value):
                if item is old:
                    value[n] = new


def _pair(own: Sequence[CodeType], before: Sequence[CodeType], after: Sequence[CodeType]) -> tuple[CodeType, CodeType] | None:
    """The outermost functions that differ; classes only hold them."""
    for code, a, b in zip(own, before, after, strict=True):
        if a != b:
            return (code, b) if a.co_flags & inspect.CO_OPTIMIZED else _pair(*map(_codes, (code, a, b)))
    return None


def _codes(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if isinstance(c, CodeType)]
