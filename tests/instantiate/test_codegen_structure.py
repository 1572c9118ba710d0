"""What is generated: private functions that others call, loops without predicates, counts, refusals."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.errors import BackendError
from einnet.expr.index import Index, var
from einnet.expr.nodes import Cond, Iter, Mul, Scope, Tensor, read
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen import build, lower
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.ir import Load, Nest, decide, enclosure, walk
from einnet.instantiate.codegen.pieces import located, pieces
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.codegen.schedule import schedule
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.cpu.compiler.machine_code import target
from tests.instantiate.compiled import call, dense, random_values, window

OFFSET_REDUCE = "M : f32[20,20,3,3,64]\nL[h<20,w<20,f<64] Σ[r<3,s<3] M[h+r-1,w+s-1,r,s,f]"
CONVOLUTION = "A : f32[18,20,21]\nK : f32[1,18,5,5]\nL[f<1,h<20,w<21] Σ[c<18,r<5,s<5] A[c,h+r-2,w+s-2]*K[f,c,r,s]"
BAND = "A : f32[40,24]\nB : f32[40,24]\nL[m<40,w<9] Σ[k<24] A[m,k]*B[m+w-4,k]"
NEGATIVE = "A : f32[20]\nL[-3<=i<25] Σ[-1<=r<2] A[i+r]"
PHASES = "M : f32[7,9,4,4,32]\nL[h<14,w<18,f<32] Σ[r<4,s<4] M[(h+1-r)/2,(w+1-s)/2,r,s,f]"


def nest_of(text: str) -> Nest:
    return normalise(resolve(dense(text)))


def test_a_parallel_kernel_is_called_by_another_function() -> None:
    import tvm
    from tvm import ir, tirx

    op = dense(OFFSET_REDUCE)
    kernel = lower(op, "inner", threads=2)
    assert kernel.parallel
    assert "global_symbol" not in (kernel.primfunc.attrs or {})
    callee = ir.GlobalVar("inner")
    pointers = [tirx.Var(n, ir.PointerType(ir.PrimType("float32"))) for n in ("a", "b")]
    body = tirx.SeqStmt([tirx.Evaluate(ir.Call(callee, pointers, ret_ty="int32")), tirx.Evaluate(tirx.const(0, "int32"))])
    main = tirx.PrimFunc(pointers, body).with_attr("global_symbol", "main")
    module = tvm.compile(tvm.IRModule({callee: kernel.primfunc, "main": main}), target=tvm.target.Target.from_device("cpu"))
    values = random_values(op)
    out = np.zeros(op.scope.shape, dtype=np.float32)
    module["main"](ctypes.c_void_p(values["M"].ctypes.data), ctypes.c_void_p(out.ctypes.data))
    np.testing.assert_allclose(out, evaluate(op.scope, values), rtol=1e-5, atol=1e-5)


def test_params_follow_the_operands() -> None:
    scope = parse("A : f32[4]\nB : f32[4]\nL[i<4] A[i]-B[i]")
    op = EOperator(scope, (("B", dense_view("y", (4,))), ("A", dense_view("x", (4,)))), dense_view("z", (4,)))
    assert lower(op, "k").params == ("B", "A", "out")


def test_an_operand_may_be_overwritten_in_place() -> None:
    scope = parse("A : f32[1003]\nB : f32[1003]\nL[i<1003] relu(A[i]+B[i])")
    op = EOperator(scope, (("A", dense_view("x", (1003,))), ("B", dense_view("y", (1003,)))), dense_view("x", (1003,)))
    kernel = lower(op, "k")
    values = random_values(op)
    memory = values["A"].copy()
    build([kernel])["k"](*(ctypes.c_void_p(a.ctypes.data) for a in (memory, values["B"], memory)))
    np.testing.assert_allclose(memory, np.maximum(values["A"] + values["B"], 0), rtol=1e-6)


def test_writes_a_slice_beside_what_it_reads() -> None:
    scope = parse("A : f32[6,5]\nL[h<6,f<5] 2*A[h,f]")
    op = EOperator(scope, (("A", View("x", (6, 5), (12, 1), 0)),), View("x", (6, 5), (12, 1), 6))
    kernel = lower(op, "k")
    memory = np.arange(72, dtype=np.float32)
    expected = memory.copy()
    window(op.out, expected)[...] = 2 * window(op.operands[0][1], memory)
    build([kernel])["k"](ctypes.c_void_p(memory.ctypes.data), ctypes.c_void_p(memory.ctypes.data))
    np.testing.assert_array_equal(memory, expected)


def test_the_interior_has_no_conditions() -> None:
    plan = schedule(nest_of(OFFSET_REDUCE))
    ranges = plan.nest.ranges
    for name in ("h1", "w1"):
        found = pieces(name, ranges[name], located(plan.nest.expr, ranges), 5)
        assert found == [(0, 1), (1, 19), (19, 20)]
        ranges = {**ranges, name: (1, 19)}
    assert located(plan.nest.expr, ranges) == []


def test_residues_leave_no_division() -> None:
    plan = schedule(nest_of(PHASES))
    assert {p.name for p in plan.points} == {"h1.r", "w1.r"}
    script = lower(dense(PHASES), "phases").primfunc.script()
    assert "//" not in script
    assert "%" not in script


def test_strided_copies_are_one_loop() -> None:
    nest = nest_of("A : f32[7,9,5]\nL[h<7,w<9,f<5] relu(A[h,w,f])")
    assert [i.extent for i in nest.loops] == [315]


def test_pieces_cover_the_range() -> None:
    conds = [(Cond(var("h") + var("r") - 2), {"h": (0, 50), "r": (0, 5)}), (Cond(51 - var("h") - var("r")), {"h": (0, 50), "r": (0, 5)})]
    for most in range(1, 8):
        found = pieces("h", (0, 50), conds, most)
        assert [a for a, _ in found] == [0, *(b for _, b in found[:-1])]
        assert found[-1][1] == 50
        assert len(found) <= most
    assert (2, 48) in pieces("h", (0, 50), conds, 3)


def test_enclosure_is_exact_for_residues() -> None:
    e = (2 * var("q") + var("p") + 1 - var("r")) // 2
    ranges = {"q": (0, 10), "p": (0, 2), "r": (0, 4)}
    assert enclosure(e - var("q"), ranges) == (-1, 1)
    assert decide(Cond(e - var("q") + 1), ranges) is True
    assert decide(Cond(e - 20), ranges) is False
    assert decide(Cond(e), ranges) is None


def test_constants_become_literals() -> None:
    matrix = Tensor("C", (4, 4), values=tuple(Fraction(v) for v in (1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1)))
    data = Tensor("D", (4, 40))
    scope = Scope((Iter("p", 0, 4), Iter("f", 0, 40)), (Iter("i", 0, 4),), Mul((read(matrix, "p", "i"), read(data, "i", "f"))))
    op = dense(scope)
    kernel = lower(op, "transform")
    assert "operand0_data[" not in kernel.primfunc.script()
    values = {"C": np.array([float(v) for v in matrix.values or ()], dtype=np.float32).reshape(4, 4), "D": random_values(op)["D"]}
    np.testing.assert_allclose(call(build([kernel]), kernel, op, values), values["C"] @ values["D"], rtol=1e-5, atol=1e-5)


def test_given_constants_become_literals() -> None:
    op = dense("A : f32[50]\nW : weight f32[3]\nL[i<48] Σ[r<3] A[i+r]*W[r]")
    weights = np.array([1, 0, -2], dtype=np.float32)
    kernel = lower(op, "k", constants={"W": weights})
    assert "operand1_data[" not in kernel.primfunc.script()
    values = {**random_values(op), "W": weights}
    np.testing.assert_allclose(call(build([kernel]), kernel, op, values), evaluate(op.scope, values), rtol=1e-5, atol=1e-5)


def test_operations_on_known_numbers() -> None:
    """Those that are not computed beforehand are written, with numbers as operands."""
    pairs = ("W[r]+V[r]", "W[r]*V[r]", "max(W[r],V[r])", "min(W[r],V[r])", "W[r]/V[r]", "pow(V[r],W[r])", "less(W[r],V[r])", "equal(W[r],V[r])")
    ops = [dense(f"A : f32[50]\nW : weight f32[3]\nV : weight f32[3]\nL[i<48] Σ[r<3] A[i+r]*({pair})") for pair in pairs]
    known = {"W": np.array([1, 4, -2], dtype=np.float32), "V": np.array([2, 4, 8], dtype=np.float32)}
    kernels = [lower(op, f"k{n}", constants=known) for n, op in enumerate(ops)]
    module = build(kernels)
    for kernel, op in zip(kernels, ops, strict=True):
        values = {"A": np.round(4 * random_values(op)["A"]), **known}
        np.testing.assert_allclose(call(module, kernel, op, values), evaluate(op.scope, values), rtol=1e-6, atol=1e-6)


def test_counts() -> None:
    kernel = lower(dense(OFFSET_REDUCE), "k")
    assert kernel.flops == 20 * 20 * 64 * 8
    assert kernel.bytes == 4 * (20 * 20 * 9 * 64 + 20 * 20 * 64)
    part = lower(dense("A : f32[100,100]\nL[i<10,j<10] 3*A[2*i,j]+1"), "k")
    assert part.flops == 200
    assert part.bytes == 4 * (100 + 100)


def test_code_stays_small() -> None:
    """A 7x7 convolution with borders and 64 channels is not unrolled as a whole."""
    op = dense("A : f32[112,112,64]\nK : f32[7,7,4,64]\nL[h<112,w<112,f<4] Σ[c<64,r<7,s<7] A[h+r-3,w+s-3,c]*K[r,s,f,c]")
    assert lower(op, "k").primfunc.script().count("\n") < 3000


def test_a_sum_over_an_array_that_is_kept_stands_outside_of_the_loop_that_uses_it() -> None:
    """A row divided by the sum of its exponentials: they are kept, and added up once for each row."""
    raised = "{L[i<8,j<512] exp(A[i,j])}"
    op = dense(f"A : f32[8,512]\nL[i<8,j<512] {raised}[i,j]/{{L[i<8] Σ[k<512] {raised}[i,k]}}[i]")
    kernel = lower(op, "shares")
    lines = kernel.primfunc.script().splitlines()
    loops = [len(line) - len(line.lstrip()) for line in lines if line.lstrip().startswith("for ")]
    assert len(loops) == 4, "rows, and within them exponentials, their sum and quotients"
    assert len(set(loops)) == 2, "next to each other"
    values = random_values(op)
    np.testing.assert_allclose(call(build([kernel]), kernel, op, values), evaluate(op.scope, values), rtol=1e-5)


BANDED = (
    "Q : f32[40,8]\nK : f32[172,8]\nV : f32[172,8]\nT : f32[40,33]\nL[m<40,n<8] Σ[k<33] {L[m<40,n<33] select(m+4*n-32>=0 & -m-4*n+132>=0, "
    "{L[m<40,n<33] exp(SCORE + (-1)*{L[m<40] max[n<33] select(m+4*n-32>=0 & -m-4*n+132>=0, SCORE, -inf)}[m])}[m,n] / "
    "{L[m<40] Σ[n<33] exp(T[m,n])}[m], 0)}[m,k]*V[m+4*k,n]"
).replace("SCORE", "{L[m<40,n<33] Σ[k<8] Q[m,k]*K[m+4*n,k]}[m,n]")


def test_what_a_sum_reads_through_another_function_stands_outside_of_its_loop() -> None:
    """The maximum of a row, which only the terms' numerators read."""
    op = dense(BANDED)
    kernel = lower(op, "banded")
    loops = [line for line in kernel.primfunc.script().splitlines() if line.lstrip().startswith("for ")]
    depths = [len(line) - len(line.lstrip()) for line in loops]
    sums = [n for n, line in enumerate(loops) if line.lstrip().startswith("for k")]
    assert sums and all(after <= depths[n] for n in sums for after in depths[n + 1 : n + 2])
    values = random_values(op)
    np.testing.assert_allclose(call(build([kernel]), kernel, op, values), evaluate(op.scope, values), rtol=1e-4, atol=1e-5)


