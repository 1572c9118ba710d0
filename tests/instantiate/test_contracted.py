"""Sums of products of two arrays as kernels whose copies are on their way while they multiply: texts, their mutants, the model of the device."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda import thread_blocks
from einnet.instantiate.codegen.cuda.contracted import contracted
from einnet.instantiate.codegen.cuda.contracted_sizes import MARGIN, Pipelined, Stages, apart, cycles, faster, fits, pipelined, sizes, ways
from einnet.instantiate.codegen.cuda.emit import lower_cuda
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.cuda.tiling import FILE, MEMORY, OPERATIONS
from einnet.instantiate.codegen.resolve import OUT, resolve
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.runtime.cuda import nvrtc, shim
from tests.instantiate.attention_cases import executed
from tests.instantiate.cuda_cases import operator

needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")

KINDS = {
    "multiply-adds": Stages(8, 8, 4, 4, 8, 3),
    "four stages": Stages(4, 16, 2, 4, 16, 4),
    "a cluster": Stages(8, 8, 2, 4, 8, 3, 4),
    "pieces": Stages(2, 1, 1, 2, 8, 3, 1, True),
    "pieces of a cluster": Stages(2, 2, 2, 2, 16, 4, 2, True),
}

CASES = {
    "product": ("L[i<64,j<64] Σ[k<64] A[i,k]*B[k,j]", {"A": (64, 64), "B": (64, 64)}),
    "ragged": ("L[i<70,j<51] Σ[k<45] A[i,k]*B[k,j]", {"A": (70, 45), "B": (45, 51)}),
    "both turned": ("L[i<40,j<36] Σ[k<33] A[k,i]*B[j,k]", {"A": (33, 40), "B": (36, 33)}),
    "batch": ("L[b<3,i<20,j<24] Σ[k<36] A[b,i,k]*B[b,j,k]", {"A": (3, 20, 36), "B": (3, 24, 36)}),
    "epilogue": (
        "L[i<40,j<48] relu({L[i<40,j<48] Σ[k<32] A[i,k]*B[j,k]}[i,j]+C[j]+D[i,j])",
        {"A": (40, 32), "B": (48, 32), "C": (48,), "D": (40, 48)},
    ),
    "convolution": ("L[f<40,h<9,w<11] Σ[c<8,r<3,s<3] A[c,h+r-1,w+s-1]*K[f,c,r,s]", {"A": (8, 9, 11), "K": (40, 8, 3, 3)}),
    "strided": ("L[n<2,f<20,h<7,w<5] Σ[c<6,r<3,s<2] A[n,c,2*h+r-1,2*w+s]*K[f,c,r,s]", {"A": (2, 6, 14, 11), "K": (20, 6, 3, 2)}),
    "every fourth row": ("L[i<24,j<20] Σ[k<40] A[4*i+1,k]*B[k,2*j]", {"A": (96, 40), "B": (40, 40)}),
}  # fmt: skip


def forced(monkeypatch: pytest.MonkeyPatch, kind: Stages) -> None:
    """Every nest of that form is written with these sizes."""

    def sized(nest, tensor=False):
        form = contracted(nest)
        if form is None:
            return None
        (above, high), (beside, broad) = ways(form)
        return Pipelined(form, replace(kind, above=above, beside=beside, high=high, broad=broad), 0.0)

    monkeypatch.setattr(thread_blocks, "faster", sized)


def whole(op: EOperator, seed: int) -> dict[str, np.ndarray]:
    """Small integers, whose sums are exact in every order, and products of which on tensor cores, too."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-4, 5, view.shape).astype(np.float32) for name, view in op.operands}


def random_case(seed: int) -> tuple[str, dict[str, tuple[int, ...]]]:
    """A product or a convolution of random sizes, order, strides and padding."""
    rng = np.random.default_rng(seed)
    i, j, k, b = (int(n) for n in rng.integers((17, 17, 17, 1), (60, 60, 70, 4)))
    if seed % 2:
        a, c = ("A[b,i,k]", (b, i, k)) if rng.integers(2) else ("A[b,k,i]", (b, k, i))
        d, e = ("B[b,j,k]", (b, j, k)) if rng.integers(2) else ("B[k,j]", (k, j))
        return f"L[b<{b},i<{i},j<{j}] Σ[k<{k}] {a}*{d}", {"A": c, "B": e}
    stride, pad, channels = int(rng.integers(1, 3)), int(rng.integers(0, 3)), int(rng.integers(3, 9))
    h, w, taps = (int(n) for n in rng.integers((4, 4, 2), (9, 9, 4)))
    reach = (stride * h + taps, stride * w + taps)
    text = f"L[n<{b},f<{i},h<{h},w<{w}] Σ[c<{channels},r<{taps},s<{taps}] A[n,c,{stride}*h+r-{pad},{stride}*w+s-{pad}]*K[f,c,r,s]"
    return text, {"A": (b, channels, *reach), "K": (i, channels, taps, taps)}


