"""Subprograms that may be computed together, by the structure of the program alone: what they share, and that none depends on another.

Two kinds. A group that one of its members gathers (branches that are added up, with what leads to them) has one output, and is one expression.
Members whose results go different ways get a joint tensor, of which the results are windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, fresh, indices, make_add, tensors
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.replace_nodes import Refused, substitute
from einnet.graph.rewrite import Fresh
from einnet.graph.split import Subprogram, combine, is_contraction

MOST_PARTS = 8


@dataclass(frozen=True)
class Bundle:
    """`joint` computes what the parts compute; each window is a part's result as a read of the joint tensor (none where one result leaves)."""

    parts: tuple[Subprogram, ...]
    joint: Subprogram
    windows: tuple[Node, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The results of the parts: what the bundle is known by."""
        return frozenset(p.output.name for p in self.parts)


def bundles(program: Program, parts: Sequence[Subprogram]) -> list[Bundle]:
    """All candidates, larger ones first; they may overlap."""
    graph = _Graph(program, parts)
    found = [*_gathered(graph), *_windowed(graph)]
    return sorted(found, key=lambda b: -len(b.parts))


def replaced(program: Program, bundle: Bundle) -> Program | Refused:
    """The program with the bundle's joint node and windows in place of the parts' nodes, under the conditions of `substitute`."""
    old = [node for part in bundle.parts for node in part.nodes]
    return substitute(program, old, [Node(bundle.joint.output, bundle.joint.expression, bundle.joint.origin), *bundle.windows])


class _Graph:
    """The contractions among the parts, who uses them, and what depends on what."""

    def __init__(self, program: Program, parts: Sequence[Subprogram]) -> None:
        self.program = program
        self.outputs = {tensor for _, tensor in program.outputs}
        self.position = {id(node): k for k, node in enumerate(program.nodes)}
        self.parts = [p for p in parts if any(is_contraction(n.scope) for n in p.nodes)]
        self.by_output = {p.output.name: p for p in self.parts}
        self.users: dict[str, list[ProgramNode]] = program.users()
        self.place = {t.name: k for k, node in enumerate(program.nodes) for t in node.outputs}
        self.above: list[int] = []
        """For each node, a bit for each node that it needs: sets of names would take memory with the square of the nodes."""
        for node in program.nodes:
            self.above.append(self.needs(node.inputs))
        self.data = {p.output.name: self._data(p) for p in self.parts}
        self.readers: dict[Tensor, list[Subprogram]] = {}
        for p in self.parts:
            for tensor in self.data[p.output.name]:
                self.readers.setdefault(tensor, []).append(p)

    def _data(self, part: Subprogram) -> tuple[Tensor, ...]:
        """What its contractions read from outside and is no weight."""
        inside = {n.output.name for n in part.nodes}
        found = (t for n in part.nodes if is_contraction(n.scope) for t in tensors(n.scope).values())
        return tuple(dict.fromkeys(t for t in found if not t.weight and t.name not in inside))

    def independent(self, a: Subprogram, b: Subprogram) -> bool:
        """Neither needs the other's result."""
        (of_a, of_b) = (1 << self.place[p.output.name] for p in (a, b))
        return not (of_a & self.needs(b.inputs) or of_b & self.needs(a.inputs))

    def needs(self, names: Iterable[str]) -> int:
        """The nodes that tensors of these names need, a bit for each."""
        found = 0
        for k in (self.place[x] for x in names if x in self.place):
            found |= self.above[k] | 1 << k
        return found

    def used_within(self, part: Subprogram, group: Sequence[Subprogram]) -> bool:
        """Its result is used by nodes of the group and by nothing else."""
        inside = {id(n) for p in group for n in p.nodes}
        users = self.users.get(part.output.name, [])
        return bool(users) and part.output.name not in self.outputs and all(id(u) in inside for u in users)

    def combined(self, group: Sequence[Subprogram]) -> Subprogram:
        return combine(sorted((n for p in group for n in p.nodes), key=lambda n: self.position[id(n)]))


def _gathered(graph: _Graph) -> Iterator[Bundle]:
    """A part with those whose results only its pointwise nodes use; and that with the producers of both that share an input."""
    for sink in graph.parts:
        data = {t.name for t in graph.data[sink.output.name]}
        side = [graph.by_output[x] for x in sink.inputs if x in graph.by_output and x not in data]
        group = [sink, *(p for p in side if graph.used_within(p, (sink,)) and p.output.shape == sink.output.shape)]
        if len(group) < 2 or len(group) > MOST_PARTS:
            continue
        yield Bundle(tuple(group), graph.combined(group))
        more = _producers(graph, group)
        if len(more) > 1 and len(group) + len(more) <= MOST_PARTS:
            yield Bundle((*more, *group), graph.combined((*more, *group)))


def _producers(graph: _Graph, group: Sequence[Subprogram]) -> list[Subprogram]:
    """What makes the data of a group for it alone, and reads a tensor that another one of these reads."""
    above = [graph.by_output.get(t.name) for p in group for t in graph.data[p.output.name]]
    found = [p for p in dict.fromkeys(above) if p is not None and p not in group and graph.used_within(p, group)]
    readers = Counter(t for p in found for t in graph.data[p.output.name])
    return [p for p in found if any(readers[t] > 1 for t in graph.data[p.output.name])]


def _windowed(graph: _Graph) -> Iterator[Bundle]:
    """Parts that read one tensor: laid end to end along the last axis, or, where their results are of one shape, stacked."""
    name: Callable[[str], str] = Fresh(graph.program)
    for all_readers in graph.readers.values():
        readers = [p for p in all_readers if p.output.dtype == "f32" and p.output.shape]
        for _, alike in groupby(sorted(readers, key=lambda p: p.output.shape[:-1]), key=lambda p: p.output.shape[:-1]):
            group: list[Subprogram] = []
            for part in alike:
                if len(group) < MOST_PARTS and all(graph.independent(part, other) for other in group):
                    group.append(part)
            if len(group) > 1:
                yield laid_out(group, name("joint"), len(group[0].output.shape) - 1)
                if len({p.output.shape for p in group}) == 1:
                    yield laid_out(group, name("joint"), None)


def laid_out(parts: Sequence[Subprogram], name: str, axis: int | None) -> Bundle:
    """The bundle whose joint tensor has the parts' results end to end along an axis, or stacked along a new first one."""
    shape = parts[0].output.shape
    taken = {i.name for p in parts for i in (*p.expression.loops, *p.expression.sums)}
    batch = fresh("b", taken)
    whole = (len(parts), *shape) if axis is None else (*shape[:axis], sum(p.output.shape[axis] for p in parts), *shape[axis + 1 :])
    loops = tuple(Iter(fresh(f"i{k}", taken), 0, n) for k, n in enumerate(whole))
    joint = Tensor(name, whole)
    terms: list[Body] = []
    windows: list[Node] = []
    begin = 0
    for p in parts:
        e = p.expression
        part = e if axis is not None else Scope((Iter(batch, 0, 1), *e.loops), e.sums, e.body, e.reduce)
        along = axis or 0
        terms.append(Read(part, tuple(var(i.name) - begin if k == along else var(i.name) for k, i in enumerate(loops))))
        here = indices(e.loops)
        at = (Index((), begin), *here) if axis is None else tuple(ix + begin if k == axis else ix for k, ix in enumerate(here))
        windows.append(Node(p.output, Scope(e.loops, (), Read(joint, at)), p.origin))
        begin += part.loops[along].extent
    expression = Scope(loops, (), make_add(terms))
    origin = tuple(dict.fromkeys(x for p in parts for x in p.origin))
    return Bundle(tuple(parts), Subprogram((Node(joint, expression, origin),), joint, expression), tuple(windows))

