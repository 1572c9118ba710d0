"""The backend of `torch.compile`: dynamo's graph, made functional, in parts that are optimized and what is left in eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from einnet.api.torch.eager_contest import Whole
from einnet.api.torch.options import Options, read_options
from einnet.api.torch.part import Part
from einnet.api.torch.partition import decompositions, fixed_share, partition
from einnet.api.torch.pieces import MOST, Group, among, worth_a_call
from einnet.api.torch.waiting import Allowance
from einnet.errors import EinNetError
from einnet.runtime.ort import OpaqueNode

NAME = "einnet"

GraphModule = Any
Compiled = Callable[..., Any]

TRAINING = (
    "einnet: this graph records gradients and runs in eager mode; only inference is optimized: "
    "call the model under torch.no_grad() or torch.inference_mode()"
)


def compiled(graph: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None) -> Compiled:
    """What `torch.compile(model, backend="einnet")` calls with a graph and its inputs: a function of the same inputs.

    Guards, graph breaks and symbolic sizes are dynamo's. Writes to inputs, outputs that are views and outputs of one memory are told from the
    graph by AOTAutograd, so that the parts are functions. A part is optimized when it is first called.

    Raises UsageError for a wrong option and for a `mode`, which is Inductor's; in the option strict, EinNetError for a graph that records gradients.
    """
    if mode not in (None, "default"):
        raise EinNetError(f"the backend has no mode {mode!r}: it has options (see einnet.api.torch.options)")
    own, settings = read_options(options, torch.get_num_threads())
    if torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs):
        if own.strict:
            raise EinNetError(TRAINING.removeprefix("einnet: "))
        warnings.warn(TRAINING, RuntimeWarning, stacklevel=2)
        return graph.forward  # type: ignore[no-any-return]
    OpaqueNode.stops = True  # torch's own operators run between the parts, and between calls
    taken: list[Part] = []
    allowance = Allowance(own.graph_budget)
    facts: dict[str, Any] = {}

    def inference(functional: GraphModule, _: Sequence[Any]) -> Compiled:
        dynamic = symbolic(functional)
        in_pieces = dynamic and own.sizes == "recurring" and fixed_share(functional) >= MOST
        split, names, reasons = partition(functional, in_pieces)
        left_out(reasons, own)
        static = constant_inputs(functional)
        constants = static if own.weights == "constant" else set()
        given = {node.target: [arg.name for arg in node.args] for node in split.graph.nodes if node.op == "call_module"}
        modules = {name: (getattr(split, name), given[name]) for name in names}
        order = [node.name for node in functional.graph.nodes if node.op == "placeholder"]
        facts.update(dynamic=dynamic and not in_pieces, writes=written_inputs(), weights={n for n, name in enumerate(order) if name in static})
        if in_pieces:
            modules = {name: piece for name, piece in modules.items() if worth_a_call(*piece, constants)}
            group = Group(list(modules.values()), constants, f"part {len(taken)}", own, settings, allowance)
            taken.append(group.part)
            put(split, dict(zip(modules, group.pieces, strict=True)))
            return group.calling(split.forward)
        parts = [
            Part(f"part {n}", module, among(args, constants), own, settings, allowance)
            for n, (module, args) in enumerate(modules.values(), len(taken))
        ]  # fmt: skip
        taken.extend(parts)
        put(split, dict(zip(modules, parts, strict=True)))
        return split.forward  # type: ignore[no-any-return]

    whole = aot_autograd(fw_compiler=inference, inference_compiler=inference, decompositions=dict(decompositions()))(graph, list(inputs))
    if not taken:
        return graph.forward  # type: ignore[no-any-return]
    budget_s = min(own.graph_budget, settings.time_budget * len(taken))
    return Whole(whole, graph.forward, taken, allowance, slower=own.slower, every=own.sizes == "all", made_s=budget_s, **facts)


def put(graph: GraphModule, calls: Mapping[str, Compiled]) -> None:
    """Call these in place of the submodules of their names."""
    for name, call in calls.items():
        delattr(graph, name)  # a part is no module
        setattr(graph, name, call)
    graph.recompile()


def constant_inputs(graph: GraphModule) -> set[str]:
    """The graph's inputs that are parameters or buffers and are not written by it, by name."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return set()
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    return {names[n] for n in set(context.fw_metadata.static_input_indices) - written_inputs() if n < len(names)}


def written_inputs() -> set[int]:
    """The places of the inputs that the graph at hand writes."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return set()
    return {n for n, info in enumerate(context.fw_metadata.input_info) if info.mutates_data or info.mutates_metadata}


def symbolic(graph: GraphModule) -> bool:
    """Some size of an input is a symbol."""
    given = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
    sizes = [size for t in given if isinstance(t, torch.Tensor) for size in t.shape]
    return any(isinstance(one, (torch.SymInt, torch.SymFloat)) for one in (*given, *sizes))


def left_out(reasons: Mapping[str, str], options: Options) -> None:
    """Say once which operators stay in eager mode, and why."""
    if not reasons:
        return
    text = "; ".join(f"{name} ({why})" for name, why in sorted(reasons.items()))
    if options.strict:
        raise EinNetError(f"operators that are not taken: {text}")
    warnings.warn(f"einnet: operators that stay in eager mode: {text}", RuntimeWarning, stacklevel=2)


def register() -> None:
    """Make the backend known to torch by its name, where no entry point has."""
    from torch._dynamo.backends.registry import list_backends, register_backend

    if NAME not in list_backends(exclude_tags=()):
        register_backend(compiled, name=NAME)
