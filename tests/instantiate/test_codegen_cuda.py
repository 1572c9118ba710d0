"""CUDA text of eOperators: what it computes through the host's compiler, how it is launched, and what is stored between kernels."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from einnet.errors import BackendError
from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Iter
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda import emit as cuda
from einnet.instantiate.codegen.cuda.emit import CudaOperator, lower_cuda
from einnet.instantiate.codegen.cuda.lanes import touched
from einnet.instantiate.codegen.cuda.per_thread import ordered
from einnet.instantiate.codegen.cuda.thread_blocks import team, turned
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.resolve import ELEMENTS, OUT, resolve
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.arena import storage_dtype
from einnet.runtime.cuda import nvrtc, shim
from tests.instantiate.cuda_cases import CASES, case, operator

needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")


def loaded(made: CudaOperator) -> ctypes.CDLL:
    return shim.compiled({"k": made.text}, {k.name: len(k.arguments) for k in made.kernels})


def execute(made: CudaOperator, arrays: dict[str, np.ndarray]) -> None:
    run(loaded(made), made, arrays | {name: np.full(size, np.nan, np.float32) for name, size in made.stages})


def run(library: ctypes.CDLL, made: CudaOperator, arrays: dict[str, np.ndarray]) -> None:
    for k in made.kernels:
        pointers = (ctypes.c_void_p * len(k.arguments))(*(arrays[a].ctypes.data for a in k.arguments))
        assert getattr(library, f"run_{k.name}")(pointers, k.grid[0], k.block[0]) == 0


SHARING = ("transpose", "turned tile", "turned beyond the edge", "turned in a batch")
EXCHANGING = ("long rows", "long softmax", "two reductions")


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_text_computes_the_expression(name):
    op = case(name)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in op.operands}
    out = np.full(op.out.shape, np.nan, np.float32)
    execute(lower_cuda(op, "k"), {**{f"operand {n}": given[name] for n, (name, _) in enumerate(op.operands)}, OUT: out})
    wanted = evaluate(op.scope, given)
    np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=2e-6 * np.abs(wanted).max())


@needs_compiler
@pytest.mark.parametrize("name", ["offset reduce", "turned tile", "two reductions"])
def test_threads_of_the_host_take_turns(name):
    op = case(name)
    made = lower_cuda(op, "k")
    library = loaded(made)

    def result(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        given = {f"operand {n}": rng.standard_normal(v.shape).astype(np.float32) for n, (_, v) in enumerate(op.operands)}
        out = np.full(op.out.shape, np.nan, np.float32)
        for _ in range(20):
            run(library, made, {**given, OUT: out, **{name: np.full(size, np.nan, np.float32) for name, size in made.stages}})
        return out

    alone = [result(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(result, range(4)))
    assert all(np.array_equal(x, y) for x, y in zip(alone, together))


@pytest.mark.parametrize("name", SHARING)
def test_blocks_share_memory_where_it_pays(name):
    assert "__syncthreads" in lower_cuda(case(name), "k").text


@pytest.mark.parametrize("name", EXCHANGING)
def test_lanes_of_a_warp_reduce_together(name):
    assert "__shfl_xor_sync" in lower_cuda(case(name), "k").text


def test_warps_of_a_block_reduce_through_shared_memory():
    text = lower_cuda(operator("L[i<2] Σ[k<5000] A[i,k]", {"A": (2, 5000)}), "k").text
    assert "__shfl_xor_sync" in text and text.count("__syncthreads") == 1


@pytest.mark.parametrize("name", ["phases", "functions", "fraction"])
def test_small_work_shares_nothing(name):
    assert "__shared__" not in lower_cuda(case(name), "k").text


@pytest.mark.parametrize("text", ["L[a<8,b<64] A[b,a]", "L[a<64,b<64] A[b,a]+B[b,2*a]", "L[a<64,b<64] Σ[k<3] A[b,a,k]"])
def test_tiles_are_for_one_scattered_load_of_full_tiles(text):
    boxes = {"A": (64, 64, 3) if "k" in text else (64, 64), "B": (64, 128)}
    assert turned(resolve(operator(text, {n: b for n, b in boxes.items() if n in text}), ())) is None


def test_rows_are_reduced_by_blocks_and_columns_by_threads():
    rows, columns = (operator(text, {"A": (200, 70000) if by == 0 else (70000, 200)}) for by, text in enumerate(
        ("L[j<70000] Σ[i<200] A[i,j]", "L[j<70000] Σ[i<200] A[j,i]")
    ))  # fmt: skip
    assert team(normalise(resolve(rows, ()))) == 0
    assert team(normalise(resolve(columns, ()))) == 32
    apart, together = (tile(normalise(resolve(op, ()))) for op in (rows, columns))
    assert apart is not None and together is not None
    assert apart.team[1] == 1 < together.team[1]


@needs_compiler
def test_nothing_outside_an_array_is_touched():
    """Each array ends, or begins, beside memory that may not be touched: a stray access ends the process."""
    code = "from tests.instantiate.test_codegen_cuda import *\nfor name in CASES: print(name, flush=True); execute_fenced(case(name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout.split()[-1:]} ended with {done.returncode}: {done.stderr}"
    assert done.stdout.splitlines() == list(CASES)


@needs_compiler
def test_the_fence_ends_a_process_that_crosses_it():
    beyond = "ctypes.c_float.from_address(fenced(np.zeros(4, np.float32), True, []).ctypes.data + 16).value"
    done = subprocess.run([sys.executable, "-c", f"from tests.instantiate.test_codegen_cuda import *; {beyond}"], check=False)
    assert done.returncode < 0


def fenced(values: np.ndarray, at_end: bool, kept: list[mmap.mmap]) -> np.ndarray:
    """A copy of the values in memory that ends (else begins) at a page that may not be touched."""
    page, none = mmap.PAGESIZE, 0
    nbytes = -(-values.nbytes // page) * page
    block = mmap.mmap(-1, nbytes + 2 * page)
    kept.append(block)
    whole = np.frombuffer(block, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for start in (0, page + nbytes):
        assert protect(ctypes.c_void_p(whole.ctypes.data + start), ctypes.c_size_t(page), none) == 0
    first = page + (nbytes - values.nbytes if at_end else 0)
    inside = whole[first : first + values.nbytes].view(np.float32)
    inside[...] = values.reshape(-1)
    return inside


def execute_fenced(op: EOperator) -> None:
    kept: list[mmap.mmap] = []
    made = lower_cuda(op, "k")
    library = loaded(made)
    for at_end in (True, False):
        arrays = {f"operand {n}": fenced(np.ones(v.shape, np.float32), at_end, kept) for n, (_, v) in enumerate(op.operands)}
        stages = {name: fenced(np.zeros(size, np.float32), at_end, kept) for name, size in made.stages}
        run(library, made, {**arrays, **stages, OUT: fenced(np.zeros(op.out.shape, np.float32), at_end, kept)})


@needs_compiler
def test_a_barrier_that_some_threads_miss_is_an_error():
    text = 'extern "C" __global__ void k(float* x) { if (threadIdx.x < 3) __syncthreads(); x[threadIdx.x] = 1; }'
    library = shim.compiled({"k": text}, {"k": 1})
    values = np.zeros(8, np.float32)
    pointers = (ctypes.c_void_p * 1)(values.ctypes.data)
    assert library.run_k(pointers, 1, 8) == 1
    with pytest.raises(BackendError, match="in a way that the host cannot play"):
        shim.compiled({"k": text.replace("__syncthreads", "__syncwarp")}, {"k": 1})


@needs_compiler
def test_lanes_exchange_values_and_all_have_to():
    text = 'extern "C" __global__ void k(float* x) { IF x[threadIdx.x] = __shfl_xor_sync(-1, x[threadIdx.x], 2); }'
    values = np.arange(64, dtype=np.float32)
    pointers = (ctypes.c_void_p * 1)(values.ctypes.data)
    assert shim.compiled({"k": text.replace("IF", "")}, {"k": 1}).run_k(pointers, 1, 64) == 0
    np.testing.assert_array_equal(values, np.arange(64) ^ 2)
    assert shim.compiled({"k": text.replace("IF", "if (threadIdx.x < 32)")}, {"k": 1}).run_k(pointers, 1, 64) == 1


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("name", CASES)
def test_what_shares_memory_compiles_for_the_card(name):
    assert nvrtc.compile_text(lower_cuda(case(name), "k").text).startswith(b"\x7fELF")


def test_what_many_threads_need_is_stored_once():
    made = lower_cuda(operator("L[i<40,j<50] A[i,j]*{L[i<40] Σ[k<50] A[i,k]}[i]*{L[j<50] Σ[k<40] A[k,j]}[j]", {"A": (40, 50)}), "k")
    assert sorted(size for _, size in made.stages) == [40, 50]
    assert len(made.kernels) == 3
    assert OUT in made.kernels[-1].arguments


def test_what_one_thread_needs_is_not_stored():
    made = lower_cuda(case("few channels"), "k")
    assert not made.stages
    assert len(made.kernels) == 1


def test_neighbouring_threads_write_neighbouring_elements():
    made = lower_cuda(operator("L[i<8,j<64] A[i,j]+1", {"A": (8, 64)}, View("out", (8, 64), (1, 8))), "k")
    assert made.kernels[0].block == (256, 1, 1)
    assert made.kernels[0].grid == (2, 1, 1)


WIDE = "L[n<16,h<128,w<256] relu(A[n,h,w]+B[h])*C[n,h,w]"
WIDE_BOXES = {"A": (16, 128, 256), "B": (128,), "C": (16, 128, 256)}


@needs_compiler
def test_a_thread_computes_four_neighbours_where_threads_abound():
    op = operator(WIDE, WIDE_BOXES)
    made, rng = lower_cuda(op, "k"), np.random.default_rng(0)
    assert made.kernels[0].grid[0] * made.kernels[0].block[0] * 4 == op.scope.shape[0] * 128 * 256
    given = {n: rng.integers(-4, 5, v.shape).astype(np.float32) for n, v in op.operands}
    out = np.full(op.out.shape, np.nan, np.float32)
    execute(made, {**{f"operand {n}": given[name] for n, (name, _) in enumerate(op.operands)}, OUT: out})
    np.testing.assert_array_equal(out, evaluate(op.scope, given))


@pytest.mark.parametrize(("text", "boxes"), [
    ("L[n<16,h<128,w<254] A[n,h,w]+B[h]", {"A": (16, 128, 254), "B": (128,)}),
    ("L[n<16,h<128,w<256] A[n,h,w+1]+1", {"A": (16, 128, 257)}),
    ("L[n<16,h<128,w<256] A[n,h,w-4]+1", {"A": (16, 128, 256)}),
    ("L[h<128,w<256] A[h,w]+1", {"A": (128, 256)}),
    ("L[n<16,h<128,w<256] A[n,h-1,w]+1", {"A": (16, 128, 256)}),
])  # fmt: skip
def test_others_compute_one(text, boxes):
    op = operator(text, boxes)
    (kernel,) = lower_cuda(op, "k").kernels
    assert kernel.grid[0] * kernel.block[0] >= np.prod(op.scope.shape)


IMAGE = operator("L[h<64,w<64,r<7,s<7,c<3] A[c,2*h+r-3,2*w+s-3]", {"A": (3, 128, 128)})
PADDED = operator("L[b<8,u<1536,k<64] A[u-256,64*b+k]", {"A": (1024, 512)})


@pytest.mark.parametrize(("op", "last"), [
    (IMAGE, ["r", "s", "c"]),
    (PADDED, ["k"]),
    (operator("L[a<64,b<2,c<96] A[b,a,c]*B[a]", {"A": (2, 64, 96), "B": (64,)}), ["c"]),
    (operator("L[a<512,b<16] A[b,a]+B[b,a]+C[b,a]", {"A": (16, 512), "B": (16, 520), "C": (16, 528)}), ["a"]),
])  # fmt: skip
def test_a_warp_touches_as_few_sectors_as_it_can(op, last):
    """Windows of an image are written one behind the other though the image has its channels first: its pixels are read from few places."""
    nest = normalise(resolve(op))
    order = [i.name.rstrip("0123456789") for i in ordered(nest, nest.loops)]
    assert order[-len(last) :] == last


def test_sectors_are_counted():
    rows, columns = Iter("i", 0, 8), Iter("j", 0, 64)
    dense, strided, one = Index((("i", 64), ("j", 1))), Index((("i", 1), ("j", 100))), Index((), 3)
    assert touched([dense], [rows, columns], 1) == 4
    assert touched([strided], [rows, columns], 1) == 32
    assert touched([dense, one], [columns, rows], 1) == 8 + 1
    assert touched([Index((("j", 4),))], [rows, columns], 4) == 16
    assert touched([Index(((Floor(Index((("j", 1),)), 2), 8),))], [rows, columns], 1) == 16


def test_a_value_that_is_used_twice_in_a_body_is_computed_once_and_not_stored():
    scope = "{L[h<6,w<6] Σ[r<3] A[h+r-1,w]*K[r]}[h,w]"
    made = lower_cuda(operator(f"L[h<6,w<6] relu({scope})+B[0]*min({scope},0)", {"A": (6, 6), "K": (3,), "B": (1,)}), "k")
    assert not made.stages and len(made.kernels) == 1


def test_restrict_is_promised_only_where_nothing_is_shared():
    op = operator("L[i<8] relu(A[i])", {"A": (8,)})
    assert "__restrict__" in lower_cuda(op, "k").text
    alias = EOperator(op.scope, (("A", dense_view("out", (8,))),), op.out)
    assert "__restrict__" not in lower_cuda(alias, "k").text


@needs_compiler
def test_a_text_that_is_too_long_is_written_without_tiles_or_not_at_all(monkeypatch):
    """Tiles write out what a thread computes; one element for each thread is shorter, and computes the same."""
    op = operator("L[n<8,f<48,h<16,w<16] Σ[c<16,r<3,s<3] A[n,c,h+r-1,w+s-1]*K[f,c,r,s]", {"A": (8, 16, 16, 16), "K": (48, 16, 3, 3)})
    long = lower_cuda(op, "k")
    monkeypatch.setattr(cuda, "LONGEST", len(long.text) - 1)
    short = lower_cuda(op, "k")
    assert len(short.text) < len(long.text)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in op.operands}
    results = []
    for made in (long, short):
        results.append(np.full(op.out.shape, np.nan, np.float32))
        execute(made, {**{f"operand {n}": given[name] for n, (name, _) in enumerate(op.operands)}, OUT: results[-1]})
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-4)
    monkeypatch.setattr(cuda, "LONGEST", 100)
    with pytest.raises(BackendError, match=r"a kernel of \d+ characters is not compiled: 100 are the most"):
        lower_cuda(op, "k")


def test_nan_goes_through_every_function():
    bodies = [
        *(f"{f}(X[i])" for f in ("relu", "exp", "log", "tanh", "sigmoid", "erf", "softplus", "sign", "sqrt", "abs", "floor", "round")),
        "as_f16(X[i])", "as_bf16(X[i])",
        "max(X[i],Y[i])", "max(Y[i],X[i])", "min(X[i],Y[i])", "min(Y[i],X[i])", "min(max(X[i],-1),1)", "max(1/2,X[i])",
    ]  # fmt: skip
    text = "0"
    for n, body in enumerate(bodies):
        text = f"select(f-{n}==0, {body}, {text})"
    scope = parse(f"X : f32[40]\nY : f32[40]\nL[f<{len(bodies)},i<40] {text}")
    op = EOperator(scope, (("X", dense_view("X", (40,))), ("Y", dense_view("Y", (40,)))), dense_view("out", scope.shape))
    x = np.linspace(0.1, 1, 40, dtype=np.float32)
    x[::3] = np.nan
    out = np.zeros(scope.shape, np.float32)
    execute(lower_cuda(op, "k"), {"operand 0": x, "operand 1": np.ones(40, np.float32), OUT: out})
    np.testing.assert_array_equal(np.isnan(out), np.tile(np.isnan(x), (len(bodies), 1)))


@needs_compiler
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_nan_anywhere_in_a_row_is_its_maximum(reduction):
    scope = parse(f"X : f32[64,64]\nL[m<64] {reduction}[k<64] X[m,k]")
    op = EOperator(scope, (("X", dense_view("X", (64, 64))),), dense_view("out", (64,)))
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x[np.arange(63), np.arange(63)] = np.nan
    out = np.zeros(64, np.float32)
    execute(lower_cuda(op, "k"), {"operand 0": x, OUT: out})
    assert np.isnan(out[:63]).all() and np.isfinite(out[63])


@needs_compiler
@pytest.mark.parametrize("text", ["L[m<64,n<1024] as_f16(3*H[m,n]) + as_bf16(H[m,n])", "L[m<60,n<1024] H[m+7,n-3]"])
def test_every_float16_is_read_and_rounded(text):
    scope = parse("H : f16[64,1024]\n" + text)
    op = EOperator(scope, (("H", dense_view("H", (64, 1024))),), dense_view("out", scope.shape))
    given = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(64, 1024)
    out = np.zeros(scope.shape, np.float32)
    execute(lower_cuda(op, "k"), {"operand 0": given, OUT: out})
    np.testing.assert_array_equal(out, evaluate(scope, {"H": given}, "float32"))


@needs_compiler
@pytest.mark.parametrize("dtype", sorted(ELEMENTS))
def test_tensors_of_every_type_are_read(dtype):
    scope = parse(f"R : {dtype}[20,24]\nA : f32[20,24]\nL[i<20,j<24] R[i,j]*A[i,j]")
    op = EOperator(scope, (("R", dense_view("R", (20, 24))), ("A", dense_view("A", (20, 24)))), dense_view("out", (20, 24)))
    rng = np.random.default_rng(0)
    given = {"R": rng.integers(0, 2, (20, 24)).astype(storage_dtype(dtype)), "A": rng.standard_normal((20, 24)).astype(np.float32)}
    out, made = np.zeros((20, 24), np.float32), lower_cuda(op, "k")
    execute(made, {"operand 0": given["R"], "operand 1": given["A"], OUT: out})
    np.testing.assert_array_equal(out, evaluate(scope, given, "float32"))
    if nvrtc.available() is None:
        assert nvrtc.compile_text(made.text).startswith(b"\x7fELF")


@pytest.mark.parametrize("order", [("exp", "tanh"), ("tanh", "exp")])
def test_kernels_that_differ_in_a_function_alone_are_told_apart(order):
    """What is summed is computed where it is read, by a function that has the same name in both."""
    text = "L[i<2000] Σ[k<4] {L[i<2000,k<4] FUNCTION(A[i,k])}[i,k]*B[k,i]"
    for function in order:
        made = lower_cuda(operator(text.replace("FUNCTION", function), {"A": (2000, 4), "B": (4, 2000)}), "k")
        assert made.text.count(f"{function}f(") == 4
