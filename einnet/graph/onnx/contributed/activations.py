"""Activations, and what is applied to a result within the operator that computes it."""

from __future__ import annotations

from einnet.graph.onnx.contributed.call import Call, Definition, Undefined, definition, number


@definition("A B", "C")
def bias_gelu(call: Call) -> list[str]:
    return ["x = Add (A, B)", "C = Gelu (x)"]


@definition("X bias", "Y")
def fast_gelu(call: Call) -> list[str]:
    return ["x = Add (X, bias)" if call.given("bias") else "x = Identity (X)", 'Y = Gelu <approximate = "tanh"> (x)']


@definition("X", "Y")
def gelu(call: Call) -> list[str]:
    return ["Y = Gelu (X)"]


@definition("X", "Y")
def quick_gelu(call: Call) -> list[str]:
    """x·sigmoid(alpha·x)."""
    return [number("alpha", call.real("alpha", 1.702)), "z = Mul (X, alpha)", "s = Sigmoid (z)", "Y = Mul (X, s)"]


PARAMETERS = {
    "LeakyRelu": {"alpha": 0.01}, "Elu": {"alpha": 1.0}, "ThresholdedRelu": {"alpha": 1.0}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Softplus": {}, "Softsign": {}, "Gelu": {}, "HardSwish": {},
}  # fmt: skip
"""Activations that are operators of the standard, and the defaults of their attributes there."""


def activated(kind: str, given: list[float], source: str, result: str) -> list[str]:
    """The lines that apply an activation, with its parameters in the order of its attributes."""
    if kind in ("", "Identity"):
        return [f"{result} = Identity ({source})"]
    if kind == "Clip" and len(given) == 2:
        return [number("least", given[0]), number("most", given[1]), f"{result} = Clip ({source}, least, most)"]
    if kind not in PARAMETERS:
        raise Undefined(f"activation {kind!r}")
    values = {name: value for (name, _), value in zip(PARAMETERS[kind].items(), given)}
    told = ", ".join(f"{name} = {value!r}" for name, value in {**PARAMETERS[kind], **values}.items())
    return [f"{result} = {kind} <{told}> ({source})" if told else f"{result} = {kind} ({source})"]


ACTIVATIONS: dict[str, Definition] = {"BiasGelu": bias_gelu, "FastGelu": fast_gelu, "Gelu": gelu, "QuickGelu": quick_gelu}
