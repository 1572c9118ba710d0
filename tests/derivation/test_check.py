"""The checker accepts true steps by their normal forms and rejects mutated ones, at real extents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from einnet.derivation.checker import check as check_module
from einnet.derivation.checker.cases import Part, _parts, equal_by_cases
from einnet.derivation.checker.check import MOST_POINTS, Difference, check, check_equal
from einnet.derivation.checker.oracle import Witness
from einnet.derivation.einfile import parse as parse_file
from einnet.derivation.steps import Derivation, Step, subscope
from einnet.errors import CertificateError
from einnet.expr.index import var
from einnet.expr.nodes import Iter, Read, Scope, Tensor
from einnet.expr.notation.text import parse
from einnet.expr.values.arithmetic import Strict
from einnet.expr.values.points import values_at
from tests.strategies import repeatable, scopes

CHAINS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "chains").glob("*.ein"))}


def chain(text: str) -> Derivation:
    return parse_file(text).derivation


@pytest.mark.parametrize("name", CHAINS)
def test_true_chains_are_proven_by_normal_forms(name: str) -> None:
    derivation = chain(CHAINS[name])
    assert [p.method for p in check(derivation)] == ["inline"] * len(derivation.steps)
    assert check_equal(derivation.start, derivation.end).method == "inline"


MUTANTS = [
    ("conv3x3", 1, "h+r-1", "h+r"),
    ("conv3x3", 1, "Σ[c<64]", "Σ[c<63]"),
    ("conv3x3", 1, "A[h+r-1,w+s-1,c]*K[r,s,f,c]", "A[h+r-1,w+s-1,c]*K[s,r,f,c]"),
    ("conv3x3", 1, "K[r,s,f,c]", "K[r,s,c,f]"),
    ("conv3x3", 1, "[h,w,f,r,s]", "[w,h,f,r,s]"),
    ("conv3x3", 1, "{L[h<56,", "{L[h<55,"),
    ("conv3x3", 2, "-1<=t<57", "1<=t<57"),
    ("conv3x3", 2, "[h+r-1,w+s-1,f,r,s]", "[h+r-1,w+s-2,f,r,s]"),
    ("conv3x3", 3, "{L[t<56,u<56", "{L[t<56,u<55"),
    ("conv3x3", 3, "A[t,u,c]", "A[u,t,c]"),
    ("conv3x3", 4, "{L[t<56,u<56", "{L[t<56,1<=u<56"),
    ("conv3x3", 1, "w+s-1,c]*K", "w+s-1,c]|1*K"),
    ("conv3x3", 4, "A[t,u,c]*K[r,s,f,c]", "A[t,u,c]"),
    ("conv3x3", 4, "A[t,u,c]*", "2*A[t,u,c]*"),
    ("conv3x3", 5, "n//64-3*(n//192)", "n//64-4*(n//192)"),
    ("conv3x3", 5, "m//56,m%56", "m//55,m%55"),
    ("conv3x3", 5, "m<3136", "m<3135"),
    ("conv3x3", 5, "f+192*r+64*s", "f+192*s+64*r"),
    ("transposed", 1, "(h-r+1)/2", "(h-r+1)//2"),
    ("transposed", 1, "(h-r+1)/2", "(h-r)/2"),
    ("transposed", 2, "(h-r+1)/2,(w-s+1)/2", "(h-r+1)//2,(w-s+1)/2"),
    ("transposed", 3, "h'+(h''+1)//2-r'", "h'-r'"),
    ("transposed", 3, "(h''+1)%2", "h''%2"),
    ("transposed", 3, "Σ[r'<2", "Σ[r'<1"),
    ("products", 1, "B[j,k]", "B[j,j]"),
    ("products", 2, "k<128", "k<127"),
    ("band", 1, "i//4,i%4", "i//4,(i+1)%4"),
    ("band", 2, "u<80", "u<79"),
    ("band", 2, "j<400", "j<280"),
    ("band", 2, "4*j-128", "4*j-124"),
    ("conv5x5", 1, "r<6", "r<4"),
    ("conv5x5", 2, "r''<3", "r''<4"),
    ("conv5x5", 3, "t<227", "t<225"),
    ("conv5x5", 3, "t+r-2", "t+r-3"),
    ("strided", 1, "r''<2", "r''<1"),
    ("strided", 2, "e<2", "e<1"),
    ("dilated", 1, "h'+r-1", "h'+r"),
    ("dilated", 1, "A[e+2*j,c]", "A[e+2*j,c] + A[2*j,c]"),
    ("attention", 1, "V[-j+63,f]", "V[j,f]"),
    ("attention", 1, "exp({L[j<64", "tanh({L[j<64"),
    ("winograd", 1, "AT[h%2,p]*AT[w%2,q]", "AT[h%2,q]*AT[w%2,q]"),
    ("winograd", 1, "2*h+a-1", "2*h+a"),
    ("winograd", 1, "BT[p,a]", "BT[a,p]"),
    ("winograd", 1, "G[q,s]", "G[p,s]"),
    ("pool", 1, "|-inf}", "}"),
    ("pool", 1, "}[h,2*w+s]|-inf", "}[h,2*w+s-1]|-inf"),
    ("pool", 1, "max[r<3]", "max[r<2]"),
]


@pytest.mark.parametrize(("name", "number", "old", "new"), MUTANTS)
def test_mutated_steps_are_rejected_with_a_point(name: str, number: int, old: str, new: str) -> None:
    derivation = chain(CHAINS[name])
    states = list(derivation.states())
    declared = str(states[0]).rpartition("\n")[0]
    text = states[number].text()
    assert old in text
    wrong = parse(f"{declared}\n{text.replace(old, new, 1)}")
    before, after = Derivation(derivation.start, derivation.steps[: number - 1]), Step("mutant", f"{old} -> {new}", states[number - 1], wrong)
    with pytest.raises(Difference, match=rf"step {number} \(mutant .*differ at") as caught:
        check(replace(before, steps=(*before.steps, after)))
    point = caught.value.point
    assert len(point) == len(wrong.loops)
    witness = caught.value.witness
    assert witness is not None and witness.point == point
    left, right = (reproduced(s, witness) for s in (states[number - 1], wrong))
    assert abs(left - right) > 1e-9 * max(abs(left), abs(right))


def reproduced(scope: Scope, witness: Witness) -> float:
    """The value of a scope at a witness's point, in doubles."""
    return float(values_at(scope, np.asarray([witness.point]).reshape(1, -1), Strict(), witness.draw.floats)[0])


