"""A derivation at one size as the same at another: by the proof for every size, and only where it is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import Mock

import pytest

from einnet.compile.ranges.follow import AtSize
from einnet.derivation.checker import check as checking
from einnet.derivation.checker.check import Proof, Untested
from einnet.derivation.steps import KINDS, Derivation, Step
from einnet.errors import UsageError
from einnet.evidence.certificate import Certificate, Entry, by_forms, everywhere, proofs, proofs_by
from einnet.evidence.sound import MOST_ASKED, UNPROVEN, judged, keep_proven, next_proven
from einnet.expr.notation.text import parse
from einnet.expr.resize import Resize
from einnet.search.choosing.candidate import Candidate, Choice
from einnet.search.forms import Form
from einnet.search.outcome import Outcome, Result
from einnet.search.resized_forms import resized_form, resized_step
from einnet.search.settings import Settings

AT = 13
TENSORS = "A : f32[13,8]\n"


def derivation(before: str, after: str) -> Derivation:
    start, end = parse(TENSORS + before), parse(TENSORS + after)
    return Derivation(start, (Step("substitute", "m=8*n+c", start, end),))


def resized(source: Derivation, resize: Resize) -> Derivation:
    return Derivation(resize.scope(source.start), tuple(resized_step(s, resize) for s in source.steps))


def test_one_proof_serves_other_sizes():
    source = derivation("L[n<13,c<8] A[n,c]", "L[n<13,c<8] {L[m<104] A[m//8,m%8]}[8*n+c]")
    before = everywhere.cache_info().misses
    for size in (1, 2, 32, 1000):
        resize = Resize(AT, size)
        found = proofs_by(source, resize, resized(source, resize))
        assert found == proofs(resized(source, Resize(AT, 1)))
    assert everywhere.cache_info().misses == before + 1


def test_it_serves_no_other_derivation():
    source, resize = derivation("L[n<13,c<8] A[n,c]", "L[n<13,c<8] {L[m<104] A[m//8,m%8]}[8*n+c]"), Resize(AT, 5)
    right = resized(source, resize)
    wrong = replace(right, steps=(replace(right.steps[0], after=parse("A : f32[5,8]\nL[n<5,c<8] A[n,7-c]")),))
    assert proofs_by(source, resize, right)
    assert proofs_by(source, resize, wrong) is None
    assert proofs_by(source, resize, replace(right, steps=(replace(right.steps[0], kind="reassociation"),))) is None


def test_there_is_none_where_sizes_are_proven_one_by_one():
    source, resize = derivation("L[c<8] Σ[n<13] A[n,c]", "L[c<8] Σ[n<13] A[12-n,c]"), Resize(AT, 5)
    assert proofs_by(source, resize, resized(source, resize)) is None


def test_there_is_none_where_a_number_is_the_size_by_chance():
    """A range of 13 that the size did not make."""
    source = derivation("L[n<13,c<8] A[n,c]", "L[n<13,c<8] {L[n<13,c<13] A[n,c]}[n,c]")
    assert proofs_by(source, Resize(AT, 5), resized(source, Resize(AT, 5))) is None
    assert proofs_by(source, Resize(AT, 16), resized(source, Resize(AT, 16))) is None


def test_a_form_that_is_taken_to_another_size_is_not_proven_again():
    source = derivation("L[n<13,c<8] A[n,c]", "L[n<13,c<8] {L[m<104] A[m//8,m%8]}[8*n+c]")
    form = Form(source.start, source.end, (), source.steps)
    at = AtSize({}, Resize(AT, 777), Mock(), 0.0, Mock(), Mock())
    made = resized_form(form, at.resize)
    assert isinstance(made, Form)
    before = by_forms.cache_info().misses
    assert at.disproven(made, form) is None
    assert by_forms.cache_info().misses == before
    assert list(at.proven) == [made.derivation]
    wrong = replace(made, tree=(end := parse("A : f32[777,8]\nL[n<777,c<8] A[n,7-c]")), steps=(replace(made.steps[0], after=end),))
    assert "the two sides differ" in str(at.disproven(wrong, form))


def part_of(*steps: Step, key: str = "part", gain: float = 1.0) -> Result:
    """A changed subprogram whose derivation has some steps, and which is so many seconds faster by it."""
    form = Mock(derivation=Derivation(steps[0].before, steps), steps=steps, matches=())
    best, original = Mock(form=form, cost=1.0), Mock(form=Mock(steps=(), derivation=Derivation(steps[0].before)), cost=1.0 + gain)
    found = Mock(key=key)
    found.output.name = key
    return Result(found, {}, Mock(best=best, original=original, candidates=[]))


def outcome_of(*steps: Step, key: str = "part") -> Outcome:
    """An outcome with one changed subprogram whose derivation has some steps."""
    return Outcome(Mock(), (part_of(*steps, key=key),))


def step(before: str, after: str, kind: str = "reassociation", bound: float | None = None) -> Step:
    return Step("claimed", "", parse(TENSORS + before), parse(TENSORS + after), kind=kind, bound=bound)


PROVEN = step("L[c<8] Σ[n<13] A[n,c]", "L[c<8] Σ[n<13] A[12-n,c]")
TESTED = step("L[n<13,c<8] sin(A[n,c])*sin(A[n,c])", "L[n<13,c<8] 1-cos(A[n,c])*cos(A[n,c])", "precision", 4.0)
FALSE = step("L[n<13,c<8] relu(A[n,c])", "L[n<13,c<8] A[n,c]")
MISLABELLED = step("L[n<13,c<8] A[n,c]", "L[n<13,c<8] (A[n,c] + 100) - 100")
NOT_TOLD = step("L[n<13,c<8] A[n,c]", "L[n<13,c<8] A[n,c]*exp(0*A[n,c])")


@pytest.mark.parametrize(("steps", "allow", "why"), [
    ([PROVEN], "reassociation", ""), ([PROVEN], "exact", "is of class reassociation as far as the checker can tell"),
    ([TESTED], "precision", "no normal form shows that a step is right"), ([TESTED], "precision,tested", ""),
    ([FALSE], "precision,tested", "differ at"), ([MISLABELLED], "precision", "errors are said to grow 1 times"),
    ([NOT_TOLD], "reassociation", "is of class precision as far as the checker can tell"), ([NOT_TOLD], "precision", ""),
])  # fmt: skip
def test_only_what_is_proven_and_of_an_allowed_class_is_used(steps: list[Step], allow: str, why: str) -> None:
    outcome = outcome_of(*steps)
    outcome = keep_proven(outcome, Settings(allow=allow))
    (part,) = outcome.results
    assert part.use_original == bool(why)
    assert (why in " ".join(outcome.notes)) if why else not outcome.notes


def after(count: int) -> Callable[[], bool]:
    """A clock that goes on by a second whenever it is asked: late after so many."""
    seconds = iter(range(100))
    return lambda: next(seconds) >= count


def candidate(measured: float, *steps: Step, original: bool = False) -> Candidate:
    """One way to run a part in so many seconds."""
    start = steps[0].before if steps else PROVEN.before
    return Mock(form=Mock(derivation=Derivation(start, steps), steps=steps, matches=()), measured=measured, cost=measured, original=original)


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([(3.0, PROVEN)], 3.0), ([(4.0, PROVEN), (3.0, PROVEN)], 3.0), ([(3.0, FALSE), (4.0, PROVEN)], 4.0),
        ([(9.9, PROVEN)], None), ([(3.0, FALSE)], None), ([(3.0, MISLABELLED), (4.0, NOT_TOLD)], None), ([], None),
    ],
)  # fmt: skip
def test_where_the_best_is_not_proven_the_next_that_is_runs(others: list[tuple[float, Step]], chosen: float | None) -> None:
    """The fastest of those that are surely faster than the model's own operators, which take 10 s."""
    best, original = candidate(1.0, FALSE), candidate(10.0, original=True)
    choice = Choice(FALSE.before, [best, *(candidate(s, step) for s, step in others), original], original, best)
    part = Mock(key="part")
    part.output.name = "part"
    kept = keep_proven(Outcome(Mock(), (Result(part, {}, choice),)), Settings())
    (found,) = kept.results
    assert found.use_original == (chosen is None)
    assert chosen is None or found.candidate.measured == chosen
    assert [("the model's own operators are kept" if chosen is None else "next in time and proven is kept") in note for note in kept.notes] == [True]


