"""The importer's expressions beside what the standard says: its function bodies, imported and proven equal, and its reference evaluator, run.

    python -m tests.graph.standard     writes the table of docs/standard.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from einnet.derivation.checker.check import check_equal
from einnet.errors import CertificateError, EinNetError
from einnet.expr.nodes import Scope, Tensor, exchange_in, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.graph.interpret import interpret
from einnet.graph.onnx.function_bodies import with_body
from einnet.graph.onnx.importer import GIVEN_OUT, load
from einnet.graph.operators.builders import at, loops_of
from einnet.graph.operators.registry import OPERATORS
from einnet.graph.program import Node, Opaque, Program
from tests.graph.cases import build, ints, node, run_opaque, values
from tests.graph.collected import Case, collected

PAGE = Path(__file__).parents[2] / "docs" / "standard.md"
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)

REFUSED = {
    "ConvTranspose": "groups with padding and `output_shape` are beyond the evaluator",
    "DynamicQuantizeLinear": "the evaluator divides 0 by 0 where all is 0",
    "GlobalLpPool": "the evaluator has no such operator",
    "GlobalMaxPool": "the evaluator gives two spatial dimensions whatever the rank",
    "Mean": "the evaluator does not broadcast",
    "MaxPool": "the evaluator pads SAME_LOWER otherwise",
    "Pad": "the evaluator cuts no side where it repeats or mirrors",
    "Softmax": "before opset 13, the evaluator takes the later meaning of `axis`",
    "LRN": "the evaluator takes the batch for the channels",
    "LogSoftmax": "before opset 13, the evaluator takes the later meaning of `axis`",
    "Upsample": "the evaluator has no linear mode",
}  # fmt: skip
"""Why the evaluator gives no result, or one that is not ONNX Runtime's either, for some cases of an operator."""


COMPARED = ("proven", "tested", "equal to rounding")
"""What the comparison with a body came to, where it is one."""

CHOICE = "the body chooses by a comparison"

ROUNDED = {
    **dict.fromkeys(("Clip", "Elu", "LeakyRelu", "PRelu", "Selu", "ThresholdedRelu"), CHOICE),
    "Celu": "a positive scale through relu", "Gelu": "√2 and √(2/π) are rounded in the body", "HardSwish": "1/6 is rounded in the body",
    "ReduceLogSumExp": "the body does not shift by the maximum", "Softplus": "log(exp(x) + 1) in the body",
}  # fmt: skip
"""Why an expression and a body that give the same numbers have no proof."""


@dataclass
class Row:
    """What the cases of one operator came to."""

    bodies: Counter[str] = field(default_factory=Counter)
    """By how the body of the standard was compared: "proven", "tested", and why it was not."""
    reference: Counter[str] = field(default_factory=Counter)
    """By what came of the reference evaluator: "equal", "different", "refused"."""
    problems: list[str] = field(default_factory=list)


def extra() -> tuple[Case, ...]:
    """Cases of operators that have none by themselves in the tests of operators."""
    x, scale = {"x": values((2, 3, 4, 4))}, {"w": values((4,), 1)}
    made = {
        "Unsqueeze": build([node("Unsqueeze", ["x", "a"])], x, constants={"a": ints(1, 3)}),
        "SpaceToDepth": build([node("SpaceToDepth", ["x"], blocksize=2)], x),
        "LRN": build([node("LRN", ["x"], size=3, alpha=0.1, beta=0.5, bias=2.0)], x),
        "RMSNormalization": build([node("RMSNormalization", ["x", "w"], axis=-1)], x, constants=scale, opset=23),
        "Swish": build([node("Swish", ["x"], alpha=1.3)], x, opset=24),
    }
    return tuple(Case(f"extra-{name}", name, model, x) for name, model in made.items())


@cache
def compared() -> Mapping[str, Row]:
    """A row for each operator with an expression, over the cases that consist of it alone."""
    rows = {name: Row() for name in sorted(OPERATORS)}
    for case in (*collected(), *collected(("quantised",)), *extra()):
        program = load(case.model)
        if case.operators in rows and len(case.model.graph.node) == 1 and program.nodes and not opaque(program):
            row = rows[case.operators]
            given = with_weights_given(case.model)
            body = expanded(given)
            if body is not None:
                row.bodies[with_the_body(load(given), body, row.problems, case.name)] += 1
            row.reference[with_the_evaluator(program, case, row.problems)] += 1
    return rows


def opaque(program: Program) -> list[Opaque]:
    """Opaque nodes but those that give out truth values as such."""
    return [n for n in program.nodes if isinstance(n, Opaque) and n.why != GIVEN_OUT]


