"""Properties of the search: monotone in depth, the same with and without pruning by key, deterministic, within its budgets."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import cache

import pytest

from einnet.derivation.checker.check import check
from einnet.derivation.normalise import normalise
from einnet.derivation.rules import EXPLORED, FORCED
from einnet.derivation.steps import KINDS, Step, Steps, kinds_of, rules_of
from einnet.expr.nodes import Scope, nested, used_names, walk
from einnet.expr.notation.text import parse
from einnet.instantiate.registry import TABLES
from einnet.search.bases import converged_forms
from einnet.search.converge import unchanged
from einnet.search.forms import Below, Form, effort
from einnet.search.space import Options, Space
from einnet.search.together import joined_operators
from einnet.search.ways import Ways
from einnet.search.work import flops

OPERATORS = {
    "conv3x3": "A : f32[57,43,5]\nK : weight f32[3,3,5,8]\nL[h<57,w<43,f<8] Σ[c<5,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]",
    "kx1": "A : f32[57,43,5]\nK : weight f32[3,5,8]\nL[h<57,w<43,f<8] Σ[c<5,r<3] A[h+r-1,w,c]*K[r,c,f]",
    "1x1": "A : f32[57,43,5]\nK : weight f32[5,8]\nL[h<57,w<43,f<8] Σ[c<5] A[h,w,c]*K[c,f]",
    "matmul": "A : f32[57,43]\nK : weight f32[43,8]\nL[m<57,n<8] Σ[k<43] A[m,k]*K[k,n]",
    "product of three": "A : f32[40,30]\nB : f32[30,50]\nC : f32[50,20]\nL[m<40,n<20] Σ[k<30,l<50] A[m,k]*B[k,l]*C[l,n]",
    "with a tail": "A : f32[57,43]\nK : weight f32[43,3,8]\nb : f32[8]\nL[m<57,n<8] relu({L[m<57,n<8] Σ[k<41,r<3] A[m,k+r]*K[k,r,n]}[m,n] + b[n])",
}


def options(depth: int, **changes: object) -> Options:
    """Scopes of any arithmetic intensity are explored, so that small expressions have something to find."""
    return Options(max_depth=depth, intensity=0.0, **changes)  # type: ignore[arg-type]


@cache
def found(name: str, depth: int) -> tuple[Form, ...]:
    return tuple(Space(options(depth)).forms(parse(OPERATORS[name])))


def keys(forms: tuple[Form, ...] | list[Form]) -> set[str]:
    return {f.key for f in forms}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("depth", range(4))
def test_more_depth_finds_no_less(name: str, depth: int) -> None:
    assert keys(found(name, depth)) <= keys(found(name, depth + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_more_depth_finds_no_less_up_to_7(name: str) -> None:
    for depth in range(4, 7):
        assert keys(found(name, depth)) <= keys(found(name, depth + 1))


def test_more_depth_finds_more() -> None:
    assert len(found("conv3x3", 0)) < len(found("conv3x3", 1)) < len(found("conv3x3", 2))


@pytest.mark.parametrize("name", OPERATORS)
def test_forms_are_distinct_closed_and_start_at_the_expression(name: str) -> None:
    source = parse(OPERATORS[name])
    forms = found(name, 3)
    assert len(keys(forms)) == len(forms)
    for form in forms:
        assert form.start == source and form.tree.box == source.box
        scopes = set(walk(form.tree))
        assert all(used_names(s.body) <= s.ranges.keys() for s in scopes)
        assert all(s in scopes for s, _ in form.matches)
        assert form.derivation.end.key == form.tree.key


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("depth", [1, 2])
def test_pruning_by_key_loses_nothing(name: str, depth: int) -> None:
    everything = Space(options(depth, fingerprint=False))
    assert keys(everything.forms(parse(OPERATORS[name]))) == keys(found(name, depth))


def test_pruning_by_key_saves_states() -> None:
    """sum-split in two orders meets again."""
    pruned, everything = Space(options(3)), Space(options(3, fingerprint=False))
    for space in (pruned, everything):
        space.forms(parse(OPERATORS["conv3x3"]))
    assert pruned.statistics.duplicates > 0 and pruned.statistics.states < everything.statistics.states


def derivations(name: str, depth: int) -> list[str]:
    return [f"{f.key} {f.operators()} {[(s.rule, s.parameters) for s in f.steps]}" for f in Space(options(depth)).forms(parse(OPERATORS[name]))]


def test_two_runs_are_alike() -> None:
    assert derivations("conv3x3", 3) == derivations("conv3x3", 3)


def test_another_hash_seed_changes_nothing() -> None:
    program = "from tests.search.test_space import derivations\nprint(*derivations('conv3x3', 2), sep='\\n')"
    outputs = [
        subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] and outputs[0].count("\n") == len(found("conv3x3", 2))


def test_the_number_of_states_is_bounded_and_what_was_found_stays() -> None:
    space = Space(options(7, states=20))
    forms = space.forms(parse(OPERATORS["conv3x3"]))
    assert space.statistics.stopped == "states" and space.statistics.states <= 20 + 40
    assert any(f.operators() for f in forms)
    for form in forms:
        check(form.derivation)


def test_the_deadline_is_kept() -> None:
    """What is computed after it does not depend on what else the machine does."""
    start = time.process_time()
    space = Space(options(7, deadline=time.monotonic() + 0.2))
    forms = space.forms(parse("A : f32[8,9,5]\nK : weight f32[4,4,5,8]\nL[h<16,w<18,f<8] Σ[c<5,r<4,s<4] A[(h+1-r)/2,(w+1-s)/2,c]*K[r,s,c,f]"))
    assert space.statistics.stopped == "time" and forms
    assert time.process_time() - start < 3


def test_time_to_find_the_best_forms_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    space = Space(options(1))
    space.forms(parse(OPERATORS["conv3x3"]))
    assert space._keeping_s == 10 / space.statistics.states
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    space = Space(options(1, deadline=100.0))
    space._keeping_s = 1.0
    for states, over in ((60, False), (101, True)):
        space.statistics.states = states
        assert space.out_of_budget() == over


def test_a_deadline_that_has_passed_leaves_the_original() -> None:
    space = Space(options(7, deadline=time.monotonic() - 1))
    forms = space.forms(parse(OPERATORS["conv3x3"]))
    assert any(f.operators() == ["Conv(n=1, o=h*w, f=f, c=c, r=r*s, g=1)"] for f in forms)


def vendors(forms: tuple[Form, ...] | list[Form]) -> set[str]:
    return {o for f in forms for o in f.operators()}


def test_without_converging_derivation_less_is_found() -> None:
    bare = Space(options(2, converge=False)).forms(parse(OPERATORS["conv3x3"]))
    assert keys(bare) < keys(found("conv3x3", 2))
    assert vendors(bare) < vendors(found("conv3x3", 2))


def test_rules_can_be_left_out() -> None:
    bare = Space(options(3, rules=("sum-split",))).forms(parse(OPERATORS["conv3x3"]))
    used = {s.rule for f in bare for s in f.steps}
    assert "sum-split" in used and "bilinear" not in used
    exact = Space(options(3, kinds=("exact",))).forms(parse(OPERATORS["conv3x3"]))
    assert {f.derivation.kind for f in exact} == {"exact"}


def test_groups_are_shared() -> None:
    """A second search of an equal expression visits no state."""
    space = Space(options(2))
    first = space.forms(parse(OPERATORS["conv3x3"]))
    states = space.statistics.states
    renamed: Scope = parse("A : f32[57,43,5]\nK : weight f32[3,3,5,8]\nL[y<57,x<43,o<8] Σ[j<3,i<5,k<3] K[k,j,i,o]*A[y+k-1,x+j-1,i]")
    second = space.forms(renamed)
    assert space.statistics.states == states
    assert [f.key for f in first] == [f.key for f in second] and all(f.start == renamed for f in second)
    for form in second:
        check(form.derivation)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_step_of_every_form_is_accepted_by_the_checker(name: str) -> None:
    for form in found(name, 3):
        assert len(check(form.derivation)) == len(form.steps)


@pytest.mark.parametrize("name", OPERATORS)
def test_the_rules_of_a_form_are_told_without_its_steps(name: str) -> None:
    found = Space(options(2, states=200)).forms(parse(OPERATORS[name]))
    told = [rules_of(form.steps) for form in found]  # before any steps are put together
    assert told == [{s.rule for s in form.steps} for form in found]
    assert [form.unchanged for form in found] == [unchanged(tuple(form.steps)) for form in found]


def test_a_function_that_stands_before_a_layout_move_passes_it() -> None:
    """Under the sum relu hides what is a Matmul's operand; within the copy it does not."""
    source = parse("M : f32[40,60]\nN : weight f32[60,50]\nL[m<40,n<50] Σ[k<60] relu({L[k<60,m<40] M[m,k]}[k,m])*N[k,n]")
    without = tuple(name for name in EXPLORED if name not in ("commute", "store"))
    assert not vendors(Space(options(3, rules=without)).forms(source))
    space = Space(options(3))
    assert "Matmul(m=m, n=n, k=k)" in vendors(space.forms(source)) and space.statistics.states <= 20