def told(op: EOperator, tensor: bool) -> EOperator:
    """The operator in TF32 where it may be computed on tensor cores."""
    return op.in_arithmetic(ARITHMETICS["tf32"]) if tensor else op


def right(ops: list[EOperator], tensor: bool = False) -> list[bool]:
    """Whether the texts give exactly what the expressions are."""
    given = [whole(op, n) for n, op in enumerate(ops)]
    made = [lower_cuda(told(op, tensor), f"k{n}") for n, op in enumerate(ops)]
    assert all("einnet_commit" in m.text and len(m.kernels) == 1 for m in made)
    found = executed(made, ops, given)
    return [bool(np.array_equal(f, evaluate(op.scope, g, dtype="float64"))) for op, g, f in zip(ops, given, found, strict=True)]


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_texts_compute_the_expressions(monkeypatch, kind):
    forced(monkeypatch, KINDS[kind])
    assert dict(zip(CASES, right([operator(*c) for c in CASES.values()]), strict=True)) == dict.fromkeys(CASES, True)


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_random_sums(monkeypatch, kind):
    forced(monkeypatch, KINDS[kind])
    begin = 100 * list(KINDS).index(kind)
    assert all(right([operator(*random_case(begin + n)) for n in range(6)]))


@needs_compiler
def test_what_the_model_chooses_is_right(monkeypatch):
    """The sizes that come out of the search, in both arithmetics, not those of a test."""
    monkeypatch.setattr(thread_blocks, "faster", pipelined)
    for tensor in (False, True):
        assert all(right([operator(*CASES[n]) for n in ("product", "ragged", "batch", "convolution")], tensor))


@needs_compiler
@pytest.mark.parametrize("kind", ["a cluster", "pieces of a cluster"])
def test_sums_are_of_all_parts_in_one_order(monkeypatch, kind):
    """Blocks of a cluster add their parts by number: two runs of one text give the same bits."""
    forced(monkeypatch, KINDS[kind])
    op = operator(*CASES["ragged"])
    rng = np.random.default_rng(7)
    given = {name: rng.standard_normal(view.shape).astype(np.float32) for name, view in op.operands}
    made = lower_cuda(op, "k0")
    first, second = executed([made], [op], [given])[0], executed([made], [op], [given])[0]
    assert np.array_equal(first, second)
    exact = evaluate(op.scope, given, dtype="float64")
    limit = 2e-6 if kind == "a cluster" else 2e-3
    assert np.abs(first - exact).max() <= limit * np.abs(given["A"]).astype(np.float64).sum(1).max() * np.abs(given["B"]).max()


@needs_compiler
def test_tensor_cores_take_factors_of_ten_bits(monkeypatch):
    """Each factor is rounded to the nearest such number, ties away from zero; sums are not."""
    forced(monkeypatch, KINDS["pieces"])
    op = operator("L[i<16,j<16] Σ[k<16] A[i,k]*B[k,j]", {"A": (16, 16), "B": (16, 16)})
    a, b = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    a[:, 0] = [1 + n * 2.0**-12 for n in range(16)]
    a[:, 1] = 1.0
    b[0], b[1, :] = 1.0, 2.0**-12
    (found,) = executed([lower_cuda(op, "k0")], [op], [{"A": a, "B": b}])
    rounded = np.floor(a[:, 0].astype(np.float64) * 2**10 + 0.5) / 2**10
    assert np.array_equal(found, np.repeat((rounded + 2.0**-12)[:, None], 16, 1).astype(np.float32))
    assert rounded[2] != a[2, 0] and rounded[4] == a[4, 0]


