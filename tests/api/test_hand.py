"""Derivations by hand: what cannot be done is refused with the reason, what was done is kept as it was."""

from __future__ import annotations

import pytest

import einnet
from einnet.derivation import einfile
from einnet.errors import CertificateError, ParseError, UsageError

PRODUCT = "A : f32[6,7]\nB : f32[7,8]\nC : f32[8,3]\nL[m<6,p<3] Σ[k<7,n<8] A[m,k]*B[k,n]*C[n,p]"


def test_a_sheet_is_a_derivation_that_checks_and_reads_back() -> None:
    sheet = einnet.by_hand(PRODUCT).by("sum-split", "outside=n").towards("Matmul", at="0").towards("Matmul")
    assert [m.partition("(")[0] for m in sheet.matches] == ["Matmul", "Matmul"]
    assert len(sheet.check()) == len(sheet.derivation.steps)
    file = einfile.parse(str(sheet))
    assert file.derivation == sheet.derivation and file.matches == sheet.matches


def test_steps_do_not_change_the_sheet_that_they_start_from() -> None:
    sheet = einnet.by_hand(PRODUCT)
    sheet.by("sum-split", "outside=n")
    assert sheet.derivation.steps == () and sheet.expression == sheet.derivation.start


def test_normalising_below_keeps_the_paths() -> None:
    sheet = einnet.by_hand("L[h<8] relu({L[x<8] 1*{L[z<8] A[z]*1}[x]}[h])").normalised("0")
    assert {s.path[:1] for s in sheet.derivation.steps} == {(0,)}
    sheet.check()


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (lambda s: s.by("nonsense"), "no rule"),
        (lambda s: s.by("sum-split"), "applies in 2 ways"),
        (lambda s: s.by("sum-split", "outside=x"), "applies in 0 ways"),
        (lambda s: s.by("bilinear"), "does not apply"),
        (lambda s: s.by("sum-split", at="0"), "there is no scope '0'"),
        (lambda s: s.towards("Matmul"), "no product of two reads"),
        (lambda s: s.towards("Sort"), "no operator"),
    ],
)
def test_what_cannot_be_done_is_said(action, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        action(einnet.by_hand(PRODUCT))


def test_texts_that_are_no_expressions() -> None:
    with pytest.raises(ParseError):
        einnet.by_hand("L[h<8] A[x]")


def test_a_wrong_rule_can_be_applied_and_is_rejected() -> None:
    from dataclasses import replace

    from einnet.derivation.moves.rule import Rewrite, rule

    @rule("drop", guard="always")
    def drop(e):
        """L[x] Σ[y] f = L[x] Σ[y-1] f, which is wrong."""
        last = e.sums[-1]
        yield Rewrite(replace(e, sums=(*e.sums[:-1], last._replace(hi=last.hi - 1))), last.name)

    with pytest.raises(CertificateError, match=r"step 1 \(drop n\)"):
        einnet.by_hand(PRODUCT).by(drop).check()
