"""A part as the program that torch.export would make of it, without tracing.

A part's graph is functional, of operators that torch's exporter knows, for the sizes at hand: tracing it and its decompositions again gives the same
graph, and takes two thirds of an export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._pytree import tree_structure

from einnet.api.torch.order import outputs

Tensor = Any
Node = Any

STACK = {"": ("", "part")}
"""The module of every node: the exporter warns of nodes that have none."""


class Untraced(ExportedProgram):  # type: ignore[misc]
    """A program whose operators the exporter knows, all of them."""

    def run_decompositions(self, *_: Any, **__: Any) -> Untraced:
        """Itself."""
        return self


def as_program(module: Any, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Untraced:
    """The program of a part that reads `weights` as its attributes and takes these inputs; raises what torch does where it is not well formed."""
    graph, values, specs = torch.fx.Graph(), {}, []
    for name in weights:
        values[name] = graph.placeholder(f"b_{name}")
        specs.append(InputSpec(InputKind.BUFFER, TensorArgument(values[name].name), name, persistent=True))
    given: list[OutputSpec] = []
    for node in module.graph.nodes:
        if node.op == "get_attr":
            values[node] = values[node.target]
        elif node.op == "placeholder":
            values[node] = graph.placeholder(node.name)
            specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(values[node].name), None))
        elif node.op == "output":
            results = [values[result] for result in outputs(node.args[0])]
            graph.output(tuple(results))
            given = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(result.name), None) for result in results]
        else:
            values[node] = graph.call_function(node.target, *torch.fx.map_arg((node.args, dict(node.kwargs)), values.__getitem__))
            values[node].meta["nn_module_stack"] = STACK
    root = torch.fx.GraphModule({}, graph)
    with torch.no_grad():
        FakeTensorProp(root).propagate(*weights.values(), *inputs)
    call = ModuleCallSignature([], [], tree_structure((tuple(inputs), {})), tree_structure(tuple(given)))
    return Untraced(
        root=root, graph=graph, graph_signature=ExportGraphSignature(specs, given), state_dict=dict(weights), range_constraints={},
        module_call_graph=[ModuleCallEntry("", call)], example_inputs=(tuple(inputs), {}), constants={},
    )  # fmt: skip