def test_a_step_must_start_from_what_stands_there() -> None:
    derivation = chain(CHAINS["conv3x3"])
    swapped = replace(derivation, steps=(derivation.steps[0], derivation.steps[2]))
    with pytest.raises(CertificateError, match=r"step 2 .*there is no scope at 0\.0"):
        check(swapped)
    moved = replace(derivation.steps[1], path=())
    with pytest.raises(CertificateError, match="the step starts from"):
        check(replace(derivation, steps=(derivation.steps[0], moved)))


@pytest.mark.parametrize("path", [(), (0,)])
def test_a_step_that_starts_from_something_else_of_one_shape_is_refused(path: tuple[int, ...]) -> None:
    """Its own two sides are equal: what is wrong is that the first does not stand there."""
    state = parse("A : f32[4]\nB : f32[4]\nL[i<4] {L[i<4] relu(A[i])}[i]")
    there = subscope(state, path)
    for claimed in ("L[i<4] relu(B[i])", "L[i<4] relu(A[3-i])", "L[i<4] 2*relu(A[i])"):
        other = parse(f"A : f32[4]\nB : f32[4]\n{claimed}")
        assert other.box == there.box and other.key != there.key
        with pytest.raises(CertificateError, match="the step starts from"):
            check(Derivation(state, (Step("claimed", "", other, other, path),)))
    assert check(Derivation(state, (Step("claimed", "", there, there, path),)))