def test_empty_reductions_and_outputs() -> None:
    empty = Scope((Iter("i", 0, 20),), (Iter("r", 0, 0),), read(Tensor("A", (20,)), "i"), "max")
    nothing = Scope((Iter("i", 0, 0),), (), read(Tensor("A", (20,)), "i"))
    ops = [dense(empty), dense(nothing)]
    kernels = [lower(op, f"k{n}") for n, op in enumerate(ops)]
    module = build(kernels)
    values = {"A": np.zeros(20, dtype=np.float32)}
    assert (call(module, kernels[0], ops[0], values) == -np.inf).all()
    assert call(module, kernels[1], ops[1], values).size == 0


def test_loads_stay_inside() -> None:
    """Every load's guards, with its loops' ranges, imply an address inside the operand."""
    nest = nest_of(OFFSET_REDUCE)
    (load,) = (e for e in walk(nest.expr) if isinstance(e, Load))
    assert {c.index for c in load.guards} == {
        var("h1") + var("r1") - 1, var("w1") + var("s1") - 1, Index((), 20) - var("h1") - var("r1"), Index((), 20) - var("w1") - var("s1"),
    }  # fmt: skip


def test_refusals() -> None:
    scope = parse("A : f32[4]\nL[i<4] A[i]")
    with pytest.raises(BackendError, match="no view of shape"):
        lower(EOperator(scope, (), dense_view("out", (4,))), "k")
    with pytest.raises(BackendError, match="output view"):
        lower(EOperator(scope, (("A", dense_view("A", (4,))),), dense_view("out", (5,))), "k")
    whole = Scope((Iter("i", 0, 4),), (), read(Tensor("A", (4,), "str"), "i"))
    with pytest.raises(BackendError, match="str"):
        lower(dense(whole), "k")


