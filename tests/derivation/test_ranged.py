"""Derivations with a named size: written, read back, proven at each size, and refused where they do not hold."""

import pytest

from einnet.cli import main
from einnet.derivation import einfile
from einnet.derivation.ranged import RangedFile, is_ranged, parse, put_in, ranged, spans, take_out
from einnet.derivation.rules import RULES
from einnet.derivation.steps import Derivation, Step
from einnet.errors import CertificateError, ParseError
from einnet.expr.notation.text import parse as expression
from einnet.expr.resize import Resize, doubtful

AT = 13
CONVOLUTION = """
    A : f32[13,8,9]
    K : f32[3,8,4]
    L[n<13,h<7,f<4] Σ[c<8,r<3] A[n,c,h+r]*K[r,c,f]
"""


def split() -> Derivation:
    """The sum over r outside, and the inner iterators n and h as one: a factor that follows the size."""
    start = expression(CONVOLUTION)
    rule = next(r for r in RULES if r.name == "sum-split")
    rewrite = next(r for r in rule.rewrites(start) if r.parameters == "outside=r")
    return Derivation(start, (Step(rule.name, rewrite.parameters, start, rewrite.scope, (), rewrite.kind, rewrite.bound),))


def test_a_size_is_written_by_its_name_and_read_back():
    derivation = split()
    text = ranged(derivation, ["Matmul(m=n, n=f, k=c)"], AT, "batch", (1, 32), range(1, 33))
    assert "A : f32[batch,8,9]" in str(text)
    assert "n<batch" in str(text)
    assert parse(str(text)) == text
    assert text.at(AT) == einfile.EinFile(derivation, ("Matmul(m=n, n=f, k=c)",))


@pytest.mark.parametrize("size", [1, 2, 7, 26, 32])
def test_what_the_text_says_at_a_size_is_the_resized_derivation(size: int):
    derivation, resize = split(), Resize(AT, size)
    text = ranged(derivation, [], AT, "N", (1, 32), range(1, 33))
    assert text.at(size).derivation.start == resize.scope(derivation.start)
    assert text.at(size).derivation.end == resize.scope(derivation.end)


@pytest.mark.parametrize(
    "head",
    [
        "batch in 1..9\nholds at 1..99999999999999",
        "batch in 1..99999999999999\nholds at 1",
        "batch in 1..9\nholds at 3..2",
        "batch in 1..9\nholds at 1, 1",
        "batch in 1..9\nholds at 2..5, 1..3",
        "batch in 1..9\nholds at " + "9" * 5000,
    ],
)
def test_sizes_that_are_none_or_too_many_are_refused_at_once(head: str):
    with pytest.raises(ParseError):
        parse(f"{head}\nA : f32[batch]\nfrom L[i<batch] A[i]\n")


def test_numbers_without_end_are_refused():
    with pytest.raises(ParseError):
        parse(f"batch in 1..9\nholds at 2\nA : f32[batch]\nfrom L[i<{'9' * 5000}*batch] A[i]\n").at(2)
    with pytest.raises(ParseError, match="there is no scope at 999"):
        einfile.parse(f"A : f32[2]\nfrom L[i<2] A[i]\nby merge at {'9' * 5000}\n   L[i<2] A[i]\n")


def test_there_is_one_proof_for_every_size():
    claim = ranged(split(), [], AT, "N", (1, 999), range(1, 1000)).check()
    assert sorted(claim.proofs) == list(range(1, 1000))
    assert len({id(proofs) for proofs in claim.proofs.values()}) == 1
    assert claim.holds == "for every N >= 1, by one proof"


def test_else_every_size_is_proven_by_itself_and_the_reason_is_told():
    """The sum of all copies, in another order."""
    start, after = (expression(f"A : f32[13,8]\nL[c<8] {body}") for body in ("Σ[n<13] A[n,c]", "Σ[n<13] A[12-n,c]"))
    here = ranged(Derivation(start, (Step("substitute-sum", "", start, after, (), "reassociation"),)), [], AT, "N", (13, 13), [AT])
    assert here.check().holds == "at 13, because the result has no dimension that follows the size"
    text = RangedFile("N", 1, 5, (1, 2, 5), here.body.replace("-n+12", "-n+N-1"))
    claim = text.check()
    assert sorted(claim.proofs) == [1, 2, 5]
    assert claim.holds == "at each of 1..2, 5, because the result has no dimension that follows the size"


