"""Copies that strides can express are left out: concatenations written in place, parts read by offset, and what forbids it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from onnx import TensorProto

from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, Plan, View, dense_view
from einnet.runtime.cpu.program import Executable
from einnet.runtime.cpu.roofline import moved
from einnet.search.copy_elimination import Measured, in_place, parts
from tests.runtime.plans import opaque

X, Y = dense_view("x", (2, 3, 4)), dense_view("y", (2, 3, 6))


def scope(text: str):
    return parse(text)


def generated(text: str, out: View, **operands: View) -> EOperator:
    return EOperator(scope(text), tuple(operands.items()), out)


def plan(kernels: Sequence[Kernel], **roles: str) -> Plan:
    """A plan over dense f32 buffers named by the views; `roles` other than temporary."""
    sizes = {"x": 24, "y": 36, "a": 24, "b": 36, "joined": 60, "part": 18, "z": 60, "w": 16, "v": 18, "u": 18}
    used = dict.fromkeys(v.buffer for k in kernels for v in (*([] if not isinstance(k, EOperator) else [w for _, w in k.operands]), *k.result_views))
    for k in kernels:
        used.update(dict.fromkeys(v.buffer for v in getattr(k, "inputs", ())))
        if isinstance(k, Matmul):
            used.update(dict.fromkeys((k.a.buffer, k.b.buffer)))
    given = {"x": "input", "y": "input", "z": "output", "v": "output", **roles}
    buffers = tuple(Buffer(n, sizes[n], "f32", given.get(n, "constant" if n == "w" else "temporary")) for n in used)
    shapes = {"b": (2, 3, 6), "z": (2, 3, 10), "v": (2, 3, 3), "joined": (2, 3, 10)}
    views = {"x": X, "y": Y, **{name: dense_view(name, shape) for name, shape in shapes.items()}}
    constants = {"w": np.random.default_rng(0).standard_normal(16).astype(np.float32)} if "w" in used else {}
    inputs = tuple((b.name, views[b.name]) for b in buffers if b.role == "input")
    return Plan(buffers, tuple(kernels), inputs, tuple((b.name, views[b.name]) for b in buffers if b.role == "output"), constants)


CONCAT = "A : f32[2,3,4]\nB : f32[2,3,6]\nL[n<2,h<3,c<10] select(c-4>=0, B[n,h,c-4], A[n,h,c])"


def joining() -> list[Kernel]:
    """z = 2·relu(concat(x·w, y + 1)): the first part by a vendor kernel, the second by a generated one."""
    a, b, joined = dense_view("a", (2, 3, 4)), dense_view("b", (2, 3, 6)), dense_view("joined", (2, 3, 10))
    return [
        Matmul(View("x", (6, 4), (4, 1)), dense_view("w", (4, 4)), View("a", (6, 4), (4, 1))),
        generated("Y : f32[2,3,6]\nL[n<2,h<3,c<6] Y[n,h,c] + 1", b, Y=Y),
        generated(CONCAT, joined, A=a, B=b),
        generated("J : f32[2,3,10]\nL[n<2,h<3,c<10] 2*relu(J[n,h,c])", dense_view("z", (2, 3, 10)), J=joined),
    ]


def parting() -> list[Kernel]:
    """v = relu of channels 2 to 4 of x + 1."""
    return [
        generated("X : f32[2,3,4]\nL[n<2,h<3,c<4] X[n,h,c] + 1", dense_view("a", (2, 3, 4)), X=X),
        generated("A : f32[2,3,4]\nL[n<2,h<3,c<3] A[n,h,c+1]", dense_view("part", (2, 3, 3)), A=dense_view("a", (2, 3, 4))),
        generated("P : f32[2,3,3]\nL[n<2,h<3,c<3] relu(P[n,h,c])", dense_view("v", (2, 3, 3)), P=dense_view("part", (2, 3, 3))),
    ]


def by_bytes(kernels: Sequence[Kernel]) -> list[float | None]:
    return [float(moved(k)) for k in kernels]


def dense_only(kernels: Sequence[Kernel]) -> list[float | None]:
    """A vendor that cannot write into windows."""
    return [inf if isinstance(k, Matmul) and k.c.strides != (4, 1) else float(moved(k)) for k in kernels]


def run(p: Plan) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return Executable(p, 1).run(*(rng.standard_normal(v.shape).astype(np.float32) for _, v in p.inputs))


@pytest.mark.parametrize(("kernels", "measured", "left"), [(joining(), by_bytes, 3), (parting(), by_bytes, 2), (joining(), dense_only, 4)])
def test_fewer_copies_and_the_same_numbers(kernels: list[Kernel], measured: Measured, left: int):
    before = plan(kernels)
    after = in_place(before, measured)
    assert len(after.kernels) == left
    assert sum(map(moved, after.kernels)) < sum(map(moved, before.kernels))
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_what_was_in_place_needs_no_buffer():
    assert {b.name for b in in_place(plan(joining()), by_bytes).buffers} == {"x", "y", "w", "joined", "z"}


@pytest.mark.parametrize("measured", [lambda kernels: [None for _ in kernels], lambda kernels: [1.0 for _ in kernels]])
def test_nothing_changes_without_a_measured_gain(measured: Measured):
    before = plan(joining()[:1] + joining()[2:], b="input")
    assert in_place(before, measured).kernels == before.kernels


@pytest.mark.parametrize(("share", "fewer"), [(0.96, True), (0.98, False), (1.0, False)])
@pytest.mark.parametrize("kernels", [joining(), parting()], ids=["joining", "parting"])
def test_a_gain_is_more_than_three_hundredths(kernels: list[Kernel], share: float, fewer: bool) -> None:
    """What is measured is what stands there with the copy, then what would: one kernel less, each so much slower that the whole takes that share."""

    def measured(both: Sequence[Kernel]) -> list[float | None]:
        new = len(both) // 2
        return [1.0] * (new + 1) + [share * (new + 1) / new] * new

    before = plan(kernels)
    assert (len(in_place(before, measured).kernels) < len(before.kernels)) == fewer


def test_an_opaque_node_needs_its_operand_dense():
    a, u = dense_view("part", (2, 3, 3)), dense_view("u", (2, 3, 3))
    node = opaque("CumSum", (a, dense_view("w", (1,))), (u,), (TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT))
    kernels = [*parting()[:2], node, generated("U : f32[2,3,3]\nL[n<2,h<3,c<3] relu(U[n,h,c])", dense_view("v", (2, 3, 3)), U=u)]
    before = plan(kernels)
    assert in_place(before, by_bytes).kernels == before.kernels


def test_an_output_of_the_program_keeps_its_place():
    kernels = [*joining()[:3]]
    before = plan(kernels, joined="output", b="output")
    after = in_place(before, by_bytes)
    assert [v.buffer for k in after.kernels for v in k.result_views] == ["joined", "b", "joined"]
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        (CONCAT, [("B", (4, 10)), ("A", (0, 4))]),
        ("A : f32[2,3,4]\nL[n<2,h<3,c<2] A[n,h,c+2]", [("A", (0, 2))]),
        ("A : f32[2,3,4]\nL[n<2,h<3,c<3] A[n,h,c+2]", []),
        ("A : f32[2,3,4]\nL[n<2,h<3,c<4] 2*A[n,h,c]", []),
        ("A : f32[2,3,4]\nL[n<2,h<3,c<2] A[n,h,2*c]", []),
        ("A : f32[4,3,4]\nL[n<4,h<3,c<4] A[c,h,n]", []),
        ("A : f32[2,3,4]\nL[n<2,h<3] Σ[c<4] A[n,h,c]", []),
        ("A : f32[2,3,4]\nB : f32[2,3,4]\nL[n<2,h<3,c<4] select(c+h-4>=0, A[n,h,c], B[n,h,c])", []),
    ],
)
def test_copies_are_recognised_by_their_index_functions(text: str, boxes: list[tuple[str, tuple[int, int]]]):
    assert [(r.base.name, box[2]) for r, box in parts(scope(text))] == boxes


HEADS = dense_view("heads", (2, 3, 4))


def merging(*between: Kernel) -> list[Kernel]:
    """z = merged(x·w)·w2 with the heads of x·w side by side, as behind an attention."""
    return [
        Matmul(dense_view("x", (2, 3, 4)), View("w", (1, 4, 4), (16, 4, 1)), HEADS),
        generated("H : f32[2,3,4]\nL[m<3,n<8] H[n//4,m,n%4]", dense_view("side", (3, 8)), H=HEADS),
        *between,
        generated("S : f32[3,8]\nL[m<3,n<8] relu(S[m,n])", dense_view("u", (3, 8)), S=dense_view("side", (3, 8))),
    ]


def heads(kernels: Sequence[Kernel], **roles: str) -> Plan:
    buffers = {"x": "input", "w": "constant", "heads": "temporary", "side": "temporary", "u": "output", **roles}
    sizes = {"w": 16}
    constants = {"w": np.random.default_rng(0).standard_normal(16).astype(np.float32)}
    given = (("x", dense_view("x", (2, 3, 4))),)
    made = tuple(Buffer(n, sizes.get(n, 24), "f32", role) for n, role in buffers.items())
    return Plan(made, tuple(kernels), given, (("u", dense_view("u", (3, 8))),), constants)


def test_a_result_is_written_in_the_order_in_which_it_is_read():
    before = heads(merging())
    after = in_place(before, by_bytes)
    assert [type(k).__name__ for k in after.kernels] == ["Matmul", "EOperator"]
    assert after.places["heads"] == View("side", (2, 3, 4), (4, 8, 1))
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_an_input_is_read_where_it_lies_in_its_order():
    copy = generated("X : f32[2,3,4]\nL[m<3,n<8] X[n//4,m,n%4]", dense_view("side", (3, 8)), X=X)
    squares = generated("S : f32[3,2,4]\nL[h<2,m<3,n<4] S[m,h,n] * S[m,h,n]", dense_view("heads", (2, 3, 4)), S=View("side", (3, 2, 4), (8, 4, 1)))
    back = generated("H : f32[2,3,4]\nL[m<3,n<8] 2*H[n//4,m,n%4]", dense_view("u", (3, 8)), H=HEADS)
    before = heads([copy, squares, back])
    after = in_place(before, by_bytes)
    assert len(after.kernels) == 2
    assert dict(after.kernels[0].operands)["S"] == View("x", (3, 2, 4), (4, 12, 1))
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_an_order_that_strides_cannot_say_is_copied():
    flat = generated("S : f32[24]\nL[m<3,n<8] relu(S[8*m+n])", dense_view("u", (3, 8)), S=dense_view("side", (24,)))
    whole = generated("X : f32[24]\nL[k<24] 2*X[k]", View("heads", (24,), (1,)), X=View("x", (24,), (1,)))
    before = heads([whole, *merging()[1:2], flat])
    assert in_place(before, by_bytes).kernels == before.kernels


def test_what_is_written_again_after_it_was_copied_is_copied():
    again = generated("X : f32[2,3,4]\nL[n<2,h<3,c<4] 3*X[n,h,c]", HEADS, X=X)
    use = generated("H : f32[2,3,4]\nU : f32[3,8]\nL[m<3,n<8] U[m,n] + H[n//4,m,n%4]", dense_view("y", (3, 8)), H=HEADS, U=dense_view("u", (3, 8)))
    before = heads([*merging(again), use], y="temporary")
    assert len(in_place(before, by_bytes).kernels) == len(before.kernels)


def vendor_is_slow(kernels: Sequence[Kernel]) -> list[float | None]:
    """A vendor that takes ten times as long to write in another order."""
    return [1.0 + 9 * (isinstance(k, Matmul) and k.c.strides != (12, 4, 1)) for k in kernels]


@pytest.mark.parametrize("measured", [vendor_is_slow, lambda kernels: [None for _ in kernels]])
def test_orders_change_only_where_that_is_measured_to_gain(measured: Measured):
    before = heads(merging())
    assert in_place(before, measured).kernels == before.kernels


def scores() -> Plan:
    """Each head's q·k', where both stand among other heads in what is given, and are copied out."""
    shapes = {"x": (3, 8), "y": (3, 8), "q": (2, 3, 4), "k": (2, 4, 3), "s": (2, 3, 3)}
    at = {name: dense_view(name, shape) for name, shape in shapes.items()}
    kernels = (
        generated("X : f32[3,8]\nL[c<2,h<3,w<4] X[h,4*c+w]", at["q"], X=at["x"]),
        generated("Y : f32[3,8]\nL[c<2,h<4,w<3] Y[w,4*c+h]", at["k"], Y=at["y"]),
        Matmul(at["q"], at["k"], at["s"]),
    )
    roles = {"x": "input", "y": "input", "s": "output"}
    buffers = tuple(Buffer(n, int(np.prod(shape)), "f32", roles.get(n, "temporary")) for n, shape in shapes.items())
    return Plan(buffers, kernels, (("x", at["x"]), ("y", at["y"])), (("s", at["s"]),))


@pytest.mark.parametrize(("dear", "left"), [(0.5, 1), (1.5, 1), (1.7, 3)])
def test_copies_that_gain_together_are_left_out_together(dear: float, left: int) -> None:
    """A copy takes 1, a product 10, and so much more where an operand lies between others: for one copy that is no gain, for both it is."""

    def measured(kernels: Sequence[Kernel]) -> list[float | None]:
        return [10.0 + dear * any(v.buffer in "xy" for v in k.operand_views) if isinstance(k, Matmul) else 1.0 for k in kernels]

    before = scores()
    after = in_place(before, measured)
    assert len(after.kernels) == left
    assert left == 1 or after.kernels == before.kernels
    x, y = np.random.default_rng(2).standard_normal((2, 3, 8)).astype(np.float32)
    for found, expected in zip(Executable(after, 1).run(x, y), Executable(before, 1).run(x, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def heads_of_rows(chunks: int) -> Plan:
    """Products of rows with a whole matrix, chunk by chunk: each reads a copy of its own, and one that all of them read."""
    shapes = {"y": (4, 3), "k": (3, 4)}
    shapes |= {f"{name}{n}": shape for n in range(chunks) for name, shape in (("x", (3, 4)), ("q", (4, 3)), ("s", (4, 4)))}
    at = {name: dense_view(name, shape) for name, shape in shapes.items()}
    kernels: list[Kernel] = [generated("Y : f32[4,3]\nL[h<3,w<4] Y[w,h]", at["k"], Y=at["y"])]
    for n in range(chunks):
        kernels.append(generated("X : f32[3,4]\nL[h<4,w<3] X[w,h]", at[f"q{n}"], X=at[f"x{n}"]))
        kernels.append(Matmul(at[f"q{n}"], at["k"], at[f"s{n}"]))
    roles = {name: {"x": "input", "y": "input", "s": "output"}.get(name[0], "temporary") for name in shapes}
    buffers = tuple(Buffer(n, int(np.prod(shape)), "f32", roles[n]) for n, shape in shapes.items())
    inputs, outputs = (tuple((n, at[n]) for n in shapes if roles[n] == role) for role in ("input", "output"))
    return Plan(buffers, tuple(kernels), inputs, outputs)


@pytest.mark.parametrize("dear", [5.0, 30.0, 0.0])
def test_copies_of_readers_that_are_alike_are_tried_together_once(dear: float) -> None:
    """What is no gain for one of them is none for the next; what is, is one for all."""
    asked: list[int] = []

    def measured(kernels: Sequence[Kernel]) -> list[float | None]:
        asked.append(sum(isinstance(k, Matmul) for k in kernels))
        moved = [any(v.buffer[0] in "xy" for v in k.operand_views) for k in kernels]
        return [10.0 + dear * m if isinstance(k, Matmul) else 30.0 if k.out.buffer == "k" else 1.0 for k, m in zip(kernels, moved)]

    chunks = 12
    after = in_place(heads_of_rows(chunks), measured)
    copies = sum(isinstance(k, EOperator) for k in after.kernels)
    assert (copies == 0) == (dear == 0.0)
    assert asked.count(2 * chunks) <= 3, "the matrix that all read moves for all of them"
