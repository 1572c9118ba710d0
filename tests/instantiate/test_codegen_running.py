"""Recurrences as loops over time: right over any strides, offsets and borders, in either direction, and linear in what they count and do."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from einnet.derivation.rules.transitions import running
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.instantiate.codegen import lower
from einnet.instantiate.codegen.operation_counts import flops
from tests.derivation.generators import recurrences
from tests.instantiate.compiled import check, dense, scattered

HEAD = """
X : f32[5,37]
Y : f32[37,21]
P : f32[37]
R : f32[37,21]
V : f32[40]
W : f32[40]
q : f32[3,37,6]
k : f32[3,6,37]
v : f32[3,37,19]
A : f32[37,3]
B : f32[37,3]
Z : f32[21,37]
wq : f32[2,37,19]
wk : f32[2,19,37]
wv : f32[2,37,40]
wb : f32[2,37,6,7]
"""
RUNNING = {
    "rows": "L[x<5,t<37] Σ[s<37] select(t-s>=0, X[x,s], 0)",
    "columns": "L[t<37,c<21] Σ[s<37] select(t-s>=0, Y[s,c], 0)",
    "exclusive": "L[t<37,c<21] Σ[s<37] select(t-s-1>=0, Y[s,c], 0)",
    "backwards": "L[t<37,c<21] Σ[s<37] select(s-t>=0, Y[s,c], 0)",
    "exclusive backwards": "L[t<37,c<21] Σ[s<37] select(s-t-1>=0, Y[s,c], 0)",
    "greatest so far": "L[t<37,c<21] max[s<37] select(t-s>=0, Y[s,c], -inf)",
    "least to come": "L[t<37] min[s<37] select(s-t>=0, P[s], inf)",
    "a constant decay": "L[t<37,c<21] Σ[s<37] select(t-s>=0, exp((-1/9)*val(t-s))*Y[s,c], 0)",
    "decays that are data": "L[t<37,c<21] Σ[s<37] select(t-s>=0, exp(R[t,c]-R[s,c])*Y[s,c], 0)",
    "late decays": "L[t<37,c<21] Σ[s<37] select(t-s-1>=0, exp(R[t,c]-R[s,c])*Y[s,c], 0)",
    "late decays backwards": "L[t<37,c<21] Σ[s<37] select(s-t-1>=0, exp(R[t,c]-R[s,c])*Y[s,c], 0)",
    "no loss before the next time": "L[t<37,c<21] Σ[s<37] select(t-s-1>=0, exp((-1/9)*val(t-s-1))*Y[s,c], 0)",
    "no loss before the time before, backwards": "L[t<37,c<21] Σ[s<37] select(s-t-1>=0, exp(R[t+1,c]-R[s,c])*Y[s,c], 0)",
    "what chunks hand on": "L[t<10,c<21] Σ[s<10] select(t-s-1>=0, exp(W[4*t-1]-W[4*s+3])*Y[s,c], 0)",
    "what chunks hand on, two times late": "L[t<10,c<21] Σ[s<10] select(t-s-2>=0, exp(W[3*t-2]-W[3*s+4])*Y[s,c], 0)",
    "a large state": "L[h<3,t<37,d<19] Σ[s<37,c<6] select(t-s>=0, q[h,t,c]*k[h,c,s]*v[h,s,d], 0)",
    "a state in memory": "L[h<2,t<37,d<40] Σ[s<37,c<19] select(t-s>=0, exp((-1/9)*val(t-s))*wq[h,t,c]*wk[h,c,s]*wv[h,s,d], 0)",
    "a state in memory, late, backwards": "L[h<2,t<37,d<40] Σ[s<37,c<19] select(s-t-2>=0, wq[h,t,c]*wk[h,c,s]*wv[h,s,d], 0)",
    "a part of a state in memory": "L[h<2,t<37,d<40] Σ[s<37,2<=c<19] select(t-s>=0, wq[h,t,c]*wk[h,c-1,s-3]*wv[h,s,d], 0)",
    "a state of two dimensions in memory": "L[h<2,t<37,d<40] Σ[s<37,a<6,b<7] select(t-s-1>=0, wb[h,t,a,b]*wk[h,a+b,s]*wv[h,s,d], 0)",
    "a selective scan": "L[t<37,c<21] Σ[s<37,n<3] select(t-s>=0, exp(R[t,c]-R[s,c])*A[t,n]*B[s,n]*Y[s,c], 0)",
    "three times late": "L[t<37,c<21] Σ[s<37] select(t-s-3>=0, Y[s,c], 0)",
    "late by more than a chunk, backwards": "L[t<37,c<21] Σ[s<37] select(s-t-9>=0, exp(R[t,c]-R[s,c])*Y[s,c], 0)",
    "greatest until two before": "L[t<37,c<21] max[s<37] select(t-s-2>=0, Y[s,c], -inf)",
    "fewer come than are asked": "L[t<37,c<21] Σ[3<=s<31] select(t-s-2>=0, exp((-1/9)*val(t-s))*Y[s,c], 0)",
    "more come than are asked": "L[3<=t<31,c<21] Σ[3<=s<37] select(t-s>=0, exp((-1/9)*val(t-s))*Y[s,c], 0)",
    "a shifted box": "L[2<=t<30,c<21] Σ[2<=s<30] select(t-s>=0, Y[s,c], 0)",
    "many rows": "L[x<21,t<37] Σ[s<37] select(t-s>=0, Z[x,s], 0)",
    "many rows backwards": "L[x<21,t<37] Σ[s<37] select(s-t>=0, Z[x,s], 0)",
    "greatest so far of rows, exclusive": "L[x<21,t<37] max[s<37] select(t-s-1>=0, Z[x,s], -inf)",
    "rows that decay, late": "L[x<21,t<37] Σ[s<37] select(t-s-1>=0, exp(P[t]-P[s])*Z[x,s], 0)",
    "rows into columns": "L[t<37,x<21] Σ[s<37] select(t-s>=0, Z[x,s], 0)",
    "columns into rows": "L[x<21,t<37] Σ[s<37] select(s-t>=0, Y[s,x], 0)",
    "rows of a small state": "L[x<21,t<37] Σ[s<37,n<3] select(t-s>=0, exp(P[t]-P[s])*A[t,n]*B[s,n]*Z[x,s], 0)",
    "rows of a small state backwards": "L[x<21,t<37] Σ[s<37,n<3] select(s-t-2>=0, A[t,n]*B[s,n]*Z[x,s+1], 0)",
    "places of rows that are read beyond": "L[x<21,t<40] Σ[s<40] select(t-s>=0, Z[x,s-2]*V[s], 0)",
    "what reads beyond": "L[t<40,c<21] Σ[s<40] select(t-s>=0, Y[s-2,c]*V[s], 0)",
}


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("threads", [1, 3])
def test_a_walk_along_time_gives_the_sum(threads: int, part: int) -> None:
    scopes = [parse(HEAD + text) for text in list(RUNNING.values())[part::5]]
    assert all(running(scope) is not None for scope in scopes)
    check([scattered(scope, threads) for scope in scopes] + [dense(scope) for scope in scopes], threads)


@pytest.mark.parametrize("name", ["many rows", "many rows backwards", "rows into columns", "columns into rows", "rows of a small state"])
def test_rows_of_a_walk_are_turned_in_square_blocks(name: str) -> None:
    assert "Shuffle" in lower(dense(parse(HEAD + RUNNING[name])), "walk").primfunc.script()


@pytest.mark.parametrize("name", [n for n in RUNNING if "in memory" in n])
def test_what_a_state_in_memory_reads_stands_side_by_side(name: str) -> None:
    lowered = lower(dense(parse(HEAD + RUNNING[name])), "walk").primfunc.script()
    assert "rows_in_order" in lowered and "totals" in lowered


def test_what_is_read_once_is_not_copied() -> None:
    narrow = RUNNING["a state in memory"].replace("d<40", "d<16")
    lowered = lower(dense(parse(HEAD + narrow)), "walk").primfunc.script()
    assert "rows_in_order" not in lowered and "totals" in lowered


@pytest.mark.parametrize("name", RUNNING)
def test_a_walk_carries_a_state(name: str) -> None:
    assert "state" in lower(dense(parse(HEAD + RUNNING[name])), "walk").primfunc.script()


@pytest.mark.parametrize(
    "text",
    [
        "L[t<37] Σ[s<37] select(t-s>=0, Y[t,s], 0)",
        "L[t<37] Σ[s<37] select(t-s>=0 & s-t+5>=0, P[s], 0)",
        "L[t<37] Σ[s<37] select(t-s+2>=0, P[s], 0)",
        "L[2<=t<37] Σ[s<37] select(t-s>=0, P[s], 0)",
        "L[t<37] Σ[s<37] select(2*t-s>=0, P[s], 0)",
        "L[t<37] Σ[s<37] select(t-s==0, P[s], 0)",
        "L[t<37] max[s<37] select(t-s>=0, P[s], 0)",
        "L[t<37] max[s<37] select(t-s>=0, P[s]*P[t], -inf)",
        "L[t<37] Σ[s<37] select(t-s>=0, P[s], 1)",
        "L[t<37] Σ[s<37] select(t-s>=0, exp(P[t]+P[s])*P[s], 0)",
        "L[t<37] Σ[s<37] select(t-s>=0, exp(P[t-1]-P[s])*P[s], 0)",
        "L[t<37] Σ[s<37] select(t-s-1>=0, exp(P[t-2]-P[s])*P[s], 0)",
        "L[t<5] Σ[s<5] select(t-s>=0, P[s], 0)",
    ],
)
def test_what_is_no_walk_is_none(text: str) -> None:
    assert running(parse(HEAD + text)) is None


def test_gates_that_elements_of_a_state_share_are_computed_once() -> None:
    head = "g : f32[40,3]\nX : f32[40,3,21]\nh : f32[40,3,21]\n"
    shared = "L[t<40,a<3,c<21] Σ[s<40] select(t-s>=0, exp(g[t,a]-g[s,a])*X[s,a,c], 0)"
    own = "L[t<40,a<3,c<21] Σ[s<40] select(t-s>=0, exp(h[t,a,c]-h[s,a,c])*X[s,a,c], 0)"
    assert ["gates" in lower(dense(parse(head + text)), "walk").primfunc.script() for text in (shared, own)] == [True, False]
    check([scattered(parse(head + text), 1) for text in (shared, shared.replace("t-s>=0", "t-s-1>=0"), shared.replace("t-s>=0", "s-t>=0"))])


def test_operations_are_linear_in_time() -> None:
    for text in RUNNING.values():
        scope = parse(HEAD + text)
        assert flops(scope) <= 40 * int(np.prod(scope.shape)) * max(1, 6)
    long = parse("X : f32[4096]\nL[t<4096] Σ[s<4096] select(t-s>=0, X[s], 0)")
    assert flops(long) < 4 * 4096


def test_random_recurrences() -> None:
    """Drawn once, compiled together."""
    found: list[Scope] = []

    @settings(max_examples=24, phases=(Phase.generate,), database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(recurrences())
    def draw(scope: Scope) -> None:
        found.append(scope)

    draw()
    check([scattered(scope, seed) for seed, scope in enumerate(found)], positive=True)


def test_a_state_in_memory_begins_with_a_cache_line() -> None:
    """An array on the stack begins where it may; one that is indexed by loops has room to begin later, so that no vector of it lies in two lines."""
    script = lower(dense(parse(HEAD + RUNNING["a state in memory"])), "walk").primfunc.script()
    found = re.findall(r"(state_\w+)_room: .*tvm_stack_alloca\(\"shape\", (\d+)\)", script)
    assert found
    for name, room in found:
        assert 2 * int(room) >= 16 * 19 + 15
        assert re.search(rf"{name}_data: .*llvm.ptrmask.*handle_add_byte_offset\({name}_room, 60\), T.int64\(-64\)\)", script)
    assert not re.search(r"totals_\w+_room", script)


@pytest.mark.parametrize("name", ["gates", "rows", "rows0", "result", "state", "total", "kept_1", "kept_2"])
def test_a_tensor_may_be_called_as_anything_in_a_walk_is(name: str) -> None:
    head = HEAD.replace("wq :", f"{name} :")
    text = f"L[h<2,t<37,d<40] Σ[s<37,c<19] select(t-s>=0, exp(P[t]-P[s])*{name}[h,t,c]*wk[h,c,s]*wv[h,s,d], 0)"
    check([dense(parse(head + text))])
