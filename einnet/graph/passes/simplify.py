"""Program-level simplification: what is exact, or a reassociation of sums and products with weights."""

from __future__ import annotations

from dataclasses import replace

from einnet.expr.nodes import Tensor, exchange_in
from einnet.graph.passes.affine import fold_affine
from einnet.graph.passes.constant_folding import evaluate_weights, hoist, merge_weights
from einnet.graph.passes.masks import recover_masks
from einnet.graph.passes.places.alike import read_alike
from einnet.graph.passes.places.unread import drop_unread
from einnet.graph.passes.scaled_windows import fold_scaled_windows
from einnet.graph.passes.window_reads import read_through
from einnet.graph.program import Node, Program
from einnet.graph.rewrite import exchange_tensors, is_copy, prune


def simplify(program: Program) -> Program:
    """Weights evaluated, copies and repetitions dropped, scales and shifts by weights folded into contractions, dead nodes removed.

    Inputs, outputs and their ONNX names stay as they are.
    """
    program = recover_masks(merge_weights(evaluate_weights(prune(program))))
    while True:
        before = program.nodes
        program = read_through(drop_repeated(drop_copies(drop_unread(read_alike(program)))))
        program = prune(evaluate_weights(hoist(fold_scaled_windows(fold_affine(program)))))
        if program.nodes == before:
            return prune(merge_weights(program))


def drop_copies(program: Program) -> Program:
    """Without nodes that only copy a tensor: their readers read the tensor itself."""
    exchange: dict[str, Tensor] = {}
    for node in program.expression_nodes():
        source = is_copy(node.scope)
        if source is not None and source.dtype == node.output.dtype:
            exchange[node.output.name] = exchange.get(source.name, source)
    kept = tuple(n for n in program.nodes if not isinstance(n, Node) or n.output.name not in exchange)
    return exchange_tensors(replace(program, nodes=kept), exchange)


def drop_repeated(program: Program) -> Program:
    """Equal expressions (by canonical key) are computed once."""
    first: dict[str, Tensor] = {}
    exchange: dict[str, Tensor] = {}
    for node in program.expression_nodes():
        scope = exchange_in(node.scope, exchange)
        kept = first.setdefault(scope.key, node.output)
        if kept != node.output:
            exchange[node.output.name] = kept
    kept_nodes = tuple(n for n in program.nodes if not isinstance(n, Node) or n.output.name not in exchange)
    return exchange_tensors(replace(program, nodes=kept_nodes), exchange)
