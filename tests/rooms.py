"""The picture of imports: python -m tests.rooms prints it, and fails where it is none that can be drawn. Part of `make lint`.

Rooms are the folders of `einnet/`. An import inside a function, or for type checkers alone, counts as any other: what is hidden is still needed to
understand a module.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import branches

ROOT = Path(__file__).resolve().parent.parent
MOST_ROOMS, MOST_MODULES = 10, 20
"""Rooms at most, and modules that stand side by side in one folder at most."""

Graph = dict[str, set[str]]


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the package by dotted name."""
    found = {}
    for path in sorted((root / "einnet").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """The modules of the package that a module imports anywhere."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in whole]
        yield from (name for name in names if name in known)


def graph(root: Path = ROOT) -> Graph:
    """What every module imports. The package's own front, which names the public functions, is above all of them."""
    known = {name: path for name, path in modules(root).items() if name != "einnet"}
    return {name: set(imported(ast.parse(path.read_text()), known)) - {name} for name, path in known.items()}


def cycles(edges: Graph) -> list[list[str]]:
    """Groups of nodes that reach each other."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(node: str, edges: Graph, into: list[str]) -> None:
        stack = [(node, iter(sorted(edges[node])))]
        seen.add(node)
        while stack:
            at, rest = stack[-1]
            following = next((n for n in rest if n not in seen), None)
            if following is None:
                into.append(at)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(edges[following]))))

    for node in edges:
        if node not in seen:
            visit(node, edges, order)
    back: Graph = {node: set() for node in edges}
    for node, targets in edges.items():
        for target in targets:
            back[target].add(node)
    seen.clear()
    found = []
    for node in reversed(order):
        if node not in seen:
            group: list[str] = []
            visit(node, back, group)
            found += [sorted(group)] if len(group) > 1 else []
    return found


def room(module: str) -> str:
    """The folder of a module below `einnet/`; modules beside the folders are rooms of their own."""
    return module.split(".")[1]


def rooms(edges: Graph) -> Graph:
    """What every room imports of others; `errors` and the settings of the environment, which everybody may use, are left out."""
    found: Graph = defaultdict(set)
    for module, targets in edges.items():
        if "." in module.removeprefix("einnet."):
            found[room(module)] |= {room(t) for t in targets if "." in t.removeprefix("einnet.")} - {room(module)}
    return dict(found)


def crowded(root: Path = ROOT) -> dict[str, int]:
    """Folders in which too many modules stand side by side."""
    counts: dict[str, int] = defaultdict(int)
    for path in modules(root).values():
        counts[str(path.parent.relative_to(root))] += path.name != "__init__.py"
    return {folder: n for folder, n in counts.items() if n > MOST_MODULES}


def problems(root: Path = ROOT) -> list[str]:
    """What is wrong with the picture."""
    edges = graph(root)
    drawn = rooms(edges)
    found = [f"these modules import each other: {', '.join(group)}" for group in cycles(edges)]
    found += [f"these rooms import each other: {', '.join(group)}" for group in cycles(drawn)]
    found += [f"{len(drawn)} rooms, {MOST_ROOMS} at most: {', '.join(sorted(drawn))}"] if len(drawn) > MOST_ROOMS else []
    return found + [f"{folder} holds {n} modules, {MOST_MODULES} at most" for folder, n in crowded(root).items()]


def picture(drawn: Graph) -> list[str]:
    """The rooms, each above all that it imports."""
    lines, placed = [], set[str]()
    while len(placed) < len(drawn):
        ready = sorted(r for r in drawn if r not in placed and drawn[r] <= placed)
        if not ready:
            return [*lines, "and some that import each other"]
        lines += [f"{r:<12} {', '.join(sorted(drawn[r]))}" for r in ready]
        placed |= set(ready)
    return lines[::-1]


if __name__ == "__main__":
    wrong = [*problems(), *branches.problems()]
    print("\n".join([*picture(rooms(graph())), *wrong]))
    sys.exit(bool(wrong))
