"""`.ein` files: what is written is read back, and errors name their line."""

from __future__ import annotations

import pytest

from einnet.derivation.checker.check import check
from einnet.derivation.einfile import parse, write
from einnet.derivation.markup import derivation_html, derivation_latex
from einnet.derivation.steps import Derivation
from einnet.errors import CertificateError, ParseError
from einnet.expr.nodes import tensors
from einnet.expr.notation.latex import latex
from tests.derivation.test_check import CHAINS


@pytest.mark.parametrize("name", CHAINS)
def test_files_are_read_back(name: str) -> None:
    file = parse(CHAINS[name])
    again = parse(write(file.derivation, file.matches))
    assert again == file
    assert write(again.derivation, again.matches) == write(file.derivation, file.matches)


def test_parts_of_a_step() -> None:
    start = "from L[i<4] {L[i<4] A[i]}[i]  # start\n"
    text = start + "by fold at 0 kind precision bound 1e-06 x=1, y=2\n   L[i<4]\n   {L[j<4] 1*A[j]}[i]\nmatch Copy(i)\n"
    (step,) = parse(text).derivation.steps
    assert (step.rule, step.path, step.kind, step.bound, step.parameters) == ("fold", (0,), "precision", 1e-06, "x=1, y=2")
    assert parse(text).matches == ("Copy(i)",)
    assert parse(write(parse(text).derivation, ("Copy(i)",))) == parse(text)


def test_a_number_can_be_declared() -> None:
    assert parse("s : f32[]\nA : f32[4]\nfrom L[i<4] s[]*A[i]").derivation.start.text() == "L[i<4] s[]*A[i]"


def test_a_wrong_step_is_named() -> None:
    upto, _, _ = CHAINS["conv3x3"].partition("by substitute at 0 m=")
    start, merge, end = upto.partition("by merge\n   L[h<56,w<56,f<64] Σ[r<3,s<3] ")
    assert len(check(parse(CHAINS["conv3x3"]).derivation)) == 5
    with pytest.raises(CertificateError, match=r"step 4 \(merge\)"):
        check(parse(f"{start}{merge}2*{end}").derivation)


def test_tensors_have_the_box_that_the_start_suggests() -> None:
    """What is not declared is inferred once: a step that reads a part of it reads a part."""
    file = parse("from L[i<4] A[i]\nby cut\n  L[i<4] {L[i<2] A[i]}[i] + {L[i<2] A[i+2]}[i-2]")
    assert {t.shape for state in file.derivation.states() for t in tensors(state).values()} == {(4,)}
    assert [p.method for p in check(file.derivation)] == ["inline"]


def test_derivations_show_what_they_are() -> None:
    chain = parse(CHAINS["conv3x3"]).derivation
    assert parse(str(chain)).derivation == chain
    assert repr(chain).startswith("<derivation of ") and f"{len(chain.steps)} steps, reassociation, by " in repr(chain)
    assert [r for s in chain.steps for r in [s.rule] if r not in repr(chain)] == []
    empty = Derivation(chain.start)
    assert empty.kind == "exact" and "0 steps, exact, by nothing yet" in repr(empty) and empty.end == chain.start
    assert "<" in chain._repr_html_() and chain._repr_latex_().startswith("$$") and chain._repr_latex_().endswith("$$")


def test_each_step_stands_with_its_class_and_its_proof() -> None:
    """Proofs of the first steps alone are shown there; a step that no proof was given for has its class."""
    copies = "from L[i<4] A[i]\nby copy\n  L[i<4] {L[j<4] A[j]}[i]\nby copy at 0 kind precision bound 0.5 n=1\n  L[i<4] {L[j<4] {L[k<4] A[k]}[j]}[i]"
    chain = parse(copies).derivation
    titles = [
        '<div class="step"><b>1. by copy</b> <code></code> <span class="meta">exact{}</span></div>',
        '<div class="step"><b>2. by copy</b> <code>n=1</code> in scope 0 <span class="meta">precision{}</span></div>',
    ]
    for proofs in ([], ["inline"], ["inline", "tested"]):
        page = derivation_html(chain, proofs)
        told = [f", {proof}" for proof in proofs] + [""] * (2 - len(proofs))
        assert [page.count(title.format(proof)) for title, proof in zip(titles, told, strict=True)] == [1, 1]
    first, second, third = map(latex, chain.states())
    sign = r" \\ \overset{\text{copy}}{=}\; & "
    assert derivation_latex(chain) == rf"\begin{{aligned}} & {first}{sign}{second}{sign}{third} \end{{aligned}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no 'from' line"),
        ("A : f32[4]\nby fold\n  L[i<4] A[i]", "line 2: expected a declaration or from"),
        ("from L[i<4] A[i]\nby fold", "line 2: the indented expression after 'by fold' is missing"),
        ("from L[i<4] A[i]\nby fold\n  L[i<4] A[j]", "starts in line 3: .*iterator 'j' is not bound"),
        ("  L[i<4] A[i]", "line 1: an indented line"),
        ("nonsense", "line 1: expected a declaration"),
        ("A : f32[4\nfrom L[i<4] A[i]", "line 1"),
        ("A : f32[4]\nA : f32[5]\nfrom L[i<4] A[i]", "line 2"),
        ("from L[i<4] A[i]\nby fold at 3\n  L[i<4] A[i]", "no scope at 3"),
        ("from L[i<4] A[i]\nby fold kind wrong\n  L[i<4] A[i]", "'wrong' is no numerical class"),
        ("from L[i<4] A[i]\nmatch X\nby fold\n  L[i<4] A[i]", "line 3: 'match' lines stand at the end"),
    ],
)
def test_errors_name_their_line(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_a_step_changes_nothing_but_its_path() -> None:
    with pytest.raises(CertificateError, match="line 2: the step changes more than the scope at 0"):
        parse("from L[i<4] {L[i<4] A[i]}[i]\nby fold at 0\n  L[i<4] 2*{L[i<4] A[i]}[i]")
