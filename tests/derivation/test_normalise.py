"""The form in which states are kept: what is tidied, by which steps, of which class; and what is left as somebody chose it."""

from __future__ import annotations

import pytest

from einnet.derivation.checker.check import check
from einnet.derivation.normalise import normalise
from einnet.derivation.steps import Derivation
from einnet.expr.nodes import Read, Scope
from einnet.expr.notation.text import parse

DECLARED = "A : f32[8,9]\nB : f32[9,5]\nu : f32[8]\n"

FORMS = (
    ("L[h<8] 1*u[h] + 0", "L[h<8] u[h]", "fold/exact"),
    ("L[h<8,n<5] Σ[-2<=k<12] A[h,k]*B[k,n]", "L[h<8,n<5] Σ[k<9] A[h,k]*B[k,n]", "tighten/exact"),
    ("L[h<8] {L[h<8] {L[h<8] u[h]}[h]}[h]*2*3", "L[h<8] 6*u[h]", "fold/reassociation merge/exact merge/exact"),
    ("L[h<8] {L[h<10] relu(u[h])}[h]", "L[h<8] {L[h<8] relu(u[h])}[h]", "tighten/exact"),
    ("L[h<8] relu({L[h<8,k<9] A[h,k]*2*3}[h,4])", "L[h<8] relu({L[h<8] 6*A[h,4]}[h])", "tighten/exact fold/reassociation@0 drop/exact"),
    ("L[h<8] {L[x<7] u[x+1]}[h-1]", "L[h<8] {L[x<7] u[x+1]}[h-1]", ""),
    ("L[h<8,n<5] Σ[k<9] {L[k<9,h<8] A[h,k]}[k,h]*{L[k<9,n<5] {L[n<5,k<9] B[k,n]}[n,k]}[k,n]",
     "L[h<8,n<5] Σ[k<9] {L[k<9,h<8] A[h,k]}[k,h]*{L[n<5,k<9] B[k,n]}[n,k]", "merge/exact"),
    ("L[h<8] Σ[k<9] A[h,k]", "L[h<8] Σ[k<9] A[h,k]", ""),
    ("L[h<8] 0*u[h] + u[h]", "L[h<8] u[h]", "fold/exact"), ("L[h<8] 0*(1/u[h])", "L[h<8] 0*(1/u[h])", ""), ("L[h<8] 0*log(u[h])",
    "L[h<8] 0*log(u[h])", ""),
    ("L[h<8] u[h]*0*log(u[h])", "L[h<8] 0*log(u[h])", "fold/exact"), ("L[h<8] 0*exp(u[h])", "L[h<8] 0", "fold/exact"),
    ("L[h<8] relu(relu(u[h]))", "L[h<8] relu(u[h])", "fold/exact"), ("L[h<8] relu(abs(u[h]))", "L[h<8] relu(abs(u[h]))", ""),
    ("L[h<8] abs(floor(u[h]))", "L[h<8] abs(floor(u[h]))", ""), ("L[h<8] sin(sin(u[h]))", "L[h<8] sin(sin(u[h]))", ""),
    ("L[h<8] {L[h<8,k<9] exp(u[h])}[h,2] + {L[h<8,k<9] exp(u[h])}[h,h+3]",
    "L[h<8] {L[h<8,2<=k<9] exp(u[h])}[h,2] + {L[h<8,2<=k<9] exp(u[h])}[h,h+3]", "tighten/exact"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "form", "steps"), FORMS)
def test_forms_and_the_steps_to_them(text: str, form: str, steps: str) -> None:
    start = parse(DECLARED + text)
    end, found = normalise(start)
    assert end == parse(DECLARED + form)
    told = [f"{s.rule}/{s.kind}" + "".join(f"@{n}" for n in s.path) for s in found]
    assert told == steps.split()
    check(Derivation(start, found))
    assert Derivation(start, found).end == end
    assert normalise(end) == (end, ())


def test_what_is_to_be_kept_stays() -> None:
    """A copy that a kernel reads, and the range over which it is kept; a copy beside it goes."""
    start = parse(f"{DECLARED}L[h<8] {{L[h<10] u[h]}}[h]*{{L[h<10] u[7-h]}}[h]")
    chosen = next(r.base for r in start.body.args if isinstance(r, Read) and isinstance(r.base, Scope))  # type: ignore[union-attr]
    end, steps = normalise(start, frozenset({chosen}))
    assert end == parse(f"{DECLARED}L[h<8] {{L[h<10] u[h]}}[h]*u[7-h]") and [s.rule for s in steps][-1] == "merge"
    check(Derivation(start, steps))
    assert normalise(start)[0] == parse(f"{DECLARED}L[h<8] u[h]*u[7-h]")
