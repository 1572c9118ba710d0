"""Programs of candidates drawn at random, and not of those that are fastest: derived forms that timing would never keep run, too."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from einnet.expr.nodes import Scope, tensors
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Opaque, Program
from einnet.graph.split import subprograms
from einnet.instantiate.build import Build, builds
from einnet.instantiate.kernels import Plan
from einnet.search.choosing.candidate import OUT
from einnet.search.forms import Form
from einnet.search.outcome import canonical
from einnet.search.plan import Assembly
from einnet.search.space import Options, deepen


@cache
def forms(expression: Scope, depth: int, states: int) -> tuple[Form, ...]:
    """What a short search finds for an expression, the original among it."""
    return tuple(deepen(expression, Options(max_depth=depth, states=states))[0])


def drawn(expression: Scope, generator: random.Random, depth: int, states: int) -> tuple[Form, Build]:
    """One form, and one way to build it; derived ones where there are any."""
    found = forms(expression, depth, states)
    derived = [f for f in found if f.steps] or list(found)
    form = generator.choice(derived)
    ways = list(builds(form.tree, dict(form.matches), OUT, generator.random() < 0.5 or not form.matches))
    return form, generator.choice(ways)


def forced(model: Any, seed: int, depth: int = 3, states: int = 300) -> tuple[Program, Plan, list[Form]]:
    """The prepared program of a model, a plan of drawn candidates for it, and the forms that were drawn, by distinct subprogram."""
    program, generator = prepare(load(model)), random.Random(seed)
    parts = {p.output.name: p for p in subprograms(program)}
    chosen: dict[str, tuple[Form, Build]] = {}
    assembly = Assembly(program)
    for node in program.nodes:
        if isinstance(node, Opaque):
            assembly.opaque(node)
        elif node.output.name in parts:
            part = parts[node.output.name]
            expression = canonical(part.expression)
            if part.key not in chosen:
                chosen[part.key] = drawn(expression, generator, depth, states)
            assembly.add(chosen[part.key][1], dict(zip(tensors(expression), part.inputs)), node.output.name)
    return program, assembly.finish(), [form for form, _ in chosen.values()]
