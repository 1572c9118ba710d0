"""Decisions inside of matching that no whole expression shows alone: what separates, nests, leads, or is to be mended, and how."""

from __future__ import annotations

from dataclasses import replace

import pytest

from einnet.derivation.checker.check import check_equal
from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, reads
from einnet.expr.notation.text import parse
from einnet.instantiate.address import is_alias
from einnet.instantiate.epilogues import absorb, operand_view
from einnet.instantiate.kernels import Buffer, View, dense_view
from einnet.instantiate.matching.contraction import ALL, form_problems
from einnet.instantiate.matching.convolution import Window
from einnet.instantiate.matching.matmul import _separates, group_of, relayout_order, skew_problems
from einnet.instantiate.matching.mismatches import Digits, Permute, Reflect, Relayout, Skew, Split, SumSplit, Taps, counts
from einnet.instantiate.matching.tables import CONV, CONV3, MATMUL
from einnet.instantiate.matching.types import Match, Mismatch, NoFix
from einnet.instantiate.matching.windows import leading, match_conv
from einnet.instantiate.padding import Stack, stack_of


def operands(scope: Scope) -> tuple[Read, ...]:
    return tuple(reads(scope.body))


def plain(name: str, extent: int, step: int) -> Window:
    return Window(Iter(name, 0, extent), None, 1, 1, 0, extent, step, False)


@pytest.mark.parametrize(("steps", "count"), [((24, 6, 2, 1), 2), ((30, 6, 2, 1), 1), ((23, 6, 2, 1), 1), ((6, 2, 1), 1)])
def test_batches_nest(steps: tuple[int, ...], count: int) -> None:
    """The first plain dimension is one, and more are while three or more are left, if each is as long as the step before it."""
    extents = (5, 4, 3, 2)[-len(steps) :]
    windows = [plain(name, extent, step) for name, extent, step in zip("abcd", extents, steps, strict=False)]
    assert leading(windows) == windows[:count]
    assert leading([replace(windows[0], pad=1), *windows[1:]]) == windows[1 : len(windows) - 1]


