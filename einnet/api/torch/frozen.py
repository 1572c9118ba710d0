"""A part as it is for one call's sizes and weights: a module of its own, its ONNX model, and a name for what it computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from einnet.api.torch.halves import halved, widened
from einnet.api.torch.order import in_order
from einnet.api.torch.partition import tensors
from einnet.api.torch.untraced import as_program
from einnet.graph.onnx.exported import apart, exported, exported_to, traced
from einnet.graph.onnx.mapped import LARGE_FILE

Tensor = Any


@dataclass(frozen=True)
class Frozen:
    """A part with its sizes put in, its weights as constants, and float32 in place of half precision.

    `module` takes the tensors among the arguments that are no weights, these `inputs`; they stand at `places`. `text` says what it computes but for
    its weights, `halves` that some number was of half precision.
    """

    module: Any
    places: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    weights: Mapping[str, Tensor]
    text: str
    halves: bool = False

    @property
    def names(self) -> list[str]:
        """Of its inputs."""
        return [f"x{n}" for n in range(len(self.places))]

    @cached_property
    def digest(self) -> str:
        """Of what it computes, its weights included."""
        state = hashlib.blake2b(self.text.encode(), digest_size=20)
        for name, value in self.weights.items():
            state.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            state.update(value.detach().contiguous().numpy(force=True).data)
        return state.hexdigest()

    @contextmanager
    def onnx(self, outputs: int) -> Iterator[Any]:
        """The ONNX model: inputs x0, x1, .., outputs y0, y1, .. A large one is a file as long as it is looked at, so that its weights are not copied.

        Raises ModelError where torch cannot export it, or the file cannot be written.
        """
        names = [f"y{n}" for n in range(outputs)]
        if sum(value.nbytes for value in self.weights.values()) < LARGE_FILE:
            yield apart(lambda: exported(self._program(), self.names, names))
            return
        with TemporaryDirectory() as folder:
            path = Path(folder) / "part.onnx"
            apart(lambda: exported_to(path, self._program(), self.names, names))
            yield path

    def _program(self) -> Any:
        """As torch's exporter takes it."""
        try:
            return as_program(self.module, self.inputs, self.weights)
        except Exception:  # what torch says of a graph that it would have traced otherwise
            return traced(self.module, self.inputs)


def freeze(part: Any, args: Sequence[Any], weights: Sequence[int]) -> Frozen:
    """The part (a graph module) for these arguments, of which those at the places `weights` are constants."""
    graph, root = torch.fx.Graph(), torch.nn.Module()
    values: dict[Any, Any] = {}
    held: dict[str, Tensor] = {}
    places: list[int] = []
    lines: list[str] = []
    halves = halved([*args, *tensors(part.graph.nodes)])
    count = 0
    for node in part.graph.nodes:
        if node.op == "placeholder":
            given = args[count]
            if not isinstance(given, torch.Tensor):
                values[node] = given
            elif count in weights:
                values[node] = constant(graph, root, held, widened(given.detach()))
            else:
                values[node] = graph.placeholder(f"x{len(places)}")
                lines.append(f"x{len(places)} {widened(given.dtype)} {tuple(given.shape)}")
                places.append(count)
            count += 1
        elif node.op == "get_attr":
            values[node] = constant(graph, root, held, widened(attribute(part, node.target)))
        elif node.op == "output":
            graph.output(torch.fx.map_arg(node.args[0], lambda n: values[n]))
        else:
            values[node] = graph.node_copy(node, lambda n: values[n])
            given = in_order(node.target, values[node].args, values[node].kwargs)
            values[node].args, values[node].kwargs = torch.fx.node.map_aggregate(given, widened)
            numbers_as_tensors(graph, root, held, values[node])
    lines += [f"{n.name} {n.op} {n.target} {n.args} {dict(n.kwargs)}" for n in graph.nodes if n.op != "placeholder"]
    inputs = tuple(widened(args[n].detach()) for n in places)
    return Frozen(torch.fx.GraphModule(root, graph), tuple(places), inputs, held, json.dumps(lines), halves)


def constant(graph: Any, root: Any, held: dict[str, Tensor], value: Tensor) -> Any:
    """A node that gives the value, a buffer of the module."""
    name = f"w{len(held)}"
    held[name] = value
    root.register_buffer(name, value)
    return graph.get_attr(name)


def numbers_as_tensors(graph: Any, root: Any, held: dict[str, Tensor], node: Any) -> None:
    """Numbers in places of tensors are constants of the result's type, as 1 of `1 - x` is in aten.sub.Tensor(1, x).

    torch runs those, and its exporter refuses them where x is of another type than the result.
    """
    made, schema = node.meta.get("val"), getattr(node.target, "_schema", None)
    if schema is None or not isinstance(made, torch.Tensor):
        return
    for place, (given, declared) in enumerate(zip(node.args, schema.arguments)):
        number = isinstance(given, (int, float)) and isinstance(declared.type, torch.TensorType)
        if number and (made.dtype.is_floating_point or (made.dtype is not torch.bool and isinstance(given, int))):
            with graph.inserting_before(node):
                node.update_arg(place, constant(graph, root, held, widened(torch.tensor(given, dtype=made.dtype))))


def attribute(module: Any, path: str) -> Tensor:
    """A tensor of a module by its dotted name."""
    for name in path.split("."):
        module = getattr(module, name)
    return module
