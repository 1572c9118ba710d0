"""Plans with any candidate of each subprogram."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einnet.expr.nodes import tensors
from einnet.graph.program import Opaque, Program
from einnet.graph.split import subprograms
from einnet.instantiate.kernels import Plan
from einnet.search.choosing.candidate import Candidate
from einnet.search.forms import Form
from einnet.search.outcome import canonical
from einnet.search.plan import Assembly
from einnet.search.space import Options, Space


def plan_of_any(program: Program, options: Options, draw: Callable[[Sequence[Form]], Candidate]) -> Plan:
    """The program with the candidate that `draw` takes from the forms of each subprogram, searched by `options`."""
    assembly = Assembly(program)
    parts = {p.output.name: p for p in subprograms(program)}
    for node in program.nodes:
        if isinstance(node, Opaque):
            assembly.opaque(node)
        elif node.output.name in parts:
            part = parts[node.output.name]
            expression = canonical(part.expression)
            chosen = draw(Space(options).forms(expression))
            assembly.add(chosen.build, dict(zip(tensors(expression), part.inputs)), node.output.name)
    return assembly.finish()
