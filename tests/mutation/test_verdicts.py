"""What a change does to verdicts: more accepted, or a stricter class, is unsound; less proven is cautious."""

from __future__ import annotations

import pytest

from einnet.expr.notation.text import parse
from tests.mutation.changes import changes
from tests.mutation.runner import Traced, chosen
from tests.mutation.verdicts import Judged, Verdict, compared, dangerous, verdict

DECLARED = "u : f32[8]\nv : f32[8]\n"
PAIRS: dict[str, tuple[str, str, Verdict]] = {
    "one": ("u[h]*v[h]", "v[h]*u[h]", ("proven", "exact")), "grouped": ("2*u[h] + 3*u[h]", "5*u[h]", ("proven", "reassociation")),
    "grown": ("u[h]", "u[h] + v[h] - v[h]", ("proven", "precision")), "false": ("u[h]", "v[h]", ("refuted", "")),
    "tested": ("sin(u[h])*sin(u[h])", "1 - cos(u[h])*cos(u[h])", ("tested", "precision")),
    "nowhere": ("sqrt(-1-u[h]*u[h])", "log(-2-u[h]*u[h])", ("not told", "")),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_verdicts_of_the_checker(name: str) -> None:
    before, after, said = PAIRS[name]
    assert verdict(parse(f"{DECLARED}L[h<8] {before}"), parse(f"{DECLARED}L[h<8] {after}")) == said


def known(name: str, claimed: Verdict) -> Judged:
    before, after, _ = PAIRS[name]
    return Judged(name, parse(f"{DECLARED}L[h<8] {before}"), parse(f"{DECLARED}L[h<8] {after}"), claimed, 0.0)


def test_classes_of_changes() -> None:
    """As if what stands in PAIRS came after a change, and something else was said before."""
    alike = [known(name, said) for name, (_, _, said) in PAIRS.items()]
    cautious = known("grown", ("proven", "exact"))
    assert compared(alike) == ("alike", "")
    assert compared([*alike, cautious]) == ("cautious", "grown: proven exact -> proven precision")
    assert compared([cautious, known("one", ("refuted", ""))]) == ("unsound", "one: refuted -> proven exact")
    assert compared([known("one", ("proven", "reassociation"))])[0] == "unsound"


@pytest.mark.parametrize(("before", "now", "wrong"), [
    (("refuted", ""), ("tested", "precision"), True), (("not told", ""), ("tested", "precision"), True),
    (("tested", "exact"), ("proven", "exact"), True),
    (("proven", "precision"), ("proven", "exact"), True), (("proven", "exact"), ("refuted", ""), True),
    (("proven", "exact"), ("tested", "exact"), False),
    (("tested", "exact"), ("refuted", ""), False), (("refuted", ""), ("not told", ""), False), (("proven", "exact"), ("proven", "precision"), False),
])  # fmt: skip
def test_what_is_dangerous(before: Verdict, now: Verdict, wrong: bool) -> None:
    assert dangerous(before, now) == wrong


def test_tests_that_execute_the_line_come_first() -> None:
    source = "def f(x):\n    if x > 1:\n        return 2\n    return 3\n"
    (change,) = (c for c in changes(source, "f.py") if c.what == "return 3 -> return None")
    traced = {
        "slow": Traced(3.0, frozenset(("f.py:f", "f.py:4"))), "quick": Traced(0.1, frozenset(("f.py:f", "f.py:3"))),
        "short": Traced(0.5, frozenset(("f.py:f", "f.py:4"))), "other": Traced(0.0, frozenset(("g.py:f", "g.py:4"))),
    }  # fmt: skip
    assert chosen(change, "f.py", traced) == ["short", "slow", "quick"]
    assert chosen(change, "f.py", traced, 0.5) == ["short", "slow"], "one more than there is time for"
