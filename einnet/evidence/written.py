"""A model that was written for ONNX Runtime against the one that it came from: the kernels of which it was written are lifted and proven, as those of
any plan are, and what the writer makes of them, among the model's own nodes, has to be the model that runs, node by node.

The writer itself is trusted: that the nodes which it writes for a kernel mean that kernel. Their numbers are compared, subprogram by subprogram.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.errors import ArtifactError
from einnet.evidence.buffers.contents import part
from einnet.evidence.constants import bits, near, recomputed
from einnet.evidence.examine import Proven, known
from einnet.evidence.lift import Lifting, lift
from einnet.evidence.numbers import Observed
from einnet.evidence.prove import prove
from einnet.evidence.running import TENSOR
from einnet.evidence.stored_proofs import Written
from einnet.expr.nodes import Tensor, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.graph.in_file import model_bytes
from einnet.graph.onnx.shapes import Shapes
from einnet.graph.program import Program
from einnet.graph.split import Piece, Subprogram, pieces
from einnet.instantiate.kernels import EOperator, OpaqueCall, Plan
from einnet.runtime.serial import plan_from_json, plan_json

if TYPE_CHECKING:
    import onnx

    from einnet.derivation.steps import Derivation

Array = np.ndarray[Any, np.dtype[Any]]


def told(plan: Plan, shapes: Shapes) -> Written:
    """The kernels that were written: everything but the constants, which are computed again."""
    models: list[str] = []

    def blob(model: bytes) -> int:
        models.append(base64.b85encode(model).decode())
        return len(models) - 1

    return Written(plan=plan_json(plan, blob), models=models, shapes={name: list(shape) for name, shape in shapes.items()})


def plan_of(recorded: Written, program: Program) -> Plan:
    """The kernels that were written, their constants computed again from the model's weights. Raises ArtifactError."""
    models = [base64.b85decode(text) for text in recorded.models]
    plan = plan_from_json(recorded.plan, lambda number: models[number], {})
    return replace(plan, constants=constants(plan, program))


def constants(plan: Plan, program: Program) -> dict[str, Array]:
    """The values of a plan's constants: weights of the model, of their expressions, or what kernels' expressions carry. Raises ArtifactError."""
    sizes = {b.name: b.size for b in plan.buffers if b.role == "constant"}
    carried = tables(plan, sizes)
    found: dict[str, Array] = {}

    def value(name: str, within: tuple[str, ...] = ()) -> Array:
        if name not in found:
            found[name] = computed(name, (*within, name))
        return found[name]

    def computed(name: str, within: tuple[str, ...]) -> Array:
        if name in carried:
            return carried[name]
        if name not in plan.expressions and name in program.weights:
            return np.asarray(program.weights[name]).reshape(-1)
        if name not in plan.expressions or name in within[:-1]:
            raise ArtifactError(f"constant {name} is no weight of the model, and nothing says how it was computed")
        read = {t.name: t for t in tensors(plan.expressions[name]).values() if t.values is None}
        values = {n: program.weights[n] if n in program.weights else value(n, within).reshape(t.shape) for n, t in read.items()}
        return np.asarray(evaluate(plan.expressions[name], values), np.float32).reshape(-1)

    return {name: value(name) for name in sizes}


def tables(plan: Plan, sizes: Mapping[str, int]) -> dict[str, Array]:
    """The constants whose values stand in the expressions of the kernels that read them."""
    found: dict[str, Array] = {}
    for kernel in (k for k in plan.kernels if isinstance(k, EOperator)):
        for name, view in kernel.operands:
            values = tensors(kernel.scope)[name].values
            if values is not None and view.buffer in sizes:
                held = found.setdefault(view.buffer, np.zeros(sizes[view.buffer], np.float32))
                part(held, view)[...] = np.array([float(v) for v in values], np.float32).reshape(view.shape)
    return found


def proven_written(program: Program, plan: Plan, derivations: Sequence[Derivation]) -> tuple[Program, Proven]:
    """The part of the model that was written anew, and what is proven of its kernels."""
    inner, taken = region(program, plan)
    found = recomputed(inner, plan)
    lifting = lift(inner, plan, found.values, taken)
    return inner, Proven(found, lifting, tuple(prove(lifting, known(derivations))))