@pytest.mark.parametrize(("index", "separates"), [
    (3 * var("i") + var("j"), True), (2 * var("i") + var("j"), False), (var("j") - 3 * var("i"), True),
    (12 * var("k") + 3 * var("i") + var("j"), True), (11 * var("k") + 3 * var("i") + var("j"), False), (3 * var("i") + var("j") // 2, False),
])  # fmt: skip
def test_indices_that_tell_their_iterators_apart(index: Index, separates: bool) -> None:
    scope = parse("A : f32[99]\nL[i<4,j<3,k<2] A[i]")
    assert _separates(index, scope) == separates


def test_what_a_skew_takes_out() -> None:
    """Of two loops that are added, one of coefficient 1 or -1 that the other operand does not have; a unit loop may stand there too."""
    def found(text: str) -> list[tuple[str, Index | None]]:
        scope = parse(f"A : f32[9,5]\nB : f32[5,3]\n{text}")
        return [(m.iterator, m.index) for m in skew_problems(scope, operands(scope))]

    assert found("L[a<3,b<4] Σ[k<5] A[a+b,k]*B[k,a]") == [("b", var("a") + var("b"))]
    assert found("L[a<3,b<4] Σ[k<5] A[a+2*b,k]*B[k,a]") == []
    assert found("L[a<3,b<4] Σ[k<5] A[a+3*b,k]*B[k,a]") == []
    assert found("L[a<3,b<4,c<1] Σ[k<5] A[a-b+c+3,k]*B[k,a]") == [("b", var("a") - var("b") + var("c") + 3)]
    assert found("L[a<3,b<4] Σ[k<5] A[a+b+k,k]*B[k,a]") == []
    assert found("L[a<3,b<1] Σ[k<5] A[a+b,k]*B[k,a]") == []


def test_dimensions_of_a_copy() -> None:
    """Batch, own loops, and sums in the order of the operand that is not known before the run, wherever else they stand."""
    scope = parse("A : f32[2,3,5,6]\nW : weight f32[2,6,5,4]\nL[b<2,m<3,n<4] Σ[l<6,k<5] A[b,m,k,l]*W[b,l,k,n]")
    both = operands(scope)
    groups = {i.name: group_of(i, both, scope) for i in (*scope.loops, *scope.sums)}
    assert groups["b"] == ALL and [relayout_order(scope, both, n, groups) for n in (0, 1)] == [("b", "m", "k", "l"), ("b", "n", "k", "l")]
    own = parse("A : f32[2,3,5,6]\nC : f32[5]\nL[b<2,m<3] Σ[l<6,k<5] A[b,m,k,l]*C[k]")
    assert relayout_order(own, operands(own), 1, {i.name: group_of(i, operands(own), own) for i in own.loops}) == ("k",)


@pytest.mark.parametrize(("text", "why", "fix"), [
    ("L[2<=f<5] Σ[k<4] A[f//3,k]*B[k,f]", "has no more values than that", NoFix),
    ("L[1<=f<5] Σ[k<4] A[f//3,k]*B[k,f]", "loop f is divided by 3", Split),
    ("L[m<3] Σ[k<4,l<2] A[m,k]*B[k,l]", "summation iterator l does not stand in both", NoFix),
    ("L[m<3,n<2] Σ[k<4] A[m,k]*B[k,1]", "loop n stands in no operand", NoFix), ("L[m<3] A[m,1]*B[m,1]", "no summation iterator", NoFix),
    ("L[m<3] Σ[k<4] A[m,k]|1*B[k,m]", "another fill than 0", NoFix),
])  # fmt: skip
def test_forms_that_are_no_product(text: str, why: str, fix: type[Mismatch]) -> None:
    (found,) = form_problems(parse(f"A : f32[9,9]\nB : f32[9,9]\n{text}"))
    assert why in found.why and type(found) is fix


def test_windows_of_too_many_taps() -> None:
    """Where a table has a greatest number of taps they are split; where it has none, a window over two iterators is no window."""
    declared = "A : f32[40,3]\nK : f32[9,2,3,4]\n"
    long = match_conv(parse(f"{declared}L[h<30,f<4] Σ[r<9,c<3] A[h+r,c]*K[r,0,c,f]"), CONV3)
    assert isinstance(long, list) and [(type(m), m.divisor, m.order) for m in long] == [(Taps, 3, ("r",))]
    two = parse(f"{declared}L[h<30,f<4] Σ[r<3,s<2,c<3] A[h+3*s+r,c]*K[r,s,c,f]")
    few, any_number = match_conv(two, CONV3), match_conv(two, CONV)
    assert isinstance(few, list) and [(type(m), m.order) for m in few] == [(SumSplit, ("s",))]
    assert isinstance(any_number, list) and [type(m) for m in any_number] == [NoFix]
    back = match_conv(parse(f"{declared}L[h<30,f<4] Σ[r<9,c<3] A[h+8-r,c]*K[r,0,c,f]"), CONV)
    assert isinstance(back, list) and [(type(m), m.iterator) for m in back] == [(Reflect, "r")]


def test_steps_that_bring_nothing_new() -> None:
    """One permutation is enough, and one copy of an operand in an order; what is counted falls by itself."""
    copied, permuted = Relayout("", 0, ("a", "b")), Permute("", ("a",))
    assert copied.vain([permuted, Relayout("otherwise", 0, ("a", "b"))]) and permuted.vain([Permute("", ("b",))])
    assert not copied.vain([permuted, Relayout("", 1, ("a", "b")), Relayout("", 0, ("b", "a")), Digits("", 2, 0, ("a", "b"))])
    assert not permuted.vain([copied]) and not Split("", "i", 2).vain([Split("", "i", 2)])
    assert counts([copied, Digits("", 2), Split("", "i", 2), Split("", "j", 3), permuted]) == (2, 0, 0, 0, 0, 1)


def test_a_step_tells_what_led_to_it() -> None:
    """By the iterator that it replaces."""
    scope = parse("A : f32[40]\nK : f32[9]\nL[h<30] Σ[r<9] A[h+8-r]*K[r]")
    step = Reflect("", "r").mend(scope)
    assert step is not None and step.rule == Reflect.rule and step.before is scope and step.path == ()
    assert Reflect("", "r").led_to(step) and not Reflect("", "h").led_to(step) and not Relayout("", 0, ("r",)).led_to(step)
    assert Permute("", ("r",)).mend(scope) is None and NoFix("").mend(scope) is None


MENDED: dict[type[Mismatch], tuple[str, str]] = {
    Taps: ("L[h<30,f<4] Σ[r<9,c<3] A[h+r,c]*K[r,0,c,f]", "r=3*r'+r''"), SumSplit: ("L[h<30,f<4] Σ[r<3,s<2,c<3] A[h+3*s+r,c]*K[r,s,c,f]", "outside=s"),
    Reflect: ("L[h<30,f<4] Σ[r<3,c<3] A[h+8-r,c]*K[r,0,c,f]", "r=2-r"), Skew: ("L[h<20,f<4] Σ[r<3,c<3] A[h+3*f+r,c]*K[r,0,c,f]", "t=h+3*f"),
    Split: ("L[h<12,f<4] Σ[c<3] A[h//3,c]*K[h%3,0,c,f]", "h=3*h'+h''"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MENDED, ids=lambda k: k.name)
def test_what_a_mismatch_names_is_a_step_that_the_checker_proves(kind: type[Mismatch]) -> None:
    text, parameters = MENDED[kind]
    scope = parse(f"A : f32[40,3]\nK : weight f32[9,2,3,4]\n{text}")
    found = next(m for table in (CONV3, MATMUL) for m in table.match(scope) if isinstance(m, kind))  # type: ignore[union-attr]
    step = found.mend(scope)
    assert step is not None
    assert (step.rule, step.parameters) == (kind.rule, parameters)
    assert check_equal(scope, step.after).method


def test_a_copy_has_groups_before_channels() -> None:
    """As the operator nests them: with the channels in front, a group's would not be adjacent."""
    scope = parse("A : f32[44,2]\nK : weight f32[3,4,3,2]\nL[h<8,g<2,f<3] Σ[r<3,c<4] A[4*h+4*r+c,g]*K[r,c,f,g]")
    found = next(m for m in CONV.match(scope) if isinstance(m, Digits))  # type: ignore[union-attr]
    assert found.added == (var("h") + var("r"), var("g"), var("c"))
    step = found.mend(scope)
    assert step is not None and check_equal(scope, step.after).method == "inline"


def test_stacks_of_matrices() -> None:
    """They fill a buffer without gaps, and there are several of several rows."""
    view, buffer = View("t", (6, 4, 8), (32, 8, 1)), Buffer("t", 192, "f32", "temporary")
    assert stack_of(view, buffer) == Stack("t", 6, 4, 8)
    for other in (
        replace(view, strides=(32, 8, 2)), replace(view, strides=(32, 9, 1)), replace(view, offset=1), View("t", (6, 1, 8), (8, 8, 1)),
        View("t", (1, 24, 8), (192, 8, 1)), View("t", (6, 4, 7), (32, 8, 1)),
    ):  # fmt: skip
        assert stack_of(other, replace(buffer, size=48) if other.shape[1] == 1 else buffer) is None, other
    assert stack_of(view, replace(buffer, size=193)) is None
    assert Stack("t", 36, 16, 21).overlap == 1


@pytest.mark.parametrize(("operand", "result", "found"), [
    ("A[i,k]", View("y", (4, 6), (6, 1)), View("b", (4, 6), (6, 1))), ("A[i,k]", View("y", (24,), (1,)), View("b", (24,), (1,))),
    ("A[i,k]", View("y", (4, 1, 2, 3), (6, 6, 3, 1)), View("b", (4, 1, 2, 3), (6, 1, 3, 1))),
    ("B[k]", View("y", (4, 6), (6, 1)), View("b", (1, 6), (1, 1))),
    ("B[k]", View("y", (24,), (1,)), None), ("A[i,0]", View("y", (4, 6), (6, 1)), View("b", (4, 1), (6, 1))),
    ("B[5-k]", View("y", (4, 6), (6, 1)), None), ("C[k,i]", View("y", (4, 6), (6, 1)), View("b", (4, 6), (1, 4))),
    ("C[k,i]", View("y", (24,), (1,)), None), ("A[i,k]", View("y", (2, 12), (12, 1)), None),
    ("A[i,k]", View("y", (8, 3), (3, 1)), None), ("B[k]", View("y", (8, 3), (3, 1)), None),
])  # fmt: skip
def test_windows_of_an_operand_over_a_result(operand: str, result: View, found: View | None) -> None:
    scope = parse(f"A : f32[4,6]\nB : f32[6]\nC : f32[6,4]\nL[i<4,j<1,k<6] {operand}")
    (r,) = operands(scope)
    assert operand_view(scope, r, result, "b") == found


@pytest.mark.parametrize("kind", ["bool", "i64", "f16"])
def test_no_library_reads_another_type(kind: str) -> None:
    """A library would take what stands there for float32: an operand of another type is not matched, added afterwards, or taken as it lies."""
    product = "L[m<8,n<8] Σ[k<8] A[m,k]*B[k,n]"
    assert isinstance(MATMUL.match(parse("A : f32[8,8]\nB : f32[8,8]\n" + product)), Match)
    assert not isinstance(MATMUL.match(parse(f"A : {kind}[8,8]\nB : f32[8,8]\n" + product)), Match)
    tail = parse(f"A : f32[8,8]\nB : f32[8,8]\nC : {kind}[8,8]\nL[m<8,n<8] {{{product}}}[m,n] + C[m,n]")
    (inner,) = tail.nested
    assert absorb(tail, inner, dense_view("Y", (8, 8)), lambda base: "C") is None
    assert not is_alias(parse(f"C : {kind}[8,8]\nL[m<8,n<8] C[m,n]"))
    assert is_alias(parse("C : f32[8,8]\nL[m<8,n<8] C[m,n]"))