READERS_OF_ONE = """t0 : f32[32,64]
w1 : weight f32[64,64]
w2 : weight f32[64,64]
L[m<32,n<64] relu({L[m<32,n<64] {L[m<32,n<64] Σ[k<64] t0[m,k]*w1[k,n]}[m,n] + {L[m<32,n<64] Σ[k<64] t0[m,k]*w2[k,n]}[m,n]}[m,n])"""


@pytest.mark.parametrize("states", [2, 5, 9, 14, 20, 100])
def test_a_round_trip_does_not_take_the_place_of_an_original(states: int) -> None:
    """collect, distribute and merge lead back to the expression: it is still what the model has, with no step but forced ones."""
    source = parse(READERS_OF_ONE)
    before, after = (Space(Options(max_depth=depth, states=states, kinds=("exact", "reassociation"))).forms(source) for depth in (0, 7))
    originals = [f for f in before if all(s.rule in FORCED for s in f.steps)]
    assert originals == after[: len(originals)]


@pytest.mark.parametrize("batch", ["", "b<8,"])
def test_a_plain_product_has_few_states(batch: str) -> None:
    """An algorithm's transforms are not merged back, nor joined: what is left to try of a product are its layouts and the algorithm once or twice."""
    b, shape = ("b,", "8,") if batch else ("", "")
    space = Space(Options())
    space.forms(parse(f"A : f32[{shape}128,64]\nB : f32[{shape}64,96]\nL[{batch}m<128,n<96] Σ[k<64] A[{b}m,k]*B[{b}k,n]"))
    assert space.statistics.states <= 300 and not space.statistics.stopped


