"""Replace some nodes of a program by others, under the conditions that keep it the same program elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from einnet.expr.nodes import Tensor
from einnet.graph.program import Program, ProgramNode
from einnet.graph.toposort import order


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a replacement was not made."""

    why: str


def substitute(program: Program, old: Sequence[ProgramNode], new: Sequence[ProgramNode]) -> Program | Refused:
    """The program with `new` in place of `old`.

    A tensor that `old` computed and that is used elsewhere, or given out, must be computed by `new` with the same shape and type; tensors
    that are new must have new names; `new` may not read what depends on its own results.
    """
    removed = {id(node) for node in old}
    kept = [node for node in program.nodes if id(node) not in removed]
    if len(program.nodes) - len(kept) != len(removed):
        return Refused("a node to replace is not in the program")
    used = {name for node in kept for name in node.inputs} | {name for _, name in program.outputs}
    known = {t.name for t in program.inputs} | {t.name for node in kept for t in node.outputs} | set(program.weights)
    why = _lost(old, made(new), used) or _misplaced(new, known)
    if why:
        return Refused(why)
    first = next((k for k, node in enumerate(program.nodes) if id(node) in removed), len(kept))
    ordered = in_order([*kept[:first], *new, *kept[first:]])
    if ordered is None:
        return Refused("a new node depends on its own result")
    return replace(program, nodes=tuple(ordered))


def made(nodes: Sequence[ProgramNode]) -> dict[str, Tensor]:
    """What nodes compute, by name."""
    return {t.name: t for node in nodes for t in node.outputs}


def _lost(old: Sequence[ProgramNode], by_new: Mapping[str, Tensor], used: Collection[str]) -> str:
    """What the rest of the program would no longer find, or find otherwise; empty for nothing."""
    for name, before in made(old).items():
        after = by_new.get(name)
        if after is None and name in used:
            return f"{name} is used outside and no longer computed"
        if after is not None and (after.shape, after.dtype) != (before.shape, before.dtype):
            return f"{name} changes from {before.dtype}{list(before.shape)} to {after.dtype}{list(after.shape)}"
    return ""


def _misplaced(new: Sequence[ProgramNode], known: Collection[str]) -> str:
    """Which new name is not new, or what the nodes read that there is not; empty where all fits."""
    results = made(new)
    if len(results) != sum(len(node.outputs) for node in new):
        return "two of the new nodes compute a tensor of the same name"
    clashes = sorted(results.keys() & known)
    if clashes:
        return f"{clashes[0]} is computed elsewhere already"
    missing = sorted({name for node in new for name in node.inputs}.difference(known, results))
    return f"{missing[0]} is not computed by any node" if missing else ""


def in_order(nodes: Sequence[ProgramNode]) -> list[ProgramNode] | None:
    """Producers first, otherwise in the given order; None if there is a cycle."""
    producer = {t.name: k for k, node in enumerate(nodes) for t in node.outputs}
    before = [{producer[name] for name in node.inputs if name in producer} for node in nodes]
    found = order(before)
    return None if found is None else [nodes[k] for k in found]
