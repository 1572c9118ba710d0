"""How much one function decides: at most `MOST` branches, so that what it does can be told in a few steps. Part of `make lint`, by `tests.rooms`.

A branch is what a reader has to take both ways: `if` and `elif`, loops, handlers and cases, conditional expressions, each further operand of `and`
and `or`, and in comprehensions each `for` and each `if`. Functions and classes inside a function count for themselves; what has no branch has 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("einnet", "benchmarks", "tests", "docs")
MOST = 20

BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def branches(function: Function) -> int:
    count = 1
    left: list[ast.AST] = list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            count += own(node)
            left += ast.iter_child_nodes(node)
    return count


def own(node: ast.AST) -> int:
    """The branches that a node adds to those of what stands in it."""
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return 1 + len(node.ifs) if isinstance(node, ast.comprehension) else int(isinstance(node, BRANCHES))


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Every function of a module, under the names of what it stands in too."""
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        name = f"{within}.{node.name}".lstrip(".") if named else within
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield name, node
        yield from functions(node, name)


def large(root: Path = ROOT) -> dict[str, int]:
    """The functions that have more branches than `MOST`, by file and name."""
    found = {}
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*.py")):
        for name, function in functions(ast.parse(path.read_text())):
            count = branches(function)
            if count > MOST:
                found[f"{path.relative_to(root).as_posix()}: {name}"] = count
    return found


def problems(root: Path = ROOT) -> list[str]:
    """What is to be said of functions that decide too much."""
    return [f"{name} has {n} branches, {MOST} at most" for name, n in large(root).items()]