def test_what_begins_with_the_step_at_fault_is_not_asked_for_and_few_are() -> None:
    asked: list[Derivation] = []

    def checked(derivation: Derivation) -> tuple[Proof, ...]:
        asked.append(derivation)
        return tuple(proofs(Derivation(s.before, (s,)))[0] for s in derivation.steps)

    again = [candidate(2.0 + n, NOT_TOLD, *[PROVEN] * n) for n in range(1, 4)]
    many = [candidate(5.0 + n / 100, *[TESTED] * (n + 1), NOT_TOLD) for n in range(20)]
    best, original, right = candidate(1.0, NOT_TOLD, PROVEN), candidate(10.0, original=True), candidate(6.0, PROVEN)
    choice = Choice(NOT_TOLD.before, [best, *again, *many, right, original], original, best)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("einnet.evidence.sound.proofs", checked)
        patch.setattr("einnet.evidence.sound.by_forms", checked)
        assert next_proven(choice, (NOT_TOLD,), Settings(allow="precision,tested"), {}, lambda: False) is many[0]
        asked.clear()
        assert next_proven(choice, (NOT_TOLD,), Settings(), {}, lambda: False) is right
        assert asked == [many[0].form.derivation, right.form.derivation]
        assert next_proven(choice, (NOT_TOLD,), Settings(), {}, lambda: True) is None
        asked.clear()
        few = replace(choice, candidates=[best, *(candidate(2.0 + n / 10, *[PROVEN] * n, TESTED) for n in range(1, 20)), right])
        assert next_proven(few, (NOT_TOLD,), Settings(), {}, lambda: False) is None and len(asked) == MOST_ASKED