def test_differences_of_all_pairs_are_stored_by_nobody() -> None:
    """They are far more than goes in and out, but what adds up their squares computes them on the way: what leads on is visited."""
    pairs = "{L[b<64,m<64,n<32] A[b,n] + (-1)*B[m,n]}[b,m,n]"
    distances = parse(f"A : f32[64,32]\nB : f32[64,32]\nL[b<64,m<64] Σ[n<32] {pairs}*{pairs}")
    own, derived = (Space(Options(kinds=kinds, intensity=0.0)).forms(distances) for kinds in (("exact", "reassociation"), KINDS))
    assert min(flops(f.tree) for f in own) == flops(normalise(distances)[0])
    best = min(derived, key=lambda f: flops(f.tree))
    assert flops(best.tree) < 0.7 * flops(distances)
    assert {p.method for p in check(best.derivation)} == {"inline"}
    assert best.start == distances


def test_only_operators_that_stand_in_a_form_are_joined() -> None:
    """What a vendor operator is given may be no scope of the tree: a softmax's operand is found behind what its maximum is taken of."""
    products = [parse(f"x : f32[6,8]\n{w} : weight f32[8,5]\nL[m<6,n<5] Σ[k<8] x[m,k]*{w}[k,n]") for w in "PQ"]
    matches = tuple((f.tree, m) for p in products for f in converged_forms(p, TABLES, False, None) for _, m in f.matches)
    assert len(matches) == 2
    read = parse(
        "x : f32[6,8]\nP : weight f32[8,5]\nQ : weight f32[8,5]\n"
        "L[m<6,n<5] {L[m<6,n<5] Σ[k<8] x[m,k]*P[k,n]}[m,n] + {L[m<6,n<5] Σ[k<8] x[m,k]*Q[k,n]}[m,n]"
    )
    elsewhere = parse("x : f32[6,8]\nL[m<6,n<5] x[m,n]")
    assert list(joined_operators(Form(read, read, matches, ()), TABLES))
    assert not list(joined_operators(Form(elsewhere, elsewhere, matches, ()), TABLES))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_search_that_goes_on_finds_what_one_search_finds(name: str) -> None:
    scope = parse(OPERATORS[name])
    whole = Space(options(7, states=160))
    wanted = [(f.key, len(f.steps)) for f in whole.forms(scope)]
    parts = Space(options(7, states=20))
    first = parts.forms(scope)
    found = list[Form]()
    for states in (60, 160):
        parts.resume(options(7, states=states))
        found = parts.forms(scope)
    assert [(f.key, len(f.steps)) for f in found] == wanted and len(first) <= len(found)
    assert parts.statistics == whole.statistics