def region(program: Program, plan: Plan) -> tuple[Program, list[Piece]]:
    """The pieces of the model between what a plan is given and what it gives out, as a program with the plan's inputs and outputs."""
    all_of, parts = program.tensors(), pieces(program)
    made = {t.name for p in parts for t in outputs_of(p)}
    given = tuple(all_of[view.buffer] for _, view in plan.inputs if view.buffer in all_of)
    results = tuple((value, tensor) for value, _ in plan.outputs if (tensor := holder(program, value, made)))
    need, taken = {t for _, t in results}, list[Piece]()
    for piece in reversed(parts):
        if any(t.name in need for t in outputs_of(piece)):
            taken.insert(0, piece)
            need |= set(piece.inputs) - {t.name for t in given}
    inside = {t.name for p in taken for n in (p.nodes if isinstance(p, Subprogram) else (p,)) for t in n.outputs}
    nodes = tuple(n for n in program.nodes if n.outputs[0].name in inside)
    names = {view.buffer: value for value, view in plan.inputs}
    return replace(program, inputs=given, outputs=results, nodes=nodes, names=names), taken


def outputs_of(piece: Piece) -> tuple[Tensor, ...]:
    """The tensors that a piece gives out."""
    return (piece.output,) if isinstance(piece, Subprogram) else piece.outputs


def holder(program: Program, value: str, made: set[str]) -> str | None:
    """The tensor that holds a value of the model, of those that are `made`."""
    found = [name for name, held in program.holds.items() if held.value == value and name in made]
    return next(iter([*found, *(tensor for name, tensor in program.outputs if name == value)]), None)


def models(model: Any, program: Program, plan: Plan, recorded: Written, runs: Plan) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """What the writer makes of the kernels among the model's own nodes, and the model that runs. Raises UsageError as the writer does."""
    from einnet.runtime.onnx.graft import rewritten
    from einnet.runtime.onnx.same import parsed

    (kernel,) = runs.kernels
    assert isinstance(kernel, OpaqueCall)
    return rewritten(model, program.header, plan, shapes_of(recorded), {}), parsed(model_bytes(kernel.model))


def differences(wanted: onnx.ModelProto, runs: onnx.ModelProto) -> list[str]:
    """Where the model that runs is not what the writer makes: nodes, functions, inputs and outputs, and weights beyond rounding."""
    from einnet.runtime.onnx.same import unlike, weights

    problems = unlike(wanted, runs)
    for name, (one, other) in weights(wanted, runs).items():
        alike = one.dtype == other.dtype == np.float32 and one.shape == other.shape and near(other, one.astype(np.float64)).all()
        if not alike and (one.shape != other.shape or bits(one) != bits(other)):
            problems.append(f"weight {name} of the model that runs is not what the model's weights give")
    return problems


def observing(model: Any, program: Program, inner: Program, plan: Plan, recorded: Written, lifting: Lifting, threads: int) -> Observed:
    """Runs what the writer makes of the kernels, and tells what it holds of the tensors that were lifted and of those that these are computed of."""
    from einnet.graph.onnx.read import normalised
    from einnet.runtime.onnx.graft import rewritten
    from einnet.runtime.ort import Session

    shown = {TENSOR + name: x.place for name, x in lifting.found.items() if x.place is not None}
    own = normalised(model, shapes_of(recorded))
    known = {x.name for x in (*own.graph.input, *own.graph.output)}
    given = {t.name: inner.names[t.name] for t in inner.inputs}
    read = [value for value in dict.fromkeys(given.values()) if value not in known]
    more = replace(plan, outputs=(*plan.outputs, *shown.items()))
    made = rewritten(model, program.header, more, shapes_of(recorded), {}, (*read, *shown))
    session = Session(made.SerializeToString(), threads, title="the written model")

    def observed(inputs: Mapping[str, Array]) -> dict[str, Array]:
        found = {**inputs, **session(inputs)}
        held = {name.removeprefix(TENSOR): x for name, x in found.items() if name.startswith(TENSOR)}
        return {**{tensor: found[value] for tensor, value in given.items()}, **held}

    return observed


def shapes_of(recorded: Written) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that were given where the model was written."""
    return {name: tuple(shape) for name, shape in recorded.shapes.items()}
