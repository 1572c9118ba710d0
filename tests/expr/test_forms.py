"""Normal forms beside what rules are known to take: the value stays, what is equal by a law of indices has one form, and what may not exist stays."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from einnet.derivation.checker.draws import GENERIC, SMALL, Choice, Draw
from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import Scope
from einnet.expr.normal.edges import explicit
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach, by_bends
from einnet.expr.notation.text import parse
from einnet.expr.values.points import values_at
from einnet.expr.values.rationals import Rationals
from tests.derivation.generators import all_points, nearly_same
from tests.derivation.perturbed import perturbed, small
from tests.derivation.rule_cases import CASES
from tests.derivation.test_rules import expression
from tests.expr.loose import loose_scope

LOOSE = (
    "1/W[m]", "log(W[m])", "0*select(m-3>=0, W[m], inf)", "sin(select(m-3>=0, W[m], inf))", "select(m-3>=0, W[m], -inf) + select(m-5>=0, V[m], inf)",
    "{L[m<8] Σ[k<2] select(m+k-3>=0, W[k], inf)*val(1-2*k)}[m]", "{L[m<8] Σ[k<2] select(m+k-3>=0, W[k], inf) + select(k-1>=0, 0, -inf)}[m]",
)  # fmt: skip
"""What has no value somewhere: a quotient, a logarithm, 0 times infinity, infinities of two signs, a function without a limit."""

DOWN = "select(h-3>=0, V[h], -inf)"
SOMEWHERE = ("select(m-3>=0, 1/V[m], 0)", "select(m%2==0, 1/V[m], 0)")
WAYS = ("3*V[m]*(-inf) - 2*V[m]*(-inf)", "V[m]*(-inf) + 0*V[m]*(-inf)", "0*V[m]*(-inf) + V[m]*(-inf)")
DECLARED = "V : f32[8]\nW : f32[19]\nY : f32[9,9]\nU : f32[1]\nM : f32[4,6]\n"
ZERO, ONE = Fraction(0), Fraction(1)
TRANSCENDENTAL = ("exp(", "tanh(", "log(", "pow(")
TEXTS = [text for case in CASES.values() for text in (*(before for before, _, _ in case.goldens), *(before for before, _ in case.refusals))]
KNOWN = [s for text in TEXTS if "isnan" not in text and small(s := expression(text))]


def same_everywhere(scope: Scope, form: Scope) -> bool:
    """At every place and around the box, for numbers in general and for small ones, of which some are 0; nothing is what does not exist."""
    if any(name in scope.text() for name in TRANSCENDENTAL):
        return nearly_same(scope, form, 0) or "exp(" not in scope.text()
    for palette in (SMALL, GENERIC):
        draw = Draw("", Choice(palette, "forms"))
        found, wanted = (values_at(s, all_points(scope), Rationals(), draw.rationals) for s in (form, scope))
        if not all(a == b or (a != a and b != b) for a, b in zip(np.ravel(found), np.ravel(wanted), strict=True)):
            return False
    return True


def test_forms_keep_every_value_beside_the_cases_of_rules() -> None:
    formed = 0
    for n, known in enumerate(KNOWN[::7]):
        scope = perturbed(Random(f"forms {n}"), known)
        try:
            form = inline(scope)
        except OutOfReach:
            continue
        formed += 1
        assert form.box == scope.box and same_everywhere(scope, form), f"{scope}\n{form.text()}"
    assert formed > 20


@pytest.mark.parametrize("bends", [False, True])
def test_forms_keep_what_is_infinite_or_does_not_exist(bends: bool) -> None:
    """Of quotients, masks, fills and scopes that are read beyond their boxes, beside each other."""
    for seed in range(70):
        scope = loose_scope(Random(f"loose {seed}"))
        with by_bends() if bends else nullcontext():
            form = inline(scope)
        for palette in (SMALL, GENERIC, (ZERO,), (ZERO, ONE, -ONE)):
            draw = Draw("", Choice(palette, f"loose {seed}"))
            found, wanted = (values_at(s, np.arange(4).reshape(4, 1), Rationals(), draw.rationals) for s in (form, scope))
            same = (a == b or (a != a and b != b) for a, b in zip(np.ravel(found), np.ravel(wanted), strict=True))
            assert all(same), f"seed {seed}: {scope.text()}\nis no {form.text()}"


@pytest.mark.parametrize(("one", "other"), [
    ("L[h<3,w<2] Σ[k<9] select(2*k-h-w==0, W[k], 0)", "L[h<3,w<2] Σ[k<2] select(2*k-h-w==0, W[k], 0)"),
    ("L[h<7] {L[x<8] relu(select(x-7>=0, W[x], V[x]))}[h]", "L[h<7] relu(V[h])"),
    ("L[h<8] select(h//3-1>=0, V[h], 0)", "L[h<8] select(h-3>=0, V[h], 0)"),
    ("L[h<8] select(2-h//3>=0, V[h], 0)", "L[h<8] V[h]"),
    ("L[h<8] V[h]|1", "L[h<8] V[h]"), ("L[h<8] select(2*h-5>=0, V[h], 0)", "L[h<8] select(h-3>=0, V[h], 0)"),
    ("L[h<8] relu({L[x<12] Σ[k<3] tanh(V[x-4]*W[k])}[h+2])", "L[h<8] select(h-2>=0, relu({L[2<=h<8] Σ[k<3] tanh(V[h-2]*W[k])}[h]), 0)"),
    ("L[h<6] Σ[1<=k<9] V[(k-1)//2]*W[k//2]", "L[h<6] Σ[k<8] V[k//2]*W[(k+1)//2]"),
    ("L[h<8] exp(2*select(h-3>=0, 3*V[h], -inf))", "L[h<8] select(h-3>=0, exp(6*V[h]), 0)"),
    ("L[h<8] exp(select(h-3>=0, 3*V[h] + 1/2, -inf) + V[0])", "L[h<8] select(h-3>=0, exp(V[0] + 3*V[h] + 1/2), 0)"),
    ("L[h<8] tanh(select(h-3>=0, V[h], 0) + select(h-3>=0, W[h], 0))", "L[h<8] select(h-3>=0, tanh(V[h] + W[h]), 0)"),
    ("L[h<8] tanh(select(h%3==0, V[h], 0) + select(h%3==0, W[h], 0))", "L[h<8] select(h%3==0, tanh(V[h] + W[h]), 0)"),
    ("L[h<8] sign(2*V[h])", "L[h<8] sign(V[h])"), ("L[h<8] sign(-2*V[h])", "L[h<8] sign(-1*V[h])"),
    ("L[h<8] exp(V[h])*exp(W[h])", "L[h<8] exp(V[h] + W[h])"), ("L[h<8] abs(V[h])*W[h]*abs(V[h])", "L[h<8] V[h]*V[h]*W[h]"),
    ("L[h<8] select(h-3>=0, V[h], 0)*W[h]", "L[h<8] select(h-3>=0, V[h]*W[h], 0)"),
    ("L[h<8] select(h-3>=0, V[h], 0)*select(h-3>=0, 1/W[h], 0)", "L[h<8] select(h-3>=0, V[h]/W[h], 0)"),
    (f"L[h<8] {DOWN} + {DOWN}", f"L[h<8] 2*{DOWN}"), ("L[h<8] 1/V[h] + 0/V[h]", "L[h<8] 1/V[h]"), ("L[h<8] W[h] + 0*V[h]|inf", "L[h<8] W[h]"),
    ("L[h<8] (V[h] + V[h])*(-inf)", "L[h<8] 2*V[h]*(-inf)"), ("L[h<8] (V[h] - V[h])*(-inf)", "L[h<8] 0*(-inf)"),
    ("L[h<8] Σ[y<4] V[(2*y+h)/4]", "L[h<8] Σ[y<4] V[(2*(3-y)+h)/4]"), ("L[h<8] W[h]/V[h] + 0/V[h]", "L[h<8] W[h]/V[h]"),
    ("L[m<8] Σ[k<19] V[k]/W[m]", "L[m<8] Σ[k<8] V[k]/W[m]"), ("L[h<8] sign(-5)*V[h]", "L[h<8] -1*V[h]"), ("L[h<8] sign(7)*V[h]", "L[h<8] V[h]"),
])  # fmt: skip
def test_laws_of_indices(one: str, other: str) -> None:
    assert inline(parse(DECLARED + one)).key == inline(parse(DECLARED + other)).key


AT = "Σ[k<8] select(k-m==0, {}, 0)"
NARROWED = "{{L[{}] relu(select({}, W[w], Y[x,w]))}}[{}]"


@pytest.mark.parametrize(("one", "other"), [
    (AT.format("tanh(V[k]-V[m])*U[0]"), "0"), (AT.format("max(V[k]-V[m],3)*W[k]"), "3*W[m]"), (AT.format("W[k]/max(V[k]-V[m],3)"), "1/3*W[m]"),
    (AT.format("{L[k<8,m<8] max[j<8] Y[k,j]-Y[m,j]+W[j]}[k,m]*U[0]"), "{L[] max[j<8] W[j]}[]*U[0]"),
    ("max[k<8,j<8] select(k-m==0, tanh(V[k]-V[m]+W[j]), -inf)", "max[j<8] tanh(W[j])"),
    (f"Σ[w<9] {NARROWED.format('x<8,w<9', '6-x>=0', 'm-1,w')}", "Σ[w<9] select(m-1>=0, relu(W[w]), 0)"),
    (f"Σ[w<9] {NARROWED.format('w<9,x<8', '6-x>=0', 'w,m-1')}", "Σ[w<9] select(m-1>=0, relu(W[w]), 0)"),
    (f"Σ[w<9] {NARROWED.format('x<9,w<9', 'x-1>=0', 'm+1,w')}", "Σ[w<9] relu(W[w])"),
])  # fmt: skip
def test_factors_are_normal_where_fewer_places_are_left(one: str, other: str) -> None:
    """Of an iterator that is known, or that takes fewer values than it did in the scope that is read, functions know that, too."""
    assert inline(parse(f"{DECLARED}L[m<8] {one}")).key == inline(parse(f"{DECLARED}L[m<8] {other}")).key


@pytest.mark.parametrize("name", [f.name for f in FUNCTIONS.values() if f.arity == 1 and f.name != "isnan"])
def test_conditions_stand_outside_of_functions_that_are_0_at_0(name: str) -> None:
    """And of no other: beyond the mask they are what they are at 0."""
    one, other = (parse(f"{DECLARED}L[h<8] {text}") for text in (f"{name}(select(h-3>=0, V[h], 0))", f"select(h-3>=0, {name}(V[h]), 0)"))
    zero = inline(parse(f"L[] {name}(0)")).key == inline(parse("L[] 0")).key
    assert (inline(one).key == inline(other).key) == zero


@pytest.mark.parametrize(("one", "other"), [
    ("L[m<8] Σ[k<3] select(k%2-1==0, U[k], 0)/V[m]", "L[m<8] 0"), ("L[m<9] Σ[k<9] V[k]/Y[m,k]", "L[m<9] Σ[k<8] V[k]/Y[m,k]"),
    ("L[m<8] Σ[k<3,j<3] select((2*k+3*j+1)%6==0, U[k]*W[j], 0)/V[m]", "L[m<8] 0"), ("L[m<8] V[m]/W[m] - V[m]/W[m]", "L[m<8] 0"),
    ("L[m<8] Σ[k<3] U[k-4]*log(V[m])", "L[m<8] 0"),
    *(tuple(f"L[m<8] Σ[k<{n}] V[k]*select(m-3>=0, W[m], -inf)/U[0]" for n in (19, 8)),),
    ("L[m<8] relu(V[m])*relu(V[m])", "L[m<8] V[m]*V[m]"), ("L[m<8] tanh(V[m])*tanh(W[m])", "L[m<8] exp(V[m] + W[m])"),
    ("L[m<8] W[m] + 0/V[m]", "L[m<8] W[m]"), ("L[m<8] tanh(select(m%3==0, V[m], 0) + W[m])", "L[m<8] select(m%3==0, tanh(V[m] + W[m]), 0)"),
    ("L[m<8] tanh(select(m-3>=0, V[m], 0) + W[m])", "L[m<8] select(m-3>=0, tanh(V[m] + W[m]), 0)"),
    *((f"L[m<8] {one} + 0/V[m]", f"L[m<8] {one}") for one in SOMEWHERE),
    *((f"L[m<8] {way}", "L[m<8] V[m]*(-inf)") for way in WAYS),
    ("L[m<8] (-inf)*{L[] Σ[k<8] V[k]}[]", "L[m<8] Σ[k<8] (-inf)*V[k]"),
    ("L[m<8] (V[m] + W[m])*(U[0] + select(m-3>=0, W[m], -inf))",
     "L[m<8] V[m]*U[0] + W[m]*U[0] + V[m]*select(m-3>=0, W[m], -inf) + W[m]*select(m-3>=0, W[m], -inf)"),
    ("L[m<8] (V[m] + W[m])*select(m-3>=0, W[m], -inf)", "L[m<8] V[m]*select(m-3>=0, W[m], -inf) + W[m]*select(m-3>=0, W[m], -inf)"),
    *((f"L[m<8] min(V[m], max(V[m], {loose}))", "L[m<8] V[m]") for loose in LOOSE),
    *((f"L[m<8] equal({loose}, {loose})", "L[m<8] 1") for loose in LOOSE),
    *((f"L[h<8] {way}", f"L[h<8] {DOWN}") for way in (f"0*{DOWN} + {DOWN}", f"{DOWN} + 0*{DOWN}", f"{DOWN} + {DOWN} - {DOWN}")),
])  # fmt: skip
@pytest.mark.parametrize("bends", [False, True])
def test_what_may_not_exist_stays(one: str, other: str, bends: bool) -> None:
    with by_bends() if bends else nullcontext():
        assert inline(parse(DECLARED + one)).key != inline(parse(DECLARED + other)).key


MASKED = "choose(P[k], Y[m,k], -inf)"
GREATEST = f"{{L[m<8] max[k<9] {MASKED}}}[m]"


@pytest.mark.parametrize(("exponent", "finite"), [
    (f"{MASKED} - {GREATEST}", True), (f"V[m]*V[m] - 1 + 2*{MASKED} - 2*{GREATEST}", True), (f"-1*{GREATEST}", False),
    (f"2*{MASKED} - 3*{GREATEST}", False), (f"{GREATEST} - {MASKED}", False), (f"choose(P[k], Y[m,k], -1) - {GREATEST}", False),
    (f"{MASKED} - {GREATEST.replace('max', 'min')}", False), (f"{MASKED} - {GREATEST.replace('k<9', 'k<8')}", False),
    (f"{MASKED} - {GREATEST.replace('}[m]', '}[m+1]')}", False), (f"{MASKED} - {GREATEST.replace('Y[m,k]', 'Y[k,m]')}", False),
])  # fmt: skip
def test_what_is_taken_from_the_greatest_of_its_kind_is_never_infinite(exponent: str, finite: bool) -> None:
    """A sum times such an exponential, as in a softmax with a mask that is data, is a sum of products; a sum times what may be infinite is none."""
    forms = [
        inline(parse(f"P : bool[9]\n{DECLARED}L[m<8] Σ[k<9] {text}"))
        for text in (f"(V[m] + Y[m,k])*exp({exponent})", f"V[m]*exp({exponent}) + Y[m,k]*exp({exponent})")
    ]
    assert (forms[0].key == forms[1].key) == finite


@pytest.mark.parametrize(("text", "shown"), [
    ("L[h<8] {L[h<4] V[h] + 1}[h]", "L[h<8] select(-h+3>=0, {L[h<4] V[h] + 1}[h], 0)"),
    ("L[h<8] select(h-2>=0, {L[h<4] V[h] + 1}[h], V[h])", "L[h<8] select(h-2>=0, select(-h+3>=0, {L[h<4] V[h] + 1}[h], 0), V[h])"),
    ("L[h<8] select(h-2>=0, V[h], {L[h<4] V[h] + 1}[h]|2)", "L[h<8] select(h-2>=0, V[h], select(-h+3>=0, {L[h<4] V[h] + 1}[h]|2, 2))"),
    ("L[h<8] select(3-h>=0, {L[h<4] V[h] + 1}[h], 0)", "L[h<8] select(-h+3>=0, {L[h<4] V[h] + 1}[h], 0)"),
])  # fmt: skip
def test_reads_that_may_leave_a_box_at_its_own_loops_are_choices(text: str, shown: str) -> None:
    e = parse(DECLARED + text)
    found = Scope(e.loops, e.sums, explicit(e.body, e.ranges))
    assert found.text() == shown and same_everywhere(e, found)
