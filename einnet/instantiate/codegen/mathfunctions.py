"""Scalar functions as branch-free float32 arithmetic on TVM expressions, scalars or vectors alike.

The coefficients are near-minimax fits (Chebyshev expansion at 40 digits, or reweighted least squares) of what each function's docstring says.
Relative errors stay below 1e-6, most below 2e-7, down to twice the least normal number, below which some values are 0. Infinities and large
arguments give the limits, and NaN gives NaN.

A selection by an ordered comparison keeps NaN if that stands on the side that is taken where the comparison fails: `Select(x < low, low, x)` is one
instruction, as `max` is, which keeps NaN in its second operand only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.tirx import Expr

from einnet.expr.functions import FUNCTIONS

_EXP = (0.5, 0.16666573381900845, 0.04166655011030512, 0.008363773874405574, 0.0013926926614021907)
_LOG = (
    0.33333331180030046, -0.24999996957950882, 0.200007157488921, -0.16667802319501254, 0.1424905764569748,
    -0.12425687331451106, 0.1168541992348674, -0.11479733846637635, 0.06971611471451178,
)  # fmt: skip
_TANH = (
    (0.9999999775917701, 0.13374462793143477, 0.0034877948564361965, 2.0480879479146665e-05, 1.3177043674935447e-08),
    (1.0, 0.46707776721512506, 0.02584733049167888, 0.00032728917626839455, 7.703860328137534e-07),
)  # fmt: skip
_ERF = (
    (1.1283791397694327, 0.19352557964599867, 0.053098881956556675, 0.003882416513875287, 0.0002845304034155143, 1.9867521234451834e-06),
    (1.0, 0.5048401417148587, 0.1153416838067789, 0.015205422173682292, 0.0011853177748593505, 3.741797557580737e-05),
)  # fmt: skip
_SIN = (-0.16666654934367775, 0.00833217753775217, -0.00019517214202744926)
_COS = (0.041666646850579726, -0.0013887366708563052, 2.4438355851604845e-05)
_ROUNDING = 1.5 * 2.0**23
"""The sum with a number below 2^22 is a whole number, of which the last bits are those of the sum."""
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""ln 2 in two parts; multiples of the first by integers up to 2^9 are exact."""
_ZERO_BELOW = -87.5
"""An argument of which n is -126: the exponent of 2ⁿ⁻¹ is 0 there, which is how 0 is written."""


def lanes(x: Expr) -> int:
    """The vector length of an expression, 1 for a scalar."""
    return int(x.ty.dtype.lanes)


def number(value: float, like: Expr) -> Expr:
    """A float constant of the same vector length."""
    scalar = tirx.const(value, "float32")
    return tirx.Broadcast(scalar, lanes(like)) if lanes(like) > 1 else scalar


def _integer(value: int, like: Expr) -> Expr:
    scalar = tirx.const(value, "int32")
    return tirx.Broadcast(scalar, lanes(like)) if lanes(like) > 1 else scalar


def _type(kind: str, like: Expr) -> str:
    return f"{kind}x{lanes(like)}" if lanes(like) > 1 else kind


def polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """Σ c[n]·xⁿ by Horner's rule."""
    result = number(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = result * x + number(c, x)
    return result


def negative(x: Expr) -> Expr:
    return x * number(-1.0, x)


def at_least(x: Expr, low: Expr) -> Expr:
    """max(x, low), NaN where x is."""
    return tirx.Select(x < low, low, x)


def at_most(x: Expr, high: Expr) -> Expr:
    """min(x, high), NaN where x is."""
    return tirx.Select(x > high, high, x)


def between(low: float, x: Expr, high: float, bind: Bind) -> Expr:
    """x no farther out than the ends, NaN where x is."""
    return bind(at_least(bind(at_most(x, number(high, x))), number(low, x)))


def exp(x: Expr, bind: Bind) -> Expr:
    """2e^r·2ⁿ⁻¹ with n = round(x/ln 2); e^r - 1 - r fitted on |r| <= 0.35. Below √2·2^-126, where the power has no bits left, it is 0.

    What is added to x/ln 2 leaves no place for digits behind the point: the last bits of the sum are n. r is NaN where x is, and so is the result.
    No result is between 0 and the least normal number: a product with such a one costs a processor as much as a hundred others, and behind a mask
    of -100 most would be.
    """
    clamped = between(_ZERO_BELOW, x, 88.8, bind)
    shifted = bind(clamped * number(1.44269504088896341, x) + number(_ROUNDING, x))
    n = bind(shifted - number(_ROUNDING, x))
    r = bind(clamped - n * number(_LN2_HIGH, x) - n * number(_LN2_LOW, x))
    twice = polynomial([2.0 * c for c in (1.0, 1.0, *_EXP)], r)
    exponent = tirx.reinterpret(_type("int32", x), shifted) + _integer(126, x)
    return twice * tirx.reinterpret(_type("float32", x), exponent << _integer(23, x))


def log(x: Expr, bind: Bind) -> Expr:
    """e·ln 2 + ln(1+f) with sqrt(1/2) <= 1+f < sqrt(2); ln(1+f) - f + f²/2 fitted. log 0 = -inf, log of a negative number is NaN."""
    denormal = x < number(1.17549435e-38, x)
    scaled = bind(tirx.Select(denormal, x * number(8388608.0, x), x))
    bits = bind(tirx.reinterpret(_type("int32", x), scaled))
    exponent = bind((bits - _integer(0x3F3504F3, x)) >> _integer(23, x))
    f = bind(tirx.reinterpret(_type("float32", x), bits - (exponent << _integer(23, x))) - number(1.0, x))
    e = bind(exponent.astype(_type("float32", x)) - tirx.Select(denormal, number(23.0, x), number(0.0, x)))
    small = polynomial(_LOG, f) * (f * f * f) + e * number(_LN2_LOW, x) - number(0.5, x) * (f * f)
    finite = f + small + e * number(_LN2_HIGH, x)
    infinity, zero = number(float("inf"), x), number(0.0, x)
    special = tirx.Select(tirx.EQ(x, zero), negative(infinity), number(float("nan"), x))
    return tirx.Select(x > zero, tirx.Select(x < infinity, finite, infinity), special)


def odd_rational(x: Expr, limit: float, coefficients: tuple[Sequence[float], Sequence[float]], bind: Bind) -> Expr:
    """x·P(x²)/Q(x²) for |x| <= limit, where the value rounds to ±1; never beyond ±1."""
    clamped = between(-limit, x, limit, bind)
    u = bind(clamped * clamped)
    return between(-1.0, bind(clamped * polynomial(coefficients[0], u) / polynomial(coefficients[1], u)), 1.0, bind)


def tanh(x: Expr, bind: Bind) -> Expr:
    """A rational function fitted to relative error on |x| <= 9.1."""
    return odd_rational(x, 9.1, _TANH, bind)


def sigmoid(x: Expr, bind: Bind) -> Expr:
    """1/(1+e^{-x})."""
    return number(1.0, x) / (number(1.0, x) + exp(bind(negative(x)), bind))


def _turned(x: Expr, ahead: int, bind: Bind) -> tuple[Expr, Expr]:
    """(m, r) with x = n*pi/2 + r, |r| <= pi/4 and m = n + ahead modulo 4. In double precision: r errs by 2^-52 of x, which is nothing up to 10^8."""

    def constant(value: float) -> Expr:
        scalar = tirx.const(value, "float64")
        return tirx.Broadcast(scalar, lanes(x)) if lanes(x) > 1 else scalar

    wide = x.astype(_type("float64", x))
    n = tirx.nearbyint(wide * constant(2 / math.pi))
    rest = bind((wide - n * constant(math.pi / 2)).astype(_type("float32", x)))
    place = n + constant(float(ahead))
    whole = tirx.floor(place * constant(0.25)) * constant(4.0)
    return bind((place - whole).astype(_type("float32", x))), between(-math.pi / 4, rest, math.pi / 4, bind)


def _wave(x: Expr, ahead: int, bind: Bind) -> Expr:
    """The sine of x and so many right angles: a polynomial of the sine or of the cosine of r, by whether the number of right angles is even."""
    m, r = _turned(x, ahead, bind)
    u = bind(r * r)
    sine = r + r * (u * polynomial(_SIN, u))
    cosine = number(1.0, x) - number(0.5, x) * u + u * u * polynomial(_COS, u)
    odd = tirx.EQ(tirx.abs(m - number(2.0, x)), number(1.0, x))
    size = bind(tirx.Select(odd, cosine, sine))
    return tirx.Select(m < number(1.5, x), size, negative(size))


def sin(x: Expr, bind: Bind) -> Expr:
    """An absolute error below 2e-7 up to 10^8."""
    return _wave(x, 0, bind)


def cos(x: Expr, bind: Bind) -> Expr:
    """As `sin`."""
    return _wave(x, 1, bind)


def erf(x: Expr, bind: Bind) -> Expr:
    """A rational function fitted to relative error on |x| <= 4."""
    return odd_rational(x, 4.0, _ERF, bind)


def softplus(x: Expr, bind: Bind) -> Expr:
    """max(x,0) + ln(1+y), y = e^{-|x|}; the rounding of 1+y is undone by the factor y/((1+y)-1)."""
    y = bind(exp(bind(negative(tirx.abs(x))), bind))
    one = number(1.0, x)
    u = bind(one + y)
    small = y < number(1e-7, x)
    ratio = y / tirx.Select(small, one, u - one)
    return relu(x, bind) + tirx.Select(small, y, log(u, bind) * ratio)


def relu(x: Expr, bind: Bind) -> Expr:
    return at_least(x, number(0.0, x))


def sign(x: Expr, bind: Bind) -> Expr:
    zero, one = number(0.0, x), number(1.0, x)
    return tirx.Select(x > zero, one, tirx.Select(x < zero, negative(one), x))


def power(x: Expr, y: Expr, bind: Bind) -> Expr:
    """x^y; small whole and half constant exponents by multiplication and square root, the rest by the C library."""
    constant = y.value if isinstance(y, tirx.Broadcast) else y
    match constant.value if isinstance(constant, tirx.FloatImm) else None:
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 0.5:
            return tirx.sqrt(x)
        case 1.0:
            return x
        case -1.0:
            return number(1.0, x) / x
    return tirx.pow(x, y)


def _rounded_bits(x: Expr, lost: int) -> Expr:
    """x without its last so many binary digits, to nearest and half to even: what is added carries into the exponent where it has to."""
    bits = tirx.reinterpret(_type("int32", x), x)
    odd = (bits >> _integer(lost, x)) & _integer(1, x)
    return tirx.reinterpret(_type("float32", x), (bits + odd + _integer((1 << lost - 1) - 1, x)) & _integer(-(1 << lost), x))


def as_bf16(x: Expr, bind: Bind) -> Expr:
    """The upper half of the bits; NaN as it is."""
    return tirx.Select(tirx.isnan(x), x, _rounded_bits(x, 16))


def as_f16(x: Expr, bind: Bind) -> Expr:
    """Below 2^-14 to multiples of 2^-24, the digits that a sum with 1/2 keeps; from 65520 on infinity. NaN and infinities as they are."""
    size, half = bind(tirx.abs(x)), number(0.5, x)
    small = bind(bind(size + half) - half)
    large = bind(_rounded_bits(size, 13))
    found = tirx.Select(size < number(2.0**-14, x), small, tirx.Select(size < number(65520.0, x), large, size * number(float("inf"), x)))
    return _signed(tirx.reinterpret(_type("int32", x), x), bind(found))


def _signed(bits: Expr, size: Expr) -> Expr:
    """A number of this size with the sign of the bits of a float32."""
    sign = bits & _integer(-(1 << 31), bits)
    return tirx.reinterpret(_type("float32", bits), tirx.reinterpret(_type("int32", bits), size) | sign)


def widened(bits: Expr, kind: str) -> Expr:
    """The float32 that a number of a shorter type is, from the 16 bits that hold it."""
    wide = bits.astype(_type("int32", bits))
    if kind == "bf16":
        return tirx.reinterpret(_type("float32", bits), wide << _integer(16, bits))
    size = wide & _integer(0x7FFF, bits)
    scaled = tirx.reinterpret(_type("float32", bits), size << _integer(13, bits)) * number(2.0**112, bits)
    special = tirx.reinterpret(_type("float32", bits), (size << _integer(13, bits)) | _integer(0x7F800000, bits))
    found = tirx.Select(size < _integer(0x7C00, bits), scaled, special)
    return _signed(wide << _integer(16, bits), found)


def truth(condition: Expr, like: Expr) -> Expr:
    """1 where the condition holds, else 0."""
    return tirx.Select(condition, number(1.0, like), number(0.0, like))


def constant(x: Expr) -> bool:
    """A number that is known, in one lane or all."""
    return isinstance(x.value if isinstance(x, tirx.Broadcast) else x, tirx.FloatImm)


def maximum(x: Expr, y: Expr, bind: Bind) -> Expr:
    """NaN where either is: two instructions more unless one of them is a number that is known."""
    if constant(x) or constant(y):
        return at_least(bind(y), x) if constant(x) else at_least(bind(x), y)
    x, y = bind(x), bind(y)
    return tirx.Select(tirx.isnan(y), y, at_least(x, y))


def minimum(x: Expr, y: Expr, bind: Bind) -> Expr:
    """As `maximum`."""
    if constant(x) or constant(y):
        return at_most(bind(y), x) if constant(x) else at_most(bind(x), y)
    x, y = bind(x), bind(y)
    return tirx.Select(tirx.isnan(y), y, at_most(x, y))


Bind = Callable[[Expr], Expr]
"""Names a value that is used more than once."""

UNARY: dict[str, Callable[[Expr, Bind], Expr]] = {
    "relu": relu, "exp": exp, "log": log, "tanh": tanh, "sigmoid": sigmoid, "erf": erf, "softplus": softplus, "sign": sign,
    "sqrt": lambda x, bind: tirx.sqrt(x),
    "abs": lambda x, bind: tirx.abs(x),
    "floor": lambda x, bind: tirx.floor(x),
    "ceil": lambda x, bind: tirx.ceil(x),
    "round": lambda x, bind: tirx.nearbyint(x),
    "sin": sin, "cos": cos,
    "as_f16": as_f16, "as_bf16": as_bf16,
    "not": lambda x, bind: truth(tirx.EQ(x, number(0.0, x)), x),
    "isnan": lambda x, bind: truth(tirx.isnan(x), x),
}  # fmt: skip
"""Forms of one argument; other functions are the C library's."""

BINARY: dict[str, Callable[[Expr, Expr, Bind], Expr]] = {
    "max": maximum,
    "min": minimum,
    "pow": power,
    "less": lambda x, y, bind: truth(x < y, x),
    "equal": lambda x, y, bind: truth(tirx.EQ(x, y), x),
    "add": lambda x, y, bind: x + y,
    "sum": lambda x, y, bind: x + y,
    "mul": lambda x, y, bind: x * y,
    "div": lambda x, y, bind: x / y,
}  # fmt: skip

TERNARY: dict[str, Callable[[Expr, Expr, Expr, Bind], Expr]] = {
    "choose": lambda c, x, y, bind: tirx.Select(tirx.NE(c, number(0.0, c)), x, y),
}


def called(name: str, args: Sequence[Expr], bind: Bind) -> Expr:
    """A function of the language on arguments of one vector length, each computed once."""
    match args:
        case (x,):
            return UNARY[name](x, bind) if name in UNARY else library(name, x)
        case (x, y):
            return BINARY[name](x, y, bind) if name in BINARY else library(name, x, y)
        case (x, y, z):
            return TERNARY[name](x, y, z, bind) if name in TERNARY else library(name, x, y, z)
    raise TypeError(name)


def library(name: str, *args: Expr) -> Expr:
    """The C library's function, lane by lane."""
    own = FUNCTIONS[name].library
    assert own is not None, f"no form of {name}"
    width = lanes(args[0])
    if width == 1:
        return tirx.call_pure_extern("float32", f"{own}f", *args)
    each = [tirx.call_pure_extern("float32", f"{own}f", *(tirx.Shuffle([x], [k]) for x in args)) for k in range(width)]
    return tirx.Shuffle(each, list(range(width)))