@pytest.mark.parametrize("changes", [{}, {"kept": 8}, {"inner": 4, "kept": 16}])
def test_a_search_that_goes_on_keeps_what_it_found(changes: dict[str, int]) -> None:
    """What more states know ranks otherwise, and a layer that is complete keeps other forms than it did before: the cheapest are still there."""
    scope = parse(OPERATORS["conv3x3"])
    space = Space(options(7, **changes))
    found = dict[str, Form]()
    left: set[str] = set()
    for states in (10, 20, 40, 80, 160, 320):
        space.resume(options(7, states=states, **changes))
        before, found = found, {f.key: f for f in space.forms(scope)}
        cheapest = sorted((f for f in before.values() if not f.unchanged), key=effort)[: space.options.kept]
        assert {f.key for f in cheapest} <= found.keys()
        (root,) = space.roots.values()
        left |= {key for key in root.earlier if key not in root.kept and key not in root.partial}
    assert left, "something would have been lost"


def test_groups_that_have_not_grown_keep_their_ways() -> None:
    space = Space(options(3))
    space.forms(parse(OPERATORS["product of three"]))
    (root,) = space.roots.values()
    ways, depth = root.ways, sum(len(g.levels) for g in space.groups.values())
    before = ways.of(root.group, depth)
    assert ways.of(root.group, depth + 1) is before
    ways.forget()
    assert ways.of(root.group, depth) is before
    assert len(ways.of(root.group, 0)) < len(before)


def test_what_was_found_late_is_combined_when_there_is_time_again() -> None:
    """Operators are joined only as long as there is time: a budget that ends before that takes nothing from a longer one."""
    scope = parse(
        "x : f32[64,48]\nP : weight f32[48,40]\nQ : weight f32[48,40]\n"
        "L[m<64,n<40] {L[m<64,n<40] Σ[k<48] x[m,k]*P[k,n]}[m,n]*{L[m<64,n<40] Σ[k<48] x[m,k]*Q[k,n]}[m,n]"
    )
    space = Space(options(0))
    assert any(s.rule == "join" for f in space.forms(scope) for s in f.steps)
    (root,) = space.roots.values()
    clock = {"late": True}
    ways = Ways(256, 3, combine=space._together, late=lambda: clock["late"])
    hasty = ways.of(root.group, 0)
    assert ways.of(root.group, 0) is hasty
    clock["late"] = False
    ways.forget()
    assert len(ways.of(root.group, 0)) > len(hasty)


def test_steps_are_put_together_when_they_are_asked_for() -> None:
    scope = parse("x : f32[8]\nL[i<8] x[i]")
    first, second = (Step(name, "", scope, scope, (), kind) for name, kind in (("one", "exact"), ("other", "reassociation")))
    made = Steps((first,), Steps((second,), ()), [first])
    assert kinds_of(made) == {"exact", "reassociation"} and kinds_of(()) == frozenset()
    assert made == (first, second, first) and hash(made) == hash((first, second, first))
    assert [*made] == [*made] and len(made) == 3 and made[1] == second and made[1:] == (second, first)
    assert made != Steps((first,)) and kinds_of(made) == {"exact", "reassociation"}


def test_steps_of_what_is_read_stand_where_it_is_read() -> None:
    inner = "{L[i<8] Σ[k<4] x[i,k]}"
    scope = parse(f"x : f32[8,4]\nL[i<8] {inner}[i]*{inner}[7-i] + {{L[i<8] exp({inner}[i])}}[i]")
    child = nested(scope)[0]
    step = Step("one", "", child, child, (3,))
    assert [s.path for s in Below(scope, child, (step,))] == [(0, 3), (1, 3), (2, 0, 3)]


def test_what_is_read_and_has_grown_gives_new_ways() -> None:
    text = OPERATORS["product of three"]
    whole, steps = Space(options(3)), Space(options(3))
    for depth in range(4):
        found = steps.forms(parse(text), depth)
    assert keys(found) == keys(whole.forms(parse(text)))
    for left in range(4):
        ways, others = (r.ways.of(r.group, left) for s in (steps, whole) for r in s.roots.values())
        assert [(w.cost, w.key) for w in ways] == [(w.cost, w.key) for w in others]