def whole(program: Program) -> Scope:
    """The first output as one expression of the inputs."""
    inner: dict[str, Tensor | Scope] = {}
    for n in program.nodes:
        inner[n.outputs[0].name] = exchange_in(n.scope, inner) if isinstance(n, Node) else inner[n.inputs[0]]
    name = program.outputs[0][1]
    found = inner.get(name, program.tensors()[name])
    loops = loops_of(found.shape)
    return found if isinstance(found, Scope) else Scope(loops, (), at(found, loops))


def with_the_body(program: Program, body: onnx.ModelProto, problems: list[str], name: str) -> str:
    try:
        other = load(body)
    except EinNetError as error:
        return f"no model: {error}"
    kept = opaque(other)
    if kept:
        return f"the body has {', '.join(sorted({n.origin[0].split()[0] for n in kept}))}"
    try:
        proof = check_equal(whole(program), whole(other))
    except CertificateError as error:
        if numbers_agree(whole(program), whole(other)):
            return "equal to rounding"
        problems.append(f"{name}: {error}")
        return "refuted"
    return "proven" if proof.method == "inline" else "tested"


def numbers_agree(one: Scope, other: Scope) -> bool:
    """To the precision of float32: bodies round constants, and the checker's residues know no exponentials."""
    rng = np.random.default_rng(0)
    for scale in (0.5, 3.0):
        held = {name: scale * rng.standard_normal(t.shape) for name, t in {**tensors(one), **tensors(other)}.items()}
        y = evaluate(one, {n: held[n] for n in tensors(one)}, "float64")
        if not np.allclose(y, evaluate(other, {n: held[n] for n in tensors(other)}, "float64"), rtol=1e-5, atol=1e-6):
            return False
    return True


def with_the_evaluator(program: Program, case: Case, problems: list[str]) -> str:
    got = interpret(program, case.inputs, run_opaque)
    try:
        wanted = dict(zip(got, ReferenceEvaluator(case.model).run(None, dict(case.inputs)), strict=True))
    except Exception:  # whatever an evaluator that is not complete raises
        return "refused"
    if all(np.shape(y) == got[n].shape and np.allclose(got[n], y, rtol=1e-4, atol=1e-5) for n, y in wanted.items()):
        return "equal"
    problems.append(f"{case.name}: differs from the reference evaluator")
    return "different"


def with_weights_given(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its arrays of floats as inputs: what a body makes of them stays an expression."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    weights = [w for w in model.graph.initializer if w.data_type == TensorProto.FLOAT and np.prod(w.dims) > 1]
    kept = [w for w in model.graph.initializer if w not in weights]
    del opened.graph.initializer[:]
    opened.graph.initializer.extend(kept)
    opened.graph.input.extend(helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in weights)
    return opened


def expanded(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The one-node model with the node's function body in its place, over real numbers: what only changes a float type is left out."""
    (own,) = model.graph.node
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    version = next(o.version for o in model.opset_import if not o.domain)
    schema = onnx.defs.get_schema(own.op_type, version)
    given = {a.name for a in own.attribute}
    defaults = [a.default_value for n, a in schema.attributes.items() if n not in given and a.default_value.name]
    plain.graph.node[0].attribute.extend(defaults)
    made = with_body(plain)
    if made is None:
        return None
    (body,) = made.functions
    del body.output[len(own.output) :]
    opset = max((o.version for o in body.opset_import if not o.domain), default=version)
    for imported in (*made.opset_import, *body.opset_import):
        if not imported.domain:
            imported.version = max(opset, version) if opset >= version else version
    for inner in body.node:
        over_reals(inner)
    return made


def over_reals(node: onnx.NodeProto) -> None:
    """Let a node of a function body move what it only casts between float types, and hold constants of any of these as float32."""
    target = next((a.i for a in node.attribute if a.name == "to"), TensorProto.FLOAT)
    if node.op_type == "CastLike" or (node.op_type == "Cast" and target in FLOATS):
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], list(node.output)))
    for a in node.attribute:
        if a.name == "value" and a.t.data_type in FLOATS:
            a.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(a.t).astype(np.float32), a.t.name))


def table() -> str:
    """A row for each operator."""
    lines = ["| operator | cases | function body of the standard | reference evaluator |", "|---|---|---|---|"]
    for name, row in compared().items():
        total = sum(row.reference.values())
        bodies = ", ".join(f"{what} {count}" if what in COMPARED else f"{what} ({count})" for what, count in sorted(row.bodies.items()))
        rest = total - row.reference["equal"]
        reference = f"equal {row.reference['equal']}" + (f"; {rest} not: {REFUSED.get(name, '?')}" if rest else "")
        bodies += f" ({ROUNDED.get(name, '?')})" if row.bodies["equal to rounding"] else ""
        lines.append(f"| `{name}` | {total} | {bodies or '–'} | {reference} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index("| operator |")] + table(), encoding="utf-8")