@needs_compiler
def test_what_is_beyond_is_not_read(monkeypatch):
    """Rows, columns and terms beyond the nest, and padding, are zeros: what stands there in memory does not come in, even where it is no number."""
    forced(monkeypatch, KINDS["multiply-adds"])
    op = operator("L[f<18,h<5,w<5] Σ[c<3,r<3,s<3] A[c,h+r-1,w+s-1]*K[f,c,r,s]", {"A": (3, 5, 5), "K": (18, 3, 3, 3)})
    given = whole(op, 5)
    given["A"][1, 2, 3] = np.inf
    (found,) = executed([lower_cuda(op, "k0")], [op], [given])
    wanted = evaluate(op.scope, given, dtype="float64")
    assert np.array_equal(found, wanted.astype(np.float32), equal_nan=True) and np.isfinite(wanted).any()


# ------------------------------------------------------------------------------------------------------------- mutants of the texts


def without(pattern: str, number: int) -> Callable[[str], str]:
    """The text without the statement of that number."""

    def changed(text: str) -> str:
        found = list(re.finditer(pattern, text))
        at = found[number]
        return text[: at.start()] + text[at.end() :]

    return changed


MUTANTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "waits for one group less": ("multiply-adds", lambda t: t.replace("einnet_wait<1>", "einnet_wait<2>")),
    "waits for one group less of four": ("four stages", lambda t: t.replace("einnet_wait<2>", "einnet_wait<3>")),
    "does not wait": ("pieces", without(r"einnet_wait<1>\(\);", 0)),
    "does not meet before it multiplies": ("multiply-adds", without(r"__syncthreads\(\);", 0)),
    "does not meet before sums are stored": ("multiply-adds", without(r"__syncthreads\(\);", 1)),
    "does not meet before sums are read": ("four stages", without(r"__syncthreads\(\);", 2)),
    "makes no groups": ("multiply-adds", without(r"einnet_commit\(\);", 0)),
    "blocks do not wait for parts": ("a cluster", without(r"einnet_meet_cluster\(\);", 0)),
    "blocks go while they are read": ("a cluster", without(r"einnet_meet_cluster\(\);", 1)),
    "reads one block's part twice": ("a cluster", lambda t: re.sub(r"(einnet_of_block\(.*), 3\)", r"\1, 2)", t)),
    "a lane's place in a piece": ("pieces", lambda t: re.sub(r"(\(\(int\)threadIdx\.x\) & )3\b", r"\g<1>1", t)),
    "one stage less in the ring": ("multiply-adds", lambda t: re.sub(r"% 3\)", "% 2)", t)),
}


@needs_compiler
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_noticed(monkeypatch, name):
    kind, change = MUTANTS[name]
    forced(monkeypatch, KINDS[kind])
    op = operator(*CASES["product"])
    text = lower_cuda(op, "k0").text
    assert change(text) != text
    given, wanted = whole(op, 0), evaluate(op.scope, whole(op, 0), dtype="float64")
    out = np.full(op.out.shape, np.nan, np.float32)
    made = lower_cuda(op, "k0")
    (k,) = made.kernels
    library = shim.compiled({"k0": change(text)}, {k.name: len(k.arguments)})
    arrays = {**{f"operand {n}": given[name] for n, (name, _) in enumerate(op.operands)}, OUT: out}
    pointers = (ctypes.c_void_p * len(k.arguments))(*(arrays[a].ctypes.data for a in k.arguments))
    assert getattr(library, f"run_{k.name}")(pointers, k.grid[0], k.block[0]) or not np.array_equal(out, wanted)


# ------------------------------------------------------------------------------------------------------------ what it holds on a card

