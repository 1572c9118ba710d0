"""Operators on quantised tensors: what they compute on the numbers that these stand for, quantised again."""

from __future__ import annotations

from einnet.graph.onnx.contributed.call import Call, Definition, Undefined, definition, number


def given(call: Call, *names: str) -> str:
    """The operands, the last of them left out where it is not given."""
    return ", ".join(names if call.given(names[-1]) else names[:-1])


def numbers_of(call: Call, name: str, scale: str, zero: str, axis: int = 1) -> str:
    """The line that gives the numbers which a tensor stands for, NAME1."""
    return f"{name}1 = DequantizeLinear <axis = {axis}> ({given(call, name, scale, zero)})"


def quantised(call: Call, scale: str = "Y_scale", zero: str = "Y_zero_point") -> str:
    """The line that quantises the numbers `y1` as the result."""
    return f"Y = QuantizeLinear ({given(call, 'y1', scale, zero)})"


def pairwise(operator: str) -> Definition:
    """An operator of two quantised tensors."""

    def body(call: Call) -> list[str]:
        sides = [numbers_of(call, name, f"{name}_scale", f"{name}_zero_point") for name in "AB"]
        return [*sides, f"y1 = {operator} (A1, B1)", quantised(call, "C_scale", "C_zero_point").replace("Y =", "C =")]

    return definition("A A_scale A_zero_point B B_scale B_zero_point C_scale C_zero_point", "C")(body)


def one_by_one(operator: str, *attributes: str) -> Definition:
    """An operator of one quantised tensor, with some numbers as attributes."""

    def body(call: Call) -> list[str]:
        told = ", ".join(f"{name} = {call.real(name, 0.0)!r}" for name in attributes if name in call.attributes)
        line = f"y1 = {operator}{f' <{told}>' if told else ''} (X1)"
        return [numbers_of(call, "X", "X_scale", "X_zero_point"), line, quantised(call)]

    return definition("X X_scale X_zero_point Y_scale Y_zero_point", "Y")(body)


def channels_second(call: Call) -> None:
    """Refuse tensors whose channels stand last."""
    if call.integer("channels_last", 0):
        raise Undefined("channels_last")


@definition("X X_scale X_zero_point Y_scale Y_zero_point", "Y")
def mean_of_all(call: Call) -> list[str]:
    """The mean over all dimensions behind the second."""
    channels_second(call)
    return [numbers_of(call, "X", "X_scale", "X_zero_point"), "y1 = GlobalAveragePool (X1)", quantised(call)]


@definition("X X_scale X_zero_point Y_scale Y_zero_point", "Y")
def mean_of_windows(call: Call) -> list[str]:
    """Means of windows."""
    channels_second(call)
    told = [f"{name} = [{', '.join(map(str, call.integers(name)))}]" for name in ("kernel_shape", "pads", "strides") if call.integers(name)]
    told += [f"{name} = {call.integer(name, 0)}" for name in ("ceil_mode", "count_include_pad")]
    told.append(f'auto_pad = "{call.string("auto_pad", "NOTSET")}"')
    return [numbers_of(call, "X", "X_scale", "X_zero_point"), f"y1 = AveragePool <{', '.join(told)}> (X1)", quantised(call)]


@definition("X X_scale X_zero_point Y_scale Y_zero_point", "Y")
def softmax(call: Call) -> list[str]:
    """Softmax as the standard has it from its opset 13 on."""
    if call.integer("opset", 13) < 13:
        raise Undefined("the meaning of `axis` before opset 13")
    return [numbers_of(call, "X", "X_scale", "X_zero_point"), f"y1 = Softmax <axis = {call.integer('axis', -1)}> (X1)", quantised(call)]


MOST = 16
"""Tensors that are concatenated at most."""

PIECES = " ".join(f"X{n} X{n}_scale X{n}_zero_point" for n in range(MOST))


@definition(f"Y_scale Y_zero_point {PIECES}", "Y")
def concat(call: Call) -> list[str]:
    """Tensors of different scales behind each other."""
    names = [f"X{n}" for n in range(MOST) if call.given(f"X{n}")]
    lines = [numbers_of(call, name, f"{name}_scale", f"{name}_zero_point") for name in names]
    return [*lines, f"y1 = Concat <axis = {call.integer('axis', 0)}> ({', '.join(f'{name}1' for name in names)})", quantised(call)]


@definition("A a_scale a_zero_point B b_scale b_zero_point C y_scale y_zero_point", "Y")
def gemm(call: Call) -> list[str]:
    """Gemm with the integers that are added in units of both scales; not quantised again where no scale is given for that."""
    turned, flipped, alpha = call.integer("transA", 0), call.integer("transB", 0), call.real("alpha", 1.0)
    lines = [numbers_of(call, "A", "a_scale", "a_zero_point"), numbers_of(call, "B", "b_scale", "b_zero_point", 0 if flipped else 1)]
    lines.append(f"x = Gemm <transA = {turned}, transB = {flipped}, alpha = {alpha!r}> (A1, B1)")
    if call.given("C"):
        lines += [number("alpha", alpha), "c0 = Cast <to = 1> (C)", "unit0 = Mul (a_scale, b_scale)", "unit = Mul (alpha, unit0)"]
        lines += ["c = Mul (c0, unit)", "y1 = Add (x, c)"]
    else:
        lines.append("y1 = Identity (x)")
    return [*lines, quantised(call, "y_scale", "y_zero_point") if call.given("y_scale") else "Y = Identity (y1)"]


@definition("A B a_scale b_scale a_zero_point b_zero_point bias", "Y")
def product_to_float(call: Call) -> list[str]:
    """The product of quantised matrices as numbers."""
    zeros = [name if call.given(name) else "" for name in ("a_zero_point", "b_zero_point")]
    lines = [f"x = MatMulInteger ({', '.join(('A', 'B', *zeros)).rstrip(', ')})", "x1 = Cast <to = 1> (x)", "unit = Mul (a_scale, b_scale)"]
    return [*lines, "y1 = Mul (x1, unit)", "Y = Add (y1, bias)" if call.given("bias") else "Y = Identity (y1)"]


@definition("A B b_scale b_zero_point bias", "Y")
def product_quantised_on_the_way(call: Call) -> list[str]:
    """The product of a matrix, quantised by its own ends, and a quantised one."""
    zero = ", b_zero_point" if call.given("b_zero_point") else ""
    lines = ["a, a_scale, a_zero_point = DynamicQuantizeLinear (A)", f"x = MatMulInteger (a, B, a_zero_point{zero})", "x1 = Cast <to = 1> (x)"]
    lines += ["unit = Mul (a_scale, b_scale)", "y1 = Mul (x1, unit)"]
    return [*lines, "Y = Add (y1, bias)" if call.given("bias") else "Y = Identity (y1)"]


QUANTISED: dict[str, Definition] = {
    "QLinearAdd": pairwise("Add"), "QLinearMul": pairwise("Mul"), "QLinearSigmoid": one_by_one("Sigmoid"),
    "QLinearLeakyRelu": one_by_one("LeakyRelu", "alpha"), "QLinearGlobalAveragePool": mean_of_all, "QLinearAveragePool": mean_of_windows,
    "QLinearSoftmax": softmax, "QLinearConcat": concat, "QGemm": gemm, "MatMulIntegerToFloat": product_to_float,
    "DynamicQuantizeMatMul": product_quantised_on_the_way,
}  # fmt: skip
