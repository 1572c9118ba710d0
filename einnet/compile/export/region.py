"""Which part of a program is written anew for ONNX: what was derived, and what has to go with it, from and to values of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from einnet.expr.nodes import Tensor
from einnet.graph.program import Held, Opaque, ProgramNode
from einnet.instantiate.kernels import Plan, View
from einnet.runtime.onnx.costs import fits

if TYPE_CHECKING:
    from einnet.search.outcome import Outcome, Result

TOO_LARGE = "the model's own nodes are written in place of what would have to be expanded beyond memory: "


def written(outcome: Outcome) -> list[Result]:
    """The subprograms whose derived form is written; not those which ONNX, that has no strides, would have to expand beyond memory."""
    return [r for r in outcome.results if r.changed and writable(r)]


def writable(r: Result) -> bool:
    """What runs for a subprogram can be written without expanding anything beyond memory."""
    return all(map(fits, r.candidate.build.kernels))


def not_written(outcome: Outcome) -> list[str]:
    """A note for each subprogram whose derived form is not written."""
    too_large = () if outcome.whole else [r for r in outcome.results if r.changed and not writable(r)]
    return list(dict.fromkeys(TOO_LARGE + ", ".join(r.subprogram.origin) for r in too_large))


def partial_plan(outcome: Outcome, chosen: Sequence[Result], values: Collection[str]) -> Plan:
    """A plan for some subprograms that reads values of the model, and gives what it computes under the names of values of the model.

    Where a tensor is no value of the model, because passes over the program changed what it holds, whoever computes and whoever reads it go along.
    """
    region = _Region(outcome, values)
    region.take({r.subprogram.output.name for r in chosen})
    part = replace(outcome.program, inputs=region.inputs(), nodes=region.nodes(), outputs=tuple(region.outputs()))
    plan = replace(outcome, program=part, apart=None).plan()
    given = tuple((region.held(v.buffer).value, in_model_order(v, region.held(v.buffer))) for _, v in plan.inputs)
    results = tuple((name, in_model_order(v, h) if (h := region.found(v.buffer)) else v) for name, v in plan.outputs)
    return replace(plan, inputs=given, outputs=results)


def in_model_order(view: View, held: Held) -> View:
    """A view of a stored tensor with the dimensions in the order of the model's value."""
    position = [held.order.index(k) for k in range(len(held.order))]
    return replace(view, shape=tuple(view.shape[p] for p in position), strides=tuple(view.strides[p] for p in position))


@dataclass(frozen=True)
class _Unit:
    """What is written whole or not at all: a subprogram, an opaque node, or a window of what was computed together."""

    node: ProgramNode
    reads: frozenset[str]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(t.name for t in self.node.outputs)


class _Region:
    def __init__(self, outcome: Outcome, values: Collection[str]) -> None:
        self.outcome, self.program, self.values = outcome, outcome.program, values
        self.units = list(self._units())
        self.producer = {name: unit for unit in self.units for name in unit.outputs}
        self.readers: dict[str, list[_Unit]] = {}
        for unit in self.units:
            for name in unit.reads:
                self.readers.setdefault(name, []).append(unit)
        self.taken: set[str] = set()

    def _units(self) -> Iterator[_Unit]:
        results = {r.subprogram.output.name: r for r in self.outcome.results}
        windows = {w.output.name for b in self.outcome.bundles for w in b.windows}
        for node in self.program.nodes:
            name = node.outputs[0].name
            if name in results:
                yield _Unit(node, frozenset(results[name].subprogram.inputs) - self.program.weights.keys())
            elif isinstance(node, Opaque) or name in windows:
                yield _Unit(node, frozenset(node.inputs) - self.program.weights.keys())

    def found(self, tensor: str) -> Held | None:
        """The value of the model that a tensor holds."""
        held = self.program.holds.get(tensor)
        return held if held is not None and held.value in self.values else None

    def held(self, tensor: str) -> Held:
        held = self.found(tensor)
        assert held is not None, f"{tensor} is read from the model, of which it is no value"
        return held

    def take(self, tensors: set[str]) -> None:
        """Take the units that compute these tensors, and those that have to go with them."""
        waiting = [self.producer[name] for name in tensors]
        while waiting:
            unit = waiting.pop()
            if unit.outputs[0] in self.taken:
                continue
            self.taken.add(unit.outputs[0])
            waiting += [self.producer[name] for name in unit.reads if not self.found(name)]
            waiting += [reader for name in unit.outputs if not self.found(name) for reader in self.readers.get(name, ())]

    def chosen(self) -> list[_Unit]:
        return [unit for unit in self.units if unit.outputs[0] in self.taken]

    def nodes(self) -> tuple[ProgramNode, ...]:
        return tuple(unit.node for unit in self.chosen())

    def inputs(self) -> tuple[Tensor, ...]:
        """What the part reads and does not compute."""
        made = {name for unit in self.chosen() for name in unit.outputs}
        read = dict.fromkeys(name for unit in self.chosen() for name in sorted(unit.reads) if name not in made)
        known = self.program.tensors()
        return tuple(known[name] for name in read)

    def outputs(self) -> Iterator[tuple[str, str]]:
        """Values of the model and the tensors that hold them, each value once; not what is only copied from itself."""
        given: set[str] = set()
        for unit in self.chosen():
            copied = {self.held(name).value for name in unit.reads if self.found(name)}
            for name in unit.outputs:
                held = self.found(name)
                results = [held.value] if held else [onnx_name for onnx_name, tensor in self.program.outputs if tensor == name]
                for value in results:
                    if value not in given and value not in copied:
                        given.add(value)
                        yield value, name
