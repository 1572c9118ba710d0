"""Products of bytes: equal to sums of integers bit for bit, at both ends of both types, and refused where they would not be."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from einnet.errors import ArtifactError, UsageError
from einnet.evidence.meaning import meaning
from einnet.expr.integers import MOST_TERMS
from einnet.expr.nodes import Scope, Tensor, reads, tensors, walk
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build as build_kernels
from einnet.instantiate.codegen import build, lower
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Kernel, Matmul, NotLifted, Plan, Post, Shown, View, dense_view
from einnet.instantiate.kernels.arithmetics import F32, I8U8, U8I8, VNNI, coarsest
from einnet.instantiate.kernels.contractions import Contraction
from einnet.instantiate.matching.types import Match
from einnet.instantiate.registry import TABLES
from einnet.runtime import artifact, machine
from einnet.runtime.arena import check_plan
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.dnnl_kernels import prepare
from einnet.runtime.cpu.program import Executable
from einnet.runtime.serial import plan_from_json, plan_json
from tests.instantiate.compiled import dense
from tests.runtime.plans import NHWC
from tests.runtime.reference import layout

here = pytest.mark.skipif(
    bool(dnnl.available() or dnnl.limit() or U8I8.missing(machine.cpu_features())), reason="no products of bytes on this processor"
)

KERNELS: dict[str, Contraction] = {
    "product": Matmul(dense_view("x", (10, 96)), dense_view("w", (96, 24)), dense_view("y", (10, 24)), arithmetic=U8I8),
    "one row": Matmul(dense_view("x", (1, 300)), dense_view("w", (300, 24)), dense_view("y", (1, 24)), arithmetic=U8I8),
    "transposed weights": Matmul(dense_view("x", (10, 96)), layout("w", (96, 24), (1, 0)), dense_view("y", (10, 24)), arithmetic=U8I8),
    "posts": Matmul(
        dense_view("x", (10, 96)), dense_view("w", (96, 24)), dense_view("y", (10, 24)),
        (Post("add", dense_view("b", (1, 24))), Post("mul", dense_view("b", (1, 24))), Post("relu")), U8I8,
    ),
    "a part of a buffer": Matmul(View("x", (10, 96), (100, 1), 5), View("w", (96, 24), (30, 1), 7), View("y", (10, 24), (24, 1), 3), arithmetic=U8I8),
    "convolution": Conv(
        layout("x", (1, 16, 9, 9), NHWC), layout("w", (1, 8, 16, 3, 3)), layout("y", (1, 8, 9, 9), NHWC), (1, 1), (1, 1), (1, 1), (1, 1),
        arithmetic=U8I8,
    ),
    "strided": Conv(
        layout("x", (2, 32, 9, 9), NHWC), layout("w", (1, 16, 32, 3, 3)), layout("y", (2, 16, 5, 5), NHWC), (2, 2), (1, 1), (1, 1), (1, 1),
        post=(Post("relu"),), arithmetic=U8I8,
    ),
    "each channel by itself": Conv(
        layout("x", (1, 32, 9, 9), NHWC), layout("w", (32, 1, 1, 3, 3)), layout("y", (1, 32, 9, 9), NHWC), (1, 1), (1, 1), (1, 1), (1, 1),
        arithmetic=U8I8,
    ),
    "bytes of a product": Matmul(
        dense_view("x", (10, 96)), dense_view("w", (96, 24)), dense_view("y", (10, 24)),
        (Post("mul", dense_view("b", (1, 24))), Post("add", dense_view("b", (1, 24))), Post("u8", None, 512.0, 3.0)), U8I8,
    ),
    "bytes of one row": Matmul(
        dense_view("x", (1, 300)), dense_view("w", (300, 24)), dense_view("y", (1, 24)), (Post("u8", None, 4096.0),), U8I8
    ),
    "bytes of a convolution": Conv(
        layout("x", (1, 16, 9, 9), NHWC), layout("w", (1, 8, 16, 3, 3)), layout("y", (1, 8, 9, 9), NHWC), (1, 1), (1, 1), (1, 1), (1, 1),
        post=(Post("add", layout("b", (1, 8, 1, 1), NHWC)), Post("u8", None, 1024.0, 117.0)), arithmetic=U8I8,
    ),
    "bytes of each channel": Conv(
        layout("x", (1, 32, 9, 9), NHWC), layout("w", (32, 1, 1, 3, 3)), layout("y", (1, 32, 9, 9), NHWC), (1, 1), (1, 1), (1, 1), (1, 1),
        post=(Post("u8", None, 256.0, 5.0),), arithmetic=U8I8,
    ),
    "integers as floats": Matmul(
        dense_view("x", (10, 96)), dense_view("w", (96, 24)), dense_view("y", (10, 24)), (Post("u8_in_f32", None, 2048.0, 8.0),), U8I8,
    ),
    "integers in between": Matmul(
        dense_view("x", (10, 96)), dense_view("w", (96, 24)), dense_view("y", (10, 24)),
        (Post("u8", None, 2048.0), Post("linear", None, 0.5, 0.25)), U8I8,
    ),
}  # fmt: skip

DRAWS = {"any": (None, None), "most": (255, 127), "least": (255, -128), "both ends": ((0, 255), (-128, 127))}


def plan_of(kernel: Contraction, weights: np.ndarray | None, posts: np.ndarray) -> Plan:
    sizes: dict[str, int] = {}
    for v in (*kernel.operand_views, *kernel.result_views):
        sizes[v.buffer] = max(sizes.get(v.buffer, 0), v.offset + 1 + sum(s * (n - 1) for n, s in zip(v.shape, v.strides)))
    constants = {} if weights is None else {"w": weights[: sizes["w"]]}
    constants |= {"b": posts[: sizes["b"]]} if "b" in sizes else {}
    kinds = {"x": "u8", "w": "i8", "y": kernel.stored}
    roles = {n: "constant" if n in constants else "output" if n == "y" else "input" for n in sizes}
    buffers = tuple(Buffer(n, size, kinds.get(n, "f32"), roles[n]) for n, size in sizes.items())
    flat = {n: View(n, (size,), (1,)) for n, size in sizes.items()}
    inputs = tuple((n, v) for n, v in flat.items() if roles[n] == "input")
    return Plan(buffers, (kernel,), inputs, (("y", flat["y"]),), constants)


def drawn(size: int, dtype: str, ends: object, seed: int) -> np.ndarray:
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    if ends is None:
        return rng.integers(info.min, info.max + 1, size).astype(dtype)
    return rng.choice(np.atleast_1d(np.array(ends)), size).astype(dtype)


def taken(view: View, flat: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, [s * flat.itemsize for s in view.strides])


def wanted(kernel: Contraction, held: dict[str, np.ndarray]) -> np.ndarray:
    """Sums of integers, then the posts in float64."""
    named: dict[View, Tensor] = {}
    scope = meaning(kernel, Shown(lambda v: named.setdefault(v, Tensor(f"x{len(named)}", v.shape))), lambda x: x)  # type: ignore[arg-type,return-value]
    return np.asarray(evaluate(scope, {t.name: taken(v, held[v.buffer]).astype(np.float64) for v, t in named.items()}))


WAYS = [(name, constant) for name, k in KERNELS.items() for constant in (True, False) if constant or isinstance(k, Matmul)]
"""Convolutions take weights that are known, in a layout of the library's."""


