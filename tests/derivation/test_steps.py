"""Steps that are put together when they are asked for, and the scope at a path."""

from __future__ import annotations

import pytest

from einnet.derivation.steps import Step, Steps, kinds_of, replace_at, subscope
from einnet.expr.notation.text import parse

INNER = parse("L[j<4] B[j]")
ONE, TWO, THREE = (Step("copy", name, INNER, INNER, (1,), kind) for name, kind in (("a", "exact"), ("b", "reassociation"), ("c", "exact")))


@pytest.mark.parametrize("looked", [False, True])
def test_steps_of_several_sequences_are_one_sequence(looked: bool) -> None:
    steps = Steps((ONE,), Steps((TWO,), ()), [THREE])
    if looked:
        assert steps[1] == TWO and steps.kinds == {"exact", "reassociation"}
    assert list(steps) == [ONE, TWO, THREE]
    assert steps.kinds == kinds_of(steps) == kinds_of((ONE, TWO)) == {"exact", "reassociation"}
    assert len(steps) == 3 and steps[-1] == THREE and steps[1:] == (TWO, THREE)
    assert steps == (ONE, TWO, THREE) == Steps((ONE, TWO), (THREE,)) and hash(steps) == hash((ONE, TWO, THREE))
    assert steps != (ONE, TWO) and steps != [ONE, TWO, THREE]
    assert kinds_of((ONE, THREE)) == {"exact"} and kinds_of(Steps()) == kinds_of(()) == frozenset()


def test_a_step_of_a_part_is_one_of_the_whole() -> None:
    assert TWO.below((2, 0)) == Step("copy", "b", INNER, INNER, (2, 0, 1), "reassociation")


def test_a_path_counts_the_scopes_that_are_read_and_nothing_else() -> None:
    whole = parse("L[i<4] A[i]*3*{L[j<4] B[j]}[i] + {L[j<4] {L[k<4] C[k]}[j]*2}[i]")
    new = parse("L[j<4] D[j]")
    after = [replace_at(whole, path, new) for path in ((), (0,), (1,), (1, 0))]
    assert [e.text() for e in after] == [
        "L[j<4] D[j]", "L[i<4] A[i]*3*{L[j<4] D[j]}[i] + {L[j<4] {L[k<4] C[k]}[j]*2}[i]", "L[i<4] A[i]*3*{L[j<4] B[j]}[i] + {L[j<4] D[j]}[i]",
        "L[i<4] A[i]*3*{L[j<4] B[j]}[i] + {L[j<4] {L[j<4] D[j]}[j]*2}[i]",
    ]  # fmt: skip
    assert [subscope(e, path) for e, path in zip(after, ((), (0,), (1,), (1, 0)), strict=True)] == [new] * 4
    for path in ((2,), (0, 0), (1, 1)):
        with pytest.raises(IndexError):
            replace_at(whole, path, new)
