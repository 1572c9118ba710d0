"""Kernels around a softmax: guarded merges, reductions along their reader, tables for remainders."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.derivation.rules.forced.merge import merge_guarded
from einnet.expr.index import var
from einnet.expr.nodes import Add, Call, Iter, Mul, Read, Scope, Tensor, reads
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import _Builder, build, builds
from einnet.instantiate.row_fusion import along
from tests.derivation.generators import same_tensor
from tests.instantiate.numpy_kernels import integers, run

LINKS = 10


def inner_read(scope: Scope) -> Read:
    return next(r for r in reads(scope.body) if isinstance(r.base, Scope))


def test_a_guarded_merge_keeps_what_is_outside() -> None:
    for text in ("{L[x<5] exp(A[x])}[m-2]", "{L[x<5] A[x] + 1}[m-2]|3", "{L[-1<=x<9] A[x] + 1}[m]"):
        source = parse(f"A : f32[9]\nL[m<9] 2*{text}")
        merged = merge_guarded(source, inner_read(source))
        assert merged is not None
        assert not any(isinstance(r.base, Scope) for r in reads(merged.body))
        assert same_tensor(source, merged)
    assert "select" in str(merge_guarded(*((s := parse("A : f32[9]\nL[m<9] {L[x<5] exp(A[x])}[m-2]")), inner_read(s))))


def test_what_a_guarded_merge_leaves() -> None:
    for text in ("{L[x<5] Σ[k<3] A[x+k]}[m]", "{L[x<5] exp(A[x])}[m/2]"):
        source = parse(f"A : f32[9]\nL[m<9] 2*{text}")
        assert merge_guarded(source, inner_read(source)) is None


def test_a_reduction_follows_the_loops_of_its_reader() -> None:
    source = parse("A : f32[12,5]\nL[p<3,q<4,k<5] A[4*p+q,k] - {L[m<12] max[n<5] A[m,n]}[4*p+q]".replace(" - ", " + (-1)*"))
    r = inner_read(source)
    assert isinstance(r.base, Scope)
    found = along(r, r.base, source)
    assert found is not None
    assert isinstance(found.base, Scope)
    assert found.base.shape == (3, 4)
    (kernel,) = build(source, {}, "out").kernels
    values = integers(source)
    np.testing.assert_allclose(run(source, {}, values).reshape(source.shape), evaluate(source, values))
    assert kernel.out.shape == (3, 4, 5)


def test_a_reduction_stays_where_its_reader_needs_more_of_it() -> None:
    for index in ("m//2", "m+1", "m+n"):
        source = parse(f"A : f32[9,5]\nL[m<9,n<3] {{L[x<9] max[k<5] A[x,k]}}[{index}]*2")
        r = inner_read(source)
        assert isinstance(r.base, Scope)
        assert along(r, r.base, source) is None


def test_remainders_become_a_table_that_is_shared() -> None:
    masked = parse("A : f32[2,6,6]\nL[b<2,m<6,n<6] A[b,m,n] + select((m-n)%2==0, 0, -1)")
    made = build(masked, {}, "out")
    assert len(made.weights) == 1
    values = integers(masked)
    np.testing.assert_allclose(run(masked, {}, values).reshape(masked.shape), evaluate(masked, values))
    for kept in ("A[b,m,n] + select(m-n>=0, 0, -1)", "A[b,m,n] + select((m-n+b)%2==0, 0, -1)"):
        assert not build(parse(f"A : f32[2,6,6]\nL[b<2,m<6,n<6] {kept}"), {}, "out").weights


def test_what_is_read_in_many_places_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of sums of which each is read twice by the next has 2^n paths, and n links."""
    asked: list[Read] = []
    operand = _Builder.operand
    monkeypatch.setattr(_Builder, "operand", lambda self, r, reader: asked.append(r) or operand(self, r, reader))
    a, b = Tensor("A", (4, 8)), Tensor("B", (8, 8))
    m, k, n = Iter("m", 0, 4), Iter("k", 0, 8), Iter("n", 0, 8)
    before: Tensor | Scope = a
    for _ in range(LINKS):
        product = Scope((m, k), (n,), Mul((Read(before, (var("m"), var("n"))), Read(b, (var("n"), var("k"))))))
        at = Read(product, (var("m"), var("k")))
        before = Scope((m, k), (), Add((Call("exp", (at,)), at)))
    assert isinstance(before, Scope)
    list(builds(before, {}, "out"))
    assert LINKS < len(asked) < 2**LINKS / 4