@here
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("name", "constant"), WAYS)
def test_sums_of_integers_are_exact(name: str, constant: bool, draw: str) -> None:
    kernel, ends = KERNELS[name], DRAWS[draw]
    held = {"x": drawn(8000, "uint8", ends[0], 1), "w": drawn(8000, "int8", ends[1], 2), "b": (np.arange(24) % 5 - 2).astype(np.float32)}
    plan = plan_of(kernel, held["w"] if constant else None, held["b"])
    program = Executable(plan, 2, strict=True)
    sizes = {b.name: b.size for b in plan.buffers}
    y = program({n: held[n][: sizes[n]] for n in program.input_names})["y"]
    assert np.array_equal(taken(kernel.result, y), wanted(kernel, held))


TIES = Matmul(dense_view("x", (256, 4)), dense_view("w", (4, 24)), dense_view("y", (256, 24)), arithmetic=U8I8)


@here
@pytest.mark.parametrize("zero", [0, 1, 2, 116])
@pytest.mark.parametrize("kind", ["u8", "u8_in_f32"])
def test_the_middle_of_two_integers_goes_to_the_even_one_before_the_zero_point_is_added(kind: str, zero: int) -> None:
    """Also next to the middle, where a number and a zero point added first would meet it, and far beyond both ends."""
    row = dense_view("b", (1, 24))
    for post, b, scale, most in ((Post("add", row), 0.0, 2.0, 256), (Post("add", row), 0.5 - 2.0**-20, 1.0, 8), (Post("mul", row), 1e9, 2.0, 256)):
        kernel = TIES.with_posts((post, Post(kind, None, scale, zero)))
        x, w = np.zeros((256, 4), np.uint8), np.zeros((4, 24), np.int8)
        x[:, 0], w[0] = np.arange(256) % most, 1 - 2 * (np.arange(24) % 2)
        held = {"x": x.reshape(-1), "w": w.reshape(-1), "b": np.full(24, b, np.float32)}
        y = Executable(plan_of(kernel, held["w"], held["b"]), 1, strict=True)({"x": held["x"]})["y"]
        assert y.dtype == (np.uint8 if kind == "u8" else np.float32)
        assert np.array_equal(taken(kernel.result, y), wanted(kernel, held))


