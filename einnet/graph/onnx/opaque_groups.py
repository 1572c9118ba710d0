"""Which nodes run together: values that are no tensors of static shape stay inside one opaque node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from einnet.graph.onnx.flat import FlatNode
from einnet.graph.onnx.infer import Fact


def live(nodes: Sequence[FlatNode], outputs: Iterable[Fact]) -> list[FlatNode]:
    """The nodes that the outputs depend on, in order."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.reads.values())
    return kept[::-1]


class Groups:
    """A partition of the nodes such that only tensors cross and the parts have an order."""

    def __init__(self, nodes: Sequence[FlatNode]) -> None:
        self.nodes = nodes
        self.parent = list(range(len(nodes)))
        producer = {fact: n for n, node in enumerate(nodes) for fact in node.outputs if fact is not None}
        self.edges = [
            (producer[fact], n, fact) for n, node in enumerate(nodes) for fact in set(node.reads.values()) if fact in producer and fact.value is None
        ]
        self.edges.sort(key=lambda e: (e[0], e[1]))
        for a, b, fact in self.edges:
            if not fact.crosses:
                self.join(a, b)
        while self.close():
            pass

    def find(self, n: int) -> int:
        while self.parent[n] != n:
            self.parent[n] = self.parent[self.parent[n]]
            n = self.parent[n]
        return n

    def join(self, a: int, b: int) -> None:
        a, b = sorted((self.find(a), self.find(b)))
        self.parent[b] = a

    def neighbours(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """Successors and predecessors of the parts."""
        after: dict[int, set[int]] = {}
        before: dict[int, set[int]] = {}
        for a, b, _ in self.edges:
            x, y = self.find(a), self.find(b)
            if x != y:
                after.setdefault(x, set()).add(y)
                before.setdefault(y, set()).add(x)
        return after, before

    def close(self) -> bool:
        """Take into a part what lies on a path out of it and back; whether anything was taken."""
        after, before = self.neighbours()
        members: dict[int, int] = {}
        for n in range(len(self.nodes)):
            members[self.find(n)] = members.get(self.find(n), 0) + 1
        for part in [p for p, count in members.items() if count > 1]:
            between = reachable(part, after) & reachable(part, before)
            for other in between - {part}:
                self.join(part, other)
            if between - {part}:
                return True
        return False

    def ordered(self) -> list[list[FlatNode]]:
        """The parts, producers first, otherwise in the order of the model."""
        after, before = self.neighbours()
        waiting = {p: len(q) for p, q in before.items()}
        parts: dict[int, list[FlatNode]] = {}
        for n, node in enumerate(self.nodes):
            parts.setdefault(self.find(n), []).append(node)
        ready: list[int] = []
        for part in parts:
            if not waiting.get(part):
                heappush(ready, part)
        result = []
        while ready:
            part = heappop(ready)
            result.append(parts[part])
            for follower in after.get(part, ()):
                waiting[follower] -= 1
                if not waiting[follower]:
                    heappush(ready, follower)
        assert len(result) == len(parts)
        return result


def reachable(start: int, edges: dict[int, set[int]]) -> set[int]:
    """What a walk along the edges meets."""
    found: set[int] = set()
    stack = [start]
    while stack:
        for n in edges.get(stack.pop(), ()):
            if n not in found:
                found.add(n)
                stack.append(n)
    return found