def test_what_is_not_proven_in_time_is_not_used() -> None:
    """There is time for two derivations: what gains most is proven, the rest falls back."""
    gains = {"little": 1.0, "most": 5.0, "none": 0.0, "much": 4.0, "twice": 3.0}
    parts = [part_of(PROVEN, key=key, gain=gain) for key, gain in gains.items()]
    outcome = Outcome(Mock(), (*parts, parts[-1]))
    kept = keep_proven(outcome, Settings(), late=after(2))
    assert set(kept.changed) == {"twice", "most"} and kept.kept == {"little", "none", "much"}
    assert kept.notes == ("there was no time to prove what was derived for much, little, none: the model's own operators are kept",)
    assert keep_proven(outcome, Settings()).changed == outcome.changed
    assert not keep_proven(outcome, Settings(), late=after(0)).changed


def test_what_fails_in_time_is_told_as_before() -> None:
    outcome = Outcome(Mock(), (part_of(FALSE, key="false", gain=2.0), part_of(PROVEN, key="right")))
    kept = keep_proven(outcome, Settings(), late=after(2))
    assert set(kept.changed) == {"right"}
    assert len(kept.notes) == 1 and "false: what was derived is not proven" in kept.notes[0]


def test_own_operators_are_proven_however_late_it_is() -> None:
    """They are what is fallen back on: an expression whose simplification does not hold runs as it is written."""
    original = Mock(form=Mock(derivation=Derivation(FALSE.before, (FALSE,)), steps=(FALSE,)), cost=1.0)
    part = Result(Mock(key="part"), {}, Choice(FALSE.before, [original], original, original))
    kept = keep_proven(Outcome(Mock(), (part,)), Settings(), late=after(0))
    (found,) = kept.results
    assert found.choice.original is not original and not found.changed
    assert "it runs as it is written" in kept.notes[0]


def test_classes_that_the_checker_found_are_counted() -> None:
    entry = Entry("part", Derivation(NOT_TOLD.before, (NOT_TOLD,)), proofs(Derivation(NOT_TOLD.before, (NOT_TOLD,))))
    assert entry.kind == "precision" and Certificate((entry,)).classes() == {"precision": 1}
    assert entry.derivation.kind == "reassociation"


def test_tested_steps_are_asked_for() -> None:
    assert not Settings().tested and not Settings(allow="precision").tested
    assert (Settings(allow="tested").allow, Settings(allow="tested").tested) == ("reassociation", True)
    assert replace(Settings(allow="precision,tested"), seed=3).tested
    for wrong in ("guessed", "tested,tested", "exact,precision", ""):
        with pytest.raises(UsageError, match="allow"):
            Settings(allow=wrong)


def test_values_are_compared_only_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof by values takes long for large expressions, and is refused by default. What is known of a derivation is asked once."""
    asked: list[object] = []
    real = checking.witness
    monkeypatch.setattr(checking, "witness", lambda *a: asked.append(a) or real(*a))
    moved = step("L[n<13,c<8] sin(A[n,c])*sin(A[n,c])", "L[m<13,d<8] sin(A[m,d])*sin(A[m,d])", "exact")
    of = Derivation(moved.before, (moved, TESTED))
    found = by_forms(of)
    assert isinstance(found, Untested) and found.step == 2 and "step 2 (claimed)" in str(found) and not asked
    assert by_forms(of) is found
    assert judged(of, Settings(allow="precision"), {}, KINDS) == (UNPROVEN, 2) and not asked
    assert judged(of, Settings(allow="precision,tested"), {}, KINDS)[0] is None and asked
    assert [p.method for p in proofs(of)] == ["inline", "random"]