def test_a_step_is_equal_where_it_stands_not_where_it_is_read() -> None:
    """A scope may shrink to what its reader wants, at any depth; of one box, all its elements are what they were."""
    state = parse("A : f32[9]\nL[i<4] relu({L[i<4] tanh({L[i<4] relu({L[j<9] A[j]}[i])}[i])}[i])")
    path = (0, 0, 0)
    before = subscope(state, path)
    shorter, other = parse("A : f32[9]\nL[j<4] A[j]"), parse("A : f32[9]\nL[j<9] select(j<4, A[j], 0)")
    check(Derivation(state, (Step("tighten", "", before, shorter, path),)))
    for wrong in (other, parse("A : f32[9]\nL[j<3] A[j]"), parse("A : f32[9]\nL[j<4] 2*A[j]")):
        with pytest.raises(Difference):
            check(Derivation(state, (Step("tighten", "", before, wrong, path),)))


def test_forms_of_too_many_terms_are_evaluated() -> None:
    """24 by 24 terms: no normal form, so that both sides are compared where they are."""
    sums = ["(" + " + ".join(f"{x}[i+{n}]" for n in range(24)) + ")" for x in "AB"]
    product = "*".join(sums)
    whole, other, wrong = (parse(f"A : f32[64]\nB : f32[64]\nL[i<30] {text}") for text in (product, f"1*{product}", f"2*{product}"))
    proof = check_equal(whole, other)
    assert proof.method == "random" and proof.details.startswith("no normal form: more than 512 terms; ")
    assert proof.details.endswith("; equal at all points modulo 2^61-1 for 2 seeds") and proof.points == 30
    cut = parse("A : f32[64]\nL[i<30] select(i>=5, A[i], 0)")
    assert not equal_by_cases(whole, other, [cut]) and not equal_by_cases(whole, wrong, [cut])
    assert equal_by_cases(cut, cut, [cut]) == 2
    with pytest.raises(Difference):
        check_equal(whole, wrong)


def test_what_has_too_many_terms_is_proven_where_both_sides_only_read_it() -> None:
    sums = ["(" + " + ".join(f"{x}[i+{n}]" for n in range(24)) + ")" for x in "AB"]
    large, small = "*".join(sums), "{L[i<30] B[i]*B[i]}[i]"
    sides = [f"2*{{L[i<30] {large}}}[i]*B[i]", f"{{L[i<30] {large}}}[i]*(B[i] + B[i])", f"{{L[i<30] {large}}}[i]*(B[i] + A[i])"]
    one, other, wrong = (parse(f"A : f32[64]\nB : f32[64]\nL[i<30] {text}") for text in sides)
    assert check_equal(one, other).method == "inline"
    for left, right in ((one, wrong), *((parse(f"A : f32[64]\nB : f32[64]\nL[i<30] {small}*{n}*{large}") for n in (2, 3)),)):
        with pytest.raises(Difference):
            check_equal(left, right)


def test_of_a_large_box_some_points_are_compared() -> None:
    """Half of a value rounded down, and half of it and a half, are the whole value rounded down: known by values alone."""
    before, after = (parse(f"A : f32[1000]\nL[i<1000] {text}") for text in ("floor(A[i]) + floor(1/2 + A[i])", "floor(2*A[i])"))
    proof = check_equal(before, after)
    assert proof.method == "random" and 0 < proof.points <= MOST_POINTS
    small = (parse(f"A : f32[6]\nL[i<6] {text}") for text in ("floor(A[i]) + floor(1/2 + A[i])", "floor(2*A[i])"))
    assert check_equal(*small).points == 6


def test_how_many_cases() -> None:
    """The cuts of conditions alone where they suffice; those at the edges of what is read else."""
    told = {name: check_equal(parse(d + whole), parse(d + pieces)).details for name, (d, whole, pieces, _, _) in PIECES.items()}
    assert {name: int(text.split()[-2]) for name, text in told.items()} == {
        "phases": 2, "halves": 2, "side by side, under a function": 2, "one above the other, with a factor": 2, "tiles with a tail": 2,
    }  # fmt: skip