def test_the_start_alone():
    derivation = split()
    text = ranged(derivation, ["Matmul(m=n, n=f, k=c)"], AT, "N", (1, 32), range(1, 33))
    assert text.start(AT) == derivation.start


def test_a_step_that_holds_at_one_size_only_is_refused_with_the_size():
    """n<13 is cut to 12 and a rest that is lost: true at no other size than where nobody looks."""
    after = expression("A : f32[4,8]\nL[n<4,c<8] A[n,c]")
    before = expression("A : f32[13,8]\nL[n<4,c<8] {L[n<13,c<8] A[n,c]}[n,c]")
    wrong = Derivation(before, (Step("merge", "scope=0", before, Resize(4, 4).scope(after)),))
    text = ranged(wrong, [], AT, "N", (1, 32), (3, 13))
    with pytest.raises(CertificateError, match="at N = 3"):
        text.check()


def test_the_command_checks_at_every_size(tmp_path, capsys):
    text = str(ranged(split(), [], AT, "N", (1, 5), (1, 2, 5)))
    (tmp_path / "good.ein").write_text(text)
    assert main(["check", str(tmp_path / "good.ein")]) == 0
    told = capsys.readouterr().out
    assert "1. sum-split kind reassociation outside=r   inline: equal normal forms\n" in told
    assert "good.ein: 1 steps hold at N = 1..2, 5: for every N >= 1, by one proof" in told
    (tmp_path / "bad.ein").write_text(text.replace("[r,n,h,f]", "[r,n,h,0]"))
    assert main(["check", str(tmp_path / "bad.ein")]) == 1
    assert "at N = 1: step 1" in capsys.readouterr().err


def test_a_size_that_is_not_claimed_is_refused_with_the_sizes():
    text = ranged(split(), [], AT, "N", (1, 8), (1, 2, 3, 5))
    with pytest.raises(CertificateError, match=r"N = 4 is not among the sizes at which it holds: 1\.\.3, 5"):
        text.at(4)


def test_names_that_are_taken_are_refused():
    with pytest.raises(ValueError, match="cannot be written with n"):
        ranged(split(), [], AT, "n", (1, 8), (1,))


def test_a_multiple_that_is_written_as_a_product_is_refused():
    """Read back it would be one number."""
    doubled = expression("A : f32[13]\nL[n<13] A[n]*2*13")
    with pytest.raises(ValueError, match="cannot be written with N for 13"):
        ranged(Derivation(doubled), [], AT, "N", (1, 8), (1,))


def test_there_is_no_one_proof_where_a_size_is_0():
    text = ranged(split(), [], AT, "N", (0, 8), (0, 1, 2))
    assert text.for_every_size() == "a size is less than 1"


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("from L[m<26] A[m//13,m%13]", "from L[m<2*N] A[m//N,m%N]"),
        ("by substitute at 13 kind precision bound 1.3e-13 m=13*h+n", "by substitute at 13 kind precision bound 1.3e-13 m=N*h+n"),
        ("t13 : f32[13,3]", "t13 : f32[N,3]"),
        ("match Matmul(m=13)", "match Matmul(m=13)"),
    ],
)
def test_only_integers_that_follow_the_size_are_exchanged(line: str, written: str):
    assert take_out(line, "N", AT) == written
    assert put_in(written, "N", AT) == line


@pytest.mark.parametrize("text", ["", "N in 1..4", "N in 1..4\nholds at x\nfrom L[] 1", "N in 1..4\nholds at 3..5\nfrom L[] 1"])
def test_other_texts_are_refused(text: str):
    with pytest.raises(ParseError):
        parse(text)


def test_spans():
    assert spans([1, 2, 3, 5, 7, 8]) == "1..3, 5, 7..8"


def test_an_ordinary_file_is_none_for_a_range():
    assert not is_ranged(einfile.write(split()))


def test_numbers_in_bodies_stay_and_are_told():
    mean = expression("A : f32[13,4]\nL[c<4] Σ[n<13] A[n,c]*1/13")
    assert doubtful(mean, AT) == "13"
    assert doubtful(expression(CONVOLUTION), AT) is None


def test_fused_iterators_follow_the_size_as_factor_and_as_range():
    fused = expression("A : f32[13,6]\nL[m<78] A[m//6,m%6]")
    assert Resize(AT, 5).scope(fused) == expression("A : f32[5,6]\nL[m<30] A[m//6,m%6]")
    inner = expression("A : f32[6,13]\nL[m<78] A[m//13,m%13]")
    assert Resize(AT, 1).scope(inner) == expression("A : f32[6,1]\nL[m<6] A[m,0]")
