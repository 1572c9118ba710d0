"""The data flow of an expression as a picture (SVG): tensors as pills, scopes as boxes, operands left and the result right."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import log10, prod

from einnet.expr.nodes import Read, Scope, Tensor, is_weight, reads
from einnet.expr.notation.tags import tag

WIDTH, HEIGHT, GAP, ROW = 128, 44, 46, 58
STYLE = (
    ".ein-p text{font:600 12px system-ui,sans-serif;text-anchor:middle;fill:currentColor}.ein-p .d{font-weight:400;font-size:11px;opacity:.7}"
    ".ein-p rect{fill:none;stroke:currentColor;stroke-opacity:.55}.ein-p .product rect{fill:#2f6fde;fill-opacity:.18;stroke:#2f6fde;stroke-opacity:1}"
    ".ein-p .reduce rect{fill:#d9822b;fill-opacity:.18;stroke:#d9822b;stroke-opacity:1}.ein-p .weight rect{stroke-dasharray:4 3}"
    ".ein-p path{fill:none;stroke:currentColor;stroke-opacity:.45}"
)


@dataclass
class Node:
    """A tensor or a scope. `kind` is "tensor", "product" (a sum of products), "reduce", "copy" or "map"."""

    kind: str
    title: str
    dims: tuple[int, ...]
    sums: tuple[int, ...]
    weight: bool
    column: int
    row: int = 0

    @property
    def size(self) -> int:
        return max(prod(self.dims), 1)


def flow(scope: Scope) -> tuple[list[Node], list[tuple[int, int]]]:
    """Every distinct tensor and scope once, operands before those that read them, and who reads whom."""
    nodes: list[Node] = []
    edges: dict[tuple[int, int], None] = {}
    known: dict[Scope | Tensor, int] = {}

    def visit(base: Scope | Tensor) -> int:
        if base in known:
            return known[base]
        operands = [visit(r.base) for r in reads(base.body)] if isinstance(base, Scope) else []
        nodes.append(_node(base, max((nodes[o].column for o in operands), default=-1) + 1))
        known[base] = len(nodes) - 1
        edges.update(dict.fromkeys((o, len(nodes) - 1) for o in operands))
        return known[base]

    visit(scope)
    for n, node in enumerate(nodes):
        node.row = sum(other.column == node.column for other in nodes[:n])
    return nodes, list(edges)


def _node(base: Scope | Tensor, column: int) -> Node:
    if isinstance(base, Tensor):
        return Node("tensor", base.name, base.shape, (), base.weight or base.values is not None, column)
    operands = list(reads(base.body))
    kind = ("product" if len(operands) > 1 else "reduce") if base.sums else "copy" if isinstance(base.body, Read) else "map"
    symbol = "Σ" if base.reduce == "sum" else base.reduce
    title = {"product": f"{symbol} ·", "reduce": symbol, "copy": "copy", "map": "ƒ"}[kind]
    return Node(kind, title, base.shape, tuple(i.extent for i in base.sums), is_weight(base) and bool(operands), column)


def svg(scope: Scope) -> str:
    """The picture; wires are thicker where more elements flow, weights are dashed. Colours follow the text around it."""
    nodes, edges = flow(scope)
    counts = [sum(n.column == column for n in nodes) for column in range(nodes[-1].column + 1)]
    height, width = max(counts) * ROW, len(counts) * (WIDTH + GAP) - GAP
    x = [n.column * (WIDTH + GAP) for n in nodes]
    y = [(n.row + 0.5) / counts[n.column] * height for n in nodes]
    parts = []
    for a, b in edges:
        x1, x2 = x[a] + WIDTH, x[b]
        mid = (x1 + x2) / 2
        thick = 0.8 + log10(nodes[a].size) / 2
        parts.append(tag("path", stroke_width=thick, d=f"M{x1} {y[a]:.1f}C{mid} {y[a]:.1f} {mid} {y[b]:.1f} {x2} {y[b]:.1f}"))
    for n, node in enumerate(nodes):
        parts.append(_box(node, x[n], y[n] - HEIGHT / 2))
    size = {"viewBox": f"-2 -2 {width + 4} {height + 4}", "width": width + 4, "height": height + 4}
    about = {"role": "img", "aria_label": f"data flow of {scope.text()}", "style": "max-width:100%"}
    return tag("svg", tag("style", STYLE) + "".join(parts), xmlns="http://www.w3.org/2000/svg", class_="ein-p", **about, **size)


def _box(node: Node, x: int, y: float) -> str:
    """A node at its place; long dimensions are set narrower."""
    over, dims = tag("tspan", f" over {_times(node.sums)}", class_="d") if node.sums else "", _times(node.dims)
    narrow = {"textLength": WIDTH - 10, "lengthAdjust": "spacingAndGlyphs"} if len(dims) > 20 else {}
    shape = tag("rect", width=WIDTH, height=HEIGHT, rx=22 if node.kind == "tensor" else 6)
    title = tag("text", escape(node.title) + over, x=WIDTH // 2, y=18)
    kind = f"{node.kind} weight" if node.weight else node.kind
    return tag("g", shape + title + tag("text", dims, class_="d", x=WIDTH // 2, y=34, **narrow), class_=kind, transform=f"translate({x} {y:.1f})")


def _times(extents: tuple[int, ...]) -> str:
    return "×".join(map(str, extents)) or "1"