def test_the_numbers_of_constant_matrices_count() -> None:
    derivation = chain(CHAINS["winograd"])
    for old, new in (("[1,1,1,0,0,1,-1,-1]", "[1,1,1,0,0,1,-1,1]"), ("1/2,1/2,1/2", "1/2,1/4,1/2"), ("[1,0,-1,0,0,1,1", "[1,0,-1,0,0,1,2")):
        wrong = chain(CHAINS["winograd"].replace(old, new))
        assert wrong.end.key != derivation.end.key
        with pytest.raises(Difference, match=r"step 1 \(bilinear F\(2,3\)"):
            check(wrong)


def test_boxes_and_declarations_must_agree() -> None:
    conv = parse("A : f32[8]\nL[h<8] A[h]")
    with pytest.raises(CertificateError, match=r"boxes differ: 0\.\.7 before, 0\.\.8 after"):
        check_equal(conv, parse("A : f32[8]\nL[h<9] A[h]"))
    with pytest.raises(CertificateError, match="boxes differ"):
        check_equal(parse("A : f32[8,4]\nL[h<8,w<4] A[h,w]"), parse("A : f32[8,4]\nL[w<4,h<8] A[h,w]"))
    with pytest.raises(CertificateError, match="tensor A is"):
        check_equal(conv, parse("A : f32[9]\nL[h<8] A[h]"))