LARGE = {
    "square": ("L[i<1024,j<1024] Σ[k<1024] A[i,k]*B[k,j]", {"A": (1024, 1024), "B": (1024, 1024)}),
    "few positions": ("L[f<512,h<7,w<7] Σ[c<512,r<3,s<3] A[c,h+r-1,w+s-1]*K[f,c,r,s]", {"A": (512, 7, 7), "K": (512, 512, 3, 3)}),
    "batch": ("L[b<12,i<128,j<128] Σ[k<64] A[b,i,k]*B[b,j,k]", {"A": (12, 128, 64), "B": (12, 128, 64)}),
    "stem": ("L[f<64,h<112,w<112] Σ[c<3,r<7,s<7] A[c,2*h+r-3,2*w+s-3]*K[f,c,r,s]", {"A": (3, 224, 224), "K": (64, 3, 7, 7)}),
}  # fmt: skip


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("tensor", [False, True])
def test_registers_and_shared_memory_are_as_reckoned(monkeypatch, name, architecture, tensor):
    op = operator(*LARGE[name])
    found = pipelined(normalise(resolve(op)), tensor)
    assert found is not None
    monkeypatch.setattr(thread_blocks, "faster", pipelined)
    text = lower_cuda(told(op, tensor), "k").text
    assert found.sizes.tensor == ("multiply_piece" in text)
    (held,) = nvrtc.resources(text, architecture).values()
    s = found.sizes
    assert held.spilled == 0 and held.registers <= max(s.registers + 32, 96)
    assert 4 * s.size - 64 <= held.shared <= min(4 * s.size + 1088, 48 << 10)
    resident = min(FILE // (held.registers * s.threads), MEMORY // (held.shared + 1024), 2048 // s.threads)
    assert resident * s.threads >= 256


@pytest.mark.parametrize("name", LARGE)
def test_texts_are_short(monkeypatch, name):
    monkeypatch.setattr(thread_blocks, "faster", pipelined)
    for tensor in (False, True):
        assert "einnet_commit" in lower_cuda(told(operator(*LARGE[name]), tensor), "k").text


# ----------------------------------------------------------------------------------------------------------------- when it is chosen


def nest_of(name: str):
    return normalise(resolve(operator(*{**CASES, **LARGE}[name])))


def test_it_is_chosen_where_the_model_of_the_device_says_so():
    for name in ("square", "few positions"):
        nest = nest_of(name)
        found, other = faster(nest), tile(nest)
        assert found is not None and other is not None and MARGIN * found.cycles < other.cycles
        assert "einnet_commit" in lower_cuda(operator(*LARGE[name]), "k").text
    small = operator("L[i<16,j<16] Σ[k<16] A[i,k]*B[k,j]", {"A": (16, 16), "B": (16, 16)})
    assert faster(normalise(resolve(small))) is None and "einnet_commit" not in lower_cuda(small, "k").text


@pytest.mark.parametrize("name", ["square", "few positions", "batch", "stem", "ragged"])
def test_all_sizes_fit_and_none_is_faster_than_the_device(name):
    form = contracted(nest_of(name))
    assert form is not None
    found = list(sizes(form, True))
    assert {s.tensor for s in found} == {False, True}
    work = 2 * form.batches * form.height * form.width * form.terms / OPERATIONS
    for s in found:
        assert fits(form, s) and 4 * s.size <= 48 << 10 and s.threads * s.cluster <= 1024
        assert s.tensor or cycles(form, s) >= work


def test_a_row_or_few_terms_share_nothing():
    for text, shapes in (
        ("L[j<512] Σ[k<512] A[k]*B[k,j]", {"A": (512,), "B": (512, 512)}),
        ("L[i<512,j<512] Σ[k<8] A[i,k]*B[k,j]", {"A": (512, 8), "B": (8, 512)}),
        ("L[i<64,j<64] max[k<64] A[i,k]*B[k,j]", {"A": (64, 64), "B": (64, 64)}),
        ("L[i<64,j<64] Σ[k<64] A[i,k]*B[k,j]*A[k,j]", {"A": (64, 64), "B": (64, 64)}),
    ):
        assert pipelined(normalise(resolve(operator(text, shapes)))) is None


def test_copies_of_four_elements_are_neighbours_in_memory():
    """Where strides or an offset are no multiples of four, or padding cuts a row, elements are copied one by one."""
    wide = {"product": (4, 4), "both turned": (4, 1), "batch": (4, 4), "every fourth row": (4, 1), "convolution": (1, 1), "ragged": (1, 1)}
    for name, expected in wide.items():
        form = contracted(nest_of(name))
        assert form is not None
        assert sorted(n for _, n in ways(form)) == sorted(expected), name


@pytest.mark.parametrize("step", [8, 16, 32])
@pytest.mark.parametrize("lines", [16, 32, 48, 64, 96, 128])
def test_copies_keep_banks_apart(lines, step):
    """On tensor cores the 32 lanes, eight lines by four terms, read 32 banks; rows of a copy begin at multiples of 16 bytes."""
    for terms in (True, False):
        far = apart(lines, step, terms)
        places = [(g * far + t if terms else t * far + g) % 32 for g in range(8) for t in range(4)]
        assert far % 4 == 0 and far >= (step if terms else lines)
        assert len(set(places)) == 32
