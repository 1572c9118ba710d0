"""What a search tells an observer: every state and step that its own counts speak of, and the reasons behind what is missing."""

from __future__ import annotations

from einnet.derivation.checker.check import check
from einnet.derivation.steps import Derivation
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.search.converge import Converged
from einnet.search.space import Options, Space, Statistics
from einnet.search.trace import AGAIN, CUT, NEW, Trace

CONV = "A : f32[57,43,5]\nK : weight f32[3,3,5,8]\nL[h<57,w<43,f<8] Σ[c<5,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]"
BLUR = "A : f32[40,30]\nL[h<38,w<28] Σ[r<3,s<3] A[h+r,w+s]"


def traced(text: str, depth: int, **changes: object) -> tuple[Space, Scope, Trace]:
    trace, scope = Trace(), parse(text)
    space = Space(Options(max_depth=depth, intensity=0.0, **changes), observer=trace)  # type: ignore[arg-type]
    space.forms(scope)
    return space, scope, trace


def test_every_member_is_a_state_and_every_outcome_is_counted() -> None:
    space, _, trace = traced(CONV, 3)
    members = {key for group in space.groups.values() for key in group.members}
    assert members <= trace.states.keys()
    outcomes = [e.outcome for e in trace.edges.values()]
    assert outcomes.count(NEW) > 40 and outcomes.count(AGAIN) > 0
    assert all({e.before, e.after} <= trace.states.keys() for e in trace.edges.values())
    assert trace.states.keys() - members <= trace.cut


def test_states_that_move_too_much_are_told_of_as_cut() -> None:
    space, _, trace = traced(CONV, 2, slack=0.3)
    assert space.statistics.cut > 0
    assert {e.outcome for e in trace.edges.values()} >= {CUT}


def test_refusals_carry_the_rule_and_its_reason() -> None:
    _, scope, trace = traced("A : f32[6,7]\nB : f32[7,8]\nL[m<6,n<8] Σ[k<7] A[m,k]*B[k,n]", 1)
    reasons = dict(trace.refusals[trace.starts[scope.key]].keys())
    assert "fewer than two" in reasons["sum-split"]


def test_attempts_say_how_a_vendor_operator_was_reached_or_what_differs() -> None:
    _, scope, trace = traced(CONV, 0)
    normal = trace.starts[scope.key]
    reached = trace.attempts[normal]["Conv"]
    assert isinstance(reached, Converged)
    check(Derivation(trace.states[normal], reached.steps))
    _, scope, trace = traced(BLUR, 0)
    differs = trace.attempts[trace.starts[scope.key]]["Matmul"]
    assert isinstance(differs, list) and "no product of two reads" in differs[0].why


def test_watching_changes_nothing() -> None:
    watched, scope, _ = traced(CONV, 2)
    alone = Space(Options(max_depth=2, intensity=0.0))
    assert [f.key for f in alone.forms(scope)] == [f.key for f in watched.forms(scope)]
    assert alone.statistics == watched.statistics


def test_a_search_that_was_broken_off_is_repeated_by_its_count() -> None:
    """Whatever ended it: with as many states as there were then as its budget, a search meets the same states, those it finishes with included."""
    for patience in (16, 32, 48):

        def stop(statistics: Statistics, most: int = patience) -> None:
            statistics.stopped = "patience" if statistics.states >= most else ""

        scope = parse(CONV)
        broken = Space(Options(max_depth=5), progress=stop)
        broken.forms(scope)
        assert broken.statistics.stopped_at is not None and broken.statistics.stopped_at <= broken.statistics.states
        again = Space(Options(max_depth=5, states=broken.statistics.stopped_at))
        again.forms(scope)
        assert [[*g.members] for g in again.groups.values()] == [[*g.members] for g in broken.groups.values()]
