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
from einnet.api.torch.partition import decompositions, partition
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
        split, names, reasons = partition(functional)
        constants = constant_inputs(functional) if own.weights == "constant" else set()
        for name in names:
            (call,) = [n for n in split.graph.nodes if n.op == "call_module" and n.target == name]
            weights = [n for n, given in enumerate(call.args) if given.op == "placeholder" and given.name in constants]
            part = Part(f"part {len(taken)}", getattr(split, name), weights, own, settings, allowance)
            taken.append(part)
            delattr(split, name)  # a part is no module
            setattr(split, name, part)
        left_out(reasons, own)
        facts.update(dynamic=symbolic(functional), writes=written_inputs())
        split.recompile()
        return split.forward  # type: ignore[no-any-return]

    whole = aot_autograd(fw_compiler=inference, inference_compiler=inference, decompositions=dict(decompositions()))(graph, list(inputs))
    if not taken:
        return graph.forward  # type: ignore[no-any-return]
    budget_s = min(own.graph_budget, settings.time_budget * len(taken))
    return Whole(whole, graph.forward, taken, allowance, slower=own.slower, every=own.sizes == "all", made_s=budget_s, **facts)


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