def test_index_arithmetic_that_leaves_64_bits_is_an_error() -> None:
    start = Scope((Iter("h", 0, 8),), (), parse("A : f32[8]\nL[h<8] A[h]").body)
    far = replace(start, body=Read(Tensor("A", (8,)), ((1 << 62) * (var("h") // 9) + var("h"),)))
    wide = replace(start, body=Read(Tensor("A", (8,)), (((3 << 60) * var("h") + 5) // ((1 << 62) - 1),)))
    assert check_equal(start, start).method == "inline"
    for scope in (far, wide):
        with pytest.raises(CertificateError, match="leaves 64 bits"):
            check_equal(start, scope)
    large = parse("A : f32[4000000000,4000000000]\nL[h<8] A[h,h]")
    with pytest.raises(CertificateError, match="addresses that leave 64 bits"):
        check_equal(large, large)


def test_classes_are_checked() -> None:
    scope = parse("A : f32[8]\nL[h<8] A[h]")
    with pytest.raises(CertificateError, match="needs an error bound"):
        check(Derivation(scope, (Step("bilinear", "", scope, scope, kind="precision"),)))
    with pytest.raises(CertificateError, match="no numerical class"):
        check(Derivation(scope, (Step("bilinear", "", scope, scope, kind="magic"),)))


PIECES = {
    "phases": (
        "A : f32[64]\nK : f32[4]\n",
        "L[h<128] Σ[r<4] A[(h-r)/2]*K[r]",
        "L[h<128] {L[h<64] Σ[r<2] A[h-r]*K[2*r]}[h/2] + {L[h<64] Σ[r<2] A[h-r]*K[2*r+1]}[(h-1)/2]",
        "2*r+1",
        "2*r",
    ),
    "halves": (
        "A : f32[64,9]\nK : f32[9,5]\n",
        "L[h<64,n<5] Σ[k<9] A[h,k]*K[k,n]",
        "L[h<64,n<5] {L[h<27,n<5] Σ[k<9] A[h,k]*K[k,n]}[h,n] + {L[h<37,n<5] Σ[k<9] A[h+27,k]*K[k,n]}[h-27,n]",
        "h-27",
        "h-26",
    ),
    "side by side, under a function": (
        "A : f32[6,7]\nB : f32[6,4]\n",
        "L[i<6,j<11] relu(select(j>=7, B[i,j-7], A[i,j]))",
        "L[i<6,j<11] select(j>=7, relu(B[i,j-7]), relu(A[i,j]))",
        "j>=7",
        "j>=6",
    ),
    "one above the other, with a factor": (
        "A : f32[6,7]\nB : f32[4,7]\n",
        "L[i<10,j<7] tanh(select(i>=6, B[i-6,j], A[i,j]))*select(i>=6, A[i-6,j], A[i,j])",
        "L[i<10,j<7] tanh(A[i,j])*A[i,j] + tanh(B[i-6,j])*A[i-6,j]",
        "B[i-6,j]",
        "B[i-5,j]",
    ),
    "tiles with a tail": (
        "A : f32[66]\n",
        "L[h<64] relu(A[h+2])",
        "L[h<64] {L[t<9,i<7] relu(A[7*t+i+2])}[h//7,h%7] + {L[h<1] relu(A[h+65])}[h-63]",
        "t<9",
        "t<8",
    ),
}


@pytest.mark.parametrize("name", PIECES)
def test_what_is_put_together_from_disjoint_pieces_is_proven_by_cases(name: str) -> None:
    declared, whole, pieces, old, new = PIECES[name]
    proof = check_equal(parse(declared + whole), parse(declared + pieces))
    assert proof.method == "inline" and "cases" in proof.details
    assert old in pieces
    with pytest.raises(Difference):
        check_equal(parse(declared + whole), parse(declared + pieces.replace(old, new, 1)))


def test_cases_cover_the_box_and_count_each_point_once() -> None:
    loop = Iter("h", -3, 21)
    forms = [parse("A : f32[64]\nL[-3<=h<21] select(h>=2 & 15-2*h>=0, A[h//3], A[(h+1)/2])")]
    for edges in (False, True):
        parts = _parts(loop, forms, edges)
        assert len(parts) > 4 and {p.step for p in parts} == {6}
        assert sorted(p.first + p.step * x for p in parts for x in range(p.count)) == list(range(-3, 21))
    inside = [parse("A : f32[9]\nL[-3<=h<21] relu(A[2*h+1]*{L[4<=x<6] A[x]}[8-h])")]
    assert [p.first for p in _parts(loop, inside, False)] == [-3]
    assert [p.first for p in _parts(loop, inside, True)] == [-3, 0, 3, 4, 5]


@pytest.mark.parametrize(("body", "edges", "starts", "step"), [
    ("select(h==5, A[h], 0)", False, [0, 5, 6], 1), ("select(h>=5, A[h], 0)", False, [0, 5], 1), ("select(7-2*h>=0, A[h], 0)", False, [0, 4], 1),
    ("select(h==0, A[h], 0)", False, [0, 1], 1), ("A[h//3]", False, [0, 1, 2], 3), ("A[h//25]", False, [0], 1), ("A[(2*h+4)/2]", False, [0], 1),
    ("A[(h+4)/2]", False, [0, 1], 2), ("A[h-2]", True, [0, 2], 1), ("A[h+4]", True, [0, 5], 1), ("A[h+4]", False, [0], 1),
    ("A[h/2]", True, [0, 1], 2),
    ("{L[h<9] select(h>=4, A[h], 0)}[h]", False, [0, 4], 1), ("A[h//24]", False, list(range(10)), 24),
])  # fmt: skip
def test_where_a_loop_is_cut(body: str, edges: bool, starts: list[int], step: int) -> None:
    parts = _parts(Iter("h", 0, 10), [parse(f"A : f32[9]\nL[h<10] {body}")], edges)
    assert ([p.first for p in parts], {p.step for p in parts}) == (starts, {step})


def test_a_division_that_a_loop_takes_no_part_in_does_not_cut_it() -> None:
    scope = parse("A : f32[64]\nL[h<10,k<8] A[(2*h+k)/2]")
    assert [_parts(i, [scope], False) for i in scope.loops] == [[Part(0, 10, 1)], [Part(0, 4, 2), Part(1, 4, 2)]]


def test_edges_of_what_is_read_are_cases_only_where_conditions_do_not_suffice() -> None:
    """The number of cases is the product over the loops; one case is no proof by cases."""
    for text, cases in (("select(h>=4, A[h-2], 2*A[h-2])", 2), ("select(h>=4, select(k>=2, A[h-2], 0), A[h])", 4), ("relu(A[h-2])", 3), ("B[h]", 0)):
        scope = parse(f"A : f32[4]\nB : f32[8]\nL[h<8,k<3] {text}")
        assert equal_by_cases(scope, scope, [scope]) == cases, text


def test_products_of_what_is_nowhere_together_vanish() -> None:
    """Also where no condition is written; a common element keeps them."""
    nothing = parse("L[i<10] 0")
    for text, empty in (
        ("L[i<10] A[i]*A[i-7]", False), ("L[i<10] A[i]*A[i-8]", True),
        ("L[i<10] Σ[k<3] A[i+k]*A[i+k-8]", True), ("L[i<10] Σ[k<3] A[i+k]*A[i-7]", False),
        ("L[i<10] max[k<3] A[i+k]*A[i+k-8]", True),
    ):  # fmt: skip
        scope = parse(f"A : f32[8]\n{text}")
        if empty:
            assert check_equal(scope, nothing).method == "inline", text
        else:
            with pytest.raises(Difference):
                check_equal(scope, nothing)


def test_what_has_no_common_normal_form_is_evaluated_and_says_so() -> None:
    start = parse("A : f32[64]\nL[h<64] sin(A[h])*sin(A[h])")
    proof = check_equal(start, parse("A : f32[64]\nL[h<64] 1 - cos(A[h])*cos(A[h])"))
    assert proof.method == "random" and proof.points >= 64 and "zeros, ties and constants" in proof.details
    with pytest.raises(Difference):
        check_equal(start, parse("A : f32[64]\nL[h<64] 1 - cos(A[h])*cos(A[63-h])"))


@repeatable(60)
@given(scopes(depth=2), scopes(depth=2))
def test_verdicts_agree_with_values(left: Scope, right: Scope) -> None:
    """Whatever is accepted by its form has equal values; a scope equals itself."""
    assert check_equal(left, left).method == "inline"
    if left.box == right.box:
        try:
            proof = check_equal(left, right)
        except CertificateError:
            return
        assert proof.method in ("inline", "random")


def test_paths_reach_repeated_scopes_one_by_one() -> None:
    start = parse("A : f32[8]\nL[h<8] {L[h<8] A[h]*A[h]}[h] + {L[h<8] A[h]*A[h]}[h]")
    new = parse("A : f32[8]\nL[x<8] A[7-(7-x)]*A[x]*1")
    derivation = Derivation(start, (Step("fold", "", subscope(start, (1,)), new, (1,)),))
    check(derivation)
    assert subscope(derivation.end, (0,)) == subscope(start, (0,))
    assert subscope(derivation.end, (1,)) == new


def test_all_points_are_compared_where_both_sides_can_be_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those that are chosen; in either order of the sides, and no matter which of them is dear."""
    seen: list[int] = []
    monkeypatch.setattr(check_module, "witness", lambda before, after, chosen, every: seen.append(len(every)) or len(every))
    cheap, dear = (parse(f"A : f32[904]\nL[h<900] {body}") for body in ("relu(A[h])", "max[k<4] A[h+k]"))
    for budget, all_ in ((3600, True), (3599, False), (899, False)):
        monkeypatch.setattr(check_module, "_BUDGET", budget)
        for sides in ((cheap, dear), (dear, cheap)):
            proof = check_module._test(*sides, (), "tried")
            assert (seen[-1] == 900) == all_ and 0 < proof.points < 900
            assert proof.details == f"tried; equal at {seen[-1]} values, zeros, ties and constants among them"


def test_a_scope_in_which_two_iterators_have_one_name_is_refused() -> None:
    sound = parse("L[k<4] Σ[m<4] A[k,m]*B[m,k]", {"A": Tensor("A", (4, 4)), "B": Tensor("B", (4, 4))})
    captured = Scope(sound.loops, (Iter("k", 0, 4),), sound.body)
    for sides in ((sound, captured), (captured, sound), (captured, captured)):
        with pytest.raises(CertificateError, match="two iterators have one name"):
            check_equal(*sides)