def test_the_package_imports_without_tvm() -> None:
    code = "import sys, einnet.instantiate.codegen, einnet.instantiate.codegen.operation_counts; sys.exit('tvm' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_other_processors(cpu: str) -> None:
    """Masks, shuffles and transpositions are also compiled for narrower vectors; the code runs where the processor has them.

    Sixteen lanes under one mask are two vectors without AVX-512: where one of them is known to be empty (CONVOLUTION), nothing of it is read.
    """
    if platform.machine() != "x86_64":
        pytest.skip("not an x86-64 machine")
    if cpu != "x86-64" and {"x86-64-v3": "avx2", "x86-64-v4": "avx512f"}[cpu] not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"the processor is older than {cpu}")
    texts = (OFFSET_REDUCE, PHASES, "A : f32[33,50]\nL[j<50,i<33] exp(A[i,j])", "A : f32[5,63]\nL[f<5,w<32] max[s<3] A[f,2*w+s-1]|-inf")
    ops = [dense(text) for text in (*texts, CONVOLUTION, BAND, NEGATIVE)]
    kernels = [lower(op, f"k{n}", target=target(cpu)) for n, op in enumerate(ops)]
    module = build(kernels)
    for kernel, op in zip(kernels, ops, strict=True):
        values = random_values(op)
        np.testing.assert_allclose(call(module, kernel, op, values), evaluate(op.scope, values), rtol=1e-5, atol=1e-5)
