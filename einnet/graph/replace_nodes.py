"""Replace some nodes of a program by others, under the conditions that keep it the same program elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    gone = {t.name: t for node in old for t in node.outputs}
    made = {t.name: t for node in new for t in node.outputs}
    if len(made) != sum(len(node.outputs) for node in new):
        return Refused("two of the new nodes compute a tensor of the same name")
    used = {name for node in kept for name in node.inputs} | {name for _, name in program.outputs}
    for name, tensor in gone.items():
        if name in used and name not in made:
            return Refused(f"{name} is used outside and no longer computed")
        if name in made and (made[name].shape, made[name].dtype) != (tensor.shape, tensor.dtype):
            return Refused(f"{name} changes from {tensor.dtype}{list(tensor.shape)} to {made[name].dtype}{list(made[name].shape)}")
    known = {t.name for t in program.inputs} | {t.name for node in kept for t in node.outputs} | set(program.weights)
    clashes = sorted(made.keys() & known)
    if clashes:
        return Refused(f"{clashes[0]} is computed elsewhere already")
    missing = sorted({name for node in new for name in node.inputs} - known - made.keys())
    if missing:
        return Refused(f"{missing[0]} is not computed by any node")
    first = next((k for k, node in enumerate(program.nodes) if id(node) in removed), len(kept))
    ordered = in_order([*kept[:first], *new, *kept[first:]])
    if ordered is None:
        return Refused("a new node depends on its own result")
    return replace(program, nodes=tuple(ordered))


def in_order(nodes: Sequence[ProgramNode]) -> list[ProgramNode] | None:
    """Producers first, otherwise in the given order; None if there is a cycle."""
    producer = {t.name: k for k, node in enumerate(nodes) for t in node.outputs}
    before = [{producer[name] for name in node.inputs if name in producer} for node in nodes]
    found = order(before)
    return None if found is None else [nodes[k] for k in found]