def test_what_a_buffer_has_is_stored() -> None:
    """Integers go into a buffer of bytes as bytes, and into one of floats as floats; what is not rounded last stays."""
    kernel = KERNELS["bytes of a product"]
    floats = kernel.storing("f32")
    assert (kernel.stored, floats.stored, floats.post[-1].kind, floats.storing("u8")) == ("u8", "f32", "u8_in_f32", kernel)
    assert all(k.storing(kind) == k for k in (KERNELS["posts"], KERNELS["product"], KERNELS["integers in between"]) for kind in ("u8", "f32"))
    assert {k.stored for n, k in KERNELS.items() if "bytes" not in n} == {"f32"}


def test_a_processor_without_the_instructions_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_features", lambda: frozenset({"avx512f", "avx512bw"}))
    if dnnl.available():
        pytest.skip("no library")
    with pytest.raises(Refused, match="avx512_vnni"):
        prepare(KERNELS["product"], ("w",))
    assert artifact.instructions(Plan((), (KERNELS["product"],), (), ())) == sorted(VNNI)


@here
def test_code_that_adds_up_in_16_bits_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library has such code, whose name does not say vnni, for processors with fewer instructions."""
    kernel = KERNELS["convolution"]
    assert prepare(kernel, ("w",)).implementation.endswith("vnni")
    monkeypatch.setattr(dnnl.PrimitiveDesc, "implementation", property(lambda self: "jit_int8:avx512_core"))
    with pytest.raises(Refused, match="16 bits"):
        prepare(kernel, ("w",))
    prepare(kernel.in_arithmetic(F32), ("w",))


@pytest.mark.parametrize("buffer", ["x", "w", "y"])
def test_a_buffer_of_another_type_is_refused(buffer: str) -> None:
    plan = plan_of(KERNELS["product"], None, np.zeros(0))
    check_plan(plan)
    for kind in ("f32", "i8", "u8"):
        changed = replace(plan, buffers=tuple(replace(b, dtype=kind) if b.name == buffer else b for b in plan.buffers))
        if changed.buffers != plan.buffers:
            with pytest.raises(UsageError, match=f"{buffer} of {kind} for one of"):
                check_plan(changed)


def test_integers_round_nothing() -> None:
    assert (U8I8.roundoff, I8U8.roundoff, U8I8.rounds, U8I8.whole) == (0.0, 0.0, False, True)
    assert coarsest([U8I8]).name == "f32"


@pytest.mark.parametrize("name", KERNELS)
def test_they_are_stored(name: str) -> None:
    plan = Plan((), (KERNELS[name],), (), ())
    assert plan_from_json(json.loads(json.dumps(plan_json(plan, lambda _: 0))), lambda _: b"", {}).kernels == plan.kernels


# matching


def first(text: str) -> Match | None:
    found = (table.match(parse(text)) for table in TABLES)
    return next((m for m in found if isinstance(m, Match)), None)


PRODUCT = "U : u8[9,16]\nW : weight i8[16,8]\nL[i<9,j<8] Σ[k<16] U[i,k]*W[k,j]"
WINDOW = "U : u8[1,9,9,16]\nW : weight i8[8,16,3,3]\nL[n<1,h<9,w<9,f<8] Σ[c<16,r<3,s<3] U[n,h+r-1,w+s-1,c]*W[f,c,r,s]"


@pytest.mark.parametrize("text", [PRODUCT, WINDOW])
def test_a_product_of_bytes_is_matched_as_one(text: str) -> None:
    found = first(text)
    assert found is not None
    assert isinstance(found.kernel, Contraction)
    assert found.kernel.arithmetic in (U8I8, I8U8)
    assert tuple(o.dtype for o in found.operands) == found.kernel.arithmetic.elements  # type: ignore[union-attr]


@pytest.mark.parametrize("kinds", [("u8", "u8"), ("i8", "i8"), ("f32", "i8"), ("u8", "f32"), ("i32", "i8")])
@pytest.mark.parametrize("text", [PRODUCT, WINDOW])
def test_other_types_are_not(text: str, kinds: tuple[str, str]) -> None:
    assert first(text.replace("u8", kinds[0], 1).replace("i8", kinds[1], 1) if kinds[0] != "i8" else text.replace("u8", "i8", 1)) is None


def test_a_sum_that_may_leave_32_bits_is_not() -> None:
    for terms in (MOST_TERMS, MOST_TERMS + 1):
        text = f"U : u8[9,{terms}]\nW : weight i8[{terms},8]\nL[i<9,j<8] Σ[k<{terms}] U[i,k]*W[k,j]"
        assert (first(text) is not None) == (terms == MOST_TERMS)
    assert MOST_TERMS * 255 * 128 < 1 << 31 <= (MOST_TERMS + 1) * 255 * 128


# generated kernels that write bytes

BYTES = {
    "rows": "X : f32[5,37]\nL[i<5,j<37] min(max(round(X[i,j] / 0.02) + 128, 0), 255)",
    "moved": "X : f32[9,5,21]\nL[h<5,w<21,c<9] min(max(round(X[c,h,w]*3), 0), 255)",
    "padded": "U : u8[9,9,16]\nL[h<13,w<12,c<16] U[h-2,w-1,c]|7",
    "windows": "U : u8[9,9,40]\nL[h<5,w<5,c<40] max[r<3,s<3] U[2*h+r-1,2*w+s-1,c]|-inf",
    "one": "X : f32[1]\nL[i<1] min(max(round(X[i]), 0), 255)",
    "transposed": "U : u8[18,33]\nL[j<33,i<18] U[i,j]",
    "sums": "U : u8[6,40]\nL[c<40] min(max(round({L[c<40] Σ[i<6] U[i,c]}[c] / 6), 0), 255)",
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", BYTES)
def test_bytes_are_written(name: str, threads: int) -> None:
    rng, op = np.random.default_rng(4), replace(dense(BYTES[name]), dtype="u8")
    held = {n: rng.integers(0, 256, t.shape).astype(np.uint8) if t.dtype == "u8" else rng.uniform(-40, 40, t.shape).astype(np.float32)
            for n, t in tensors(op.scope).items()}  # fmt: skip
    kernel = lower(op, "kernel", threads)
    size = int(np.prod(op.scope.shape))
    out = np.full(size + 64, 99, np.uint8)
    arrays = [held[n] for n in kernel.params[:-1]]
    build([kernel])["kernel"](*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)))
    exact = evaluate(op.scope, held, dtype="float64").reshape(-1)
    assert (np.abs(out[:size].astype(int) - exact) <= ("X" in BYTES[name] or name == "sums")).all()
    assert (out[:size] == exact).mean() > 0.95, "but for the middle between two integers"
    assert (out[size:] == 99).all(), "elements outside the output were written"


def test_only_integers_of_the_type_are_stored_as_such() -> None:
    def shown(op: EOperator) -> object:
        return op.meaning(Shown(lambda v: Tensor(v.buffer, v.shape)))

    op = dense(BYTES["rows"])
    assert shown(replace(op, dtype="u8")) == shown(op)
    for dtype, text in (("i8", BYTES["rows"]), ("u8", "X : f32[3]\nL[i<3] round(X[i])"), ("u8", "X : f32[3]\nL[i<3] max(X[i], 0)")):
        with pytest.raises(NotLifted, match=dtype):
            shown(replace(dense(text), dtype=dtype))


def test_the_type_of_a_result_is_stored() -> None:
    op: Kernel = replace(dense(BYTES["rows"]), dtype="u8")
    value = plan_json(Plan((), (op,), (), ()), lambda _: 0)
    assert plan_from_json(json.loads(json.dumps(value)), lambda _: b"", {}).kernels == (op,)
    assert "dtype" not in plan_json(Plan((), (dense(BYTES["rows"]),), (), ()), lambda _: 0)["kernels"][0]
    value["kernels"][0]["dtype"] = "i64"
    with pytest.raises(ArtifactError, match="i64"):
        plan_from_json(value, lambda _: b"", {})


# what a product of bytes is rounded to

ROUNDED = {
    "min(max(round({P}[i,j] / 0.023) + 7, 0), 255)": ("u8", Fraction(23, 1000), 7),
    "min(max(round({P}[i,j]), 0), 255)": ("u8", 1.0, 0.0),
    "min(max(round(({P}[i,j]*S[j] + S[j]) / 3), 0), 255)": ("mul", "add", "u8"),
    "min(max(round(min(max({P}[i,j], 0), 6) / 0.0235), 0), 255)": ("clip", "u8"),
    "min(max(round({P}[i,j] / 3) + 7, 0), 127)": (),
    "min(max(round({P}[i,j] / 3) + 7, -128), 127)": (),
    "min(max(round({P}[i,j] / 3) + 0.5, 0), 255)": (),
    "min(max(round({P}[i,j] / S[j]) + 7, 0), 255)": (),
    "min(max(round({P}[i,j] / -3) + 7, 0), 255)": (),
    "min(max(floor({P}[i,j] / 3), 0), 255)": (),
}


@pytest.mark.parametrize("text", ROUNDED)
@pytest.mark.parametrize("kinds", [("u8", "i8"), ("f32", "f32")])
def test_where_a_sum_of_bytes_is_rounded_last_bytes_are_stored(text: str, kinds: tuple[str, str]) -> None:
    product = "{L[i<9,j<8] Σ[k<16] U[i,k]*W[k,j]}"
    scope = parse(f"U : {kinds[0]}[9,16]\nW : weight {kinds[1]}[16,8]\nS : weight f32[8]\nL[i<9,j<8] {text.replace('{P}', product)}".replace(
        "S : weight f32[8]\n", "S : weight f32[8]\n" if "S[" in text else ""))  # fmt: skip
    (sum_,) = {r.base for r in reads(scope.body) if isinstance(r.base, Scope)}
    match = next(m for table in TABLES if isinstance(m := table.match(sum_), Match))
    kernels = build_kernels(scope, {sum_: match}, "out").kernels
    expected = ROUNDED[text] if kinds == ("u8", "i8") else ()
    if not expected:
        assert [k.posts for k in kernels if isinstance(k, Contraction)] == [()] and isinstance(kernels[-1], EOperator)
        return
    (kernel,) = kernels
    found = kernel.posts[-1]
    assert expected in ((found.kind, found.alpha, found.beta), tuple(p.kind for p in kernel.posts))
    assert (kernel.storing("u8").elements[-1], kernel.storing("f32").elements[-1]) == ((kernel.result, "u8"), (kernel.result, "f32"))


def test_what_stays_inside_a_subprogram_is_stored_as_floats() -> None:
    """Temporary buffers hold floats."""
    text = "U : u8[9,16]\nW : weight i8[16,8]\nL[i<9,j<8] {L[i<9,j<8] min(max(round({L[i<9,j<8] Σ[k<16] U[i,k]*W[k,j]}[i,j] / 3), 0), 255)}[i,7-j]"
    scope = parse(text)
    (inner,) = (s for s in walk(scope) if s.sums)
    match = next(m for table in TABLES if isinstance(m := table.match(inner), Match))
    built = build_kernels(scope, {inner: match}, "out")
    assert all(v.buffer == "out" or kind == "f32" for k in built.kernels for v, kind in k.elements if v in k.result_views)
