"""Products and convolutions with what is done before and after them."""

from __future__ import annotations

from einnet.graph.onnx.contributed.activations import activated
from einnet.graph.onnx.contributed.call import Call, Definition, definition, number


def turned(call: Call, name: str, last: int, batch: int) -> list[str]:
    """The operand as it is multiplied, `NAME1`: with `batch` the first dimension stands behind the others but the last; `last` swaps the last two."""
    order = list(range(len(call.shape(name))))
    if batch and len(order) > 2:
        order = [*order[1:-1], order[0], order[-1]]
    if last and len(order) > 1:
        order[-2:] = order[:-3:-1]
    return [f"{name}1 = Transpose <perm = [{', '.join(map(str, order))}]> ({name})"] if order else [f"{name}1 = Identity ({name})"]


@definition("A B", "Y")
def fused_matmul(call: Call) -> list[str]:
    """alpha·A·B, either operand transposed in its last two dimensions, or in those before the last."""
    sides = [line for name in "AB" for line in turned(call, name, call.integer(f"trans{name}", 0), call.integer(f"transBatch{name}", 0))]
    return [*sides, number("alpha", call.real("alpha", 1.0)), "product = MatMul (A1, B1)", "Y = Mul (product, alpha)"]


@definition("A B C", "Y")
def fused_gemm(call: Call) -> list[str]:
    """Gemm, and an activation with up to three parameters."""
    told = ", ".join(f"{name} = {call.integer(name, 0)}" for name in ("transA", "transB"))
    told += ", " + ", ".join(f"{name} = {call.real(name, 1.0)!r}" for name in ("alpha", "beta"))
    given = [call.real(name, 0.0) for name in ("activation_alpha", "activation_beta", "activation_gamma") if name in call.attributes]
    operands = "A, B, C" if call.given("C") else "A, B"
    return [f"x = Gemm <{told}> ({operands})", *activated(call.string("activation"), given, "x", "Y")]


@definition("X W B Z", "Y")
def fused_conv(call: Call) -> list[str]:
    """Conv, another tensor added to its result, and an activation."""
    names = [name for name in ("pads", "strides", "dilations", "kernel_shape") if call.integers(name)]
    told = [f"{name} = [{', '.join(map(str, call.integers(name)))}]" for name in names] + [f"group = {call.integer('group', 1)}"]
    if (padding := call.string("auto_pad", "NOTSET")) != "NOTSET":
        told.append(f'auto_pad = "{padding}"')
    lines = [f"x = Conv <{', '.join(told)}> ({'X, W, B' if call.given('B') else 'X, W'})"]
    lines.append("z = Add (x, Z)" if call.given("Z") else "z = Identity (x)")
    return [*lines, *activated(call.string("activation"), call.reals("activation_params"), "z", "Y")]


PRODUCTS: dict[str, Definition] = {
    "FusedMatMul": fused_matmul, "TransposeMatMul": fused_matmul, "FusedGemm": fused_gemm, "FusedConv": fused_conv,
}  # fmt: skip
