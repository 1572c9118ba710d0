"""What values remember is what they would compute again, and is no part of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from random import Random

import pytest

from einnet.derivation.facts import reach, support
from einnet.expr.index import Index
from einnet.expr.key import canonical_form
from einnet.expr.nodes import Body, Read, Scope, children, index_functions, nested, reads, used_names, walk, walk_repeated
from einnet.expr.notation.text import parse
from einnet.expr.remember import Hashed, hashed_once, kept
from tests.strategies import random_scope

DRAWN = [random_scope(Random(seed), depth=2, level=3) for seed in range(40)]


def read_again(body: Body) -> Iterator[Read]:
    """The reads, looked for anew."""
    if isinstance(body, Read):
        yield body
    for a in children(body):
        yield from read_again(a)


def walked_again(scope: Scope) -> Iterator[Scope]:
    yield scope
    for r in read_again(scope.body):
        if isinstance(r.base, Scope):
            yield from walked_again(r.base)


def names_again(index: Index) -> set[str]:
    return {n for atom, _ in index.terms for n in ({atom} if isinstance(atom, str) else names_again(atom.num))}


@pytest.mark.parametrize("seed", range(len(DRAWN)))
def test_what_is_remembered_is_what_is_found_anew(seed: int) -> None:
    scope = DRAWN[seed]
    for _ in range(2):
        for s in walked_again(scope):
            assert reads(s.body) == tuple(read_again(s.body))
            assert used_names(s.body) == {n for e in index_functions(s.body) for n in names_again(e)}
            assert nested(s) == tuple(r.base for r in read_again(s.body) if isinstance(r.base, Scope))
            assert walk(s) == tuple(dict.fromkeys(walked_again(s))) and tuple(walk_repeated(s)) == tuple(walked_again(s))
            assert s.inside == set(list(walked_again(s))[1:])
            assert s.reduces == any(t.sums for t in walked_again(s))
            assert reach(s) == tuple(support(s.body, i.name, s.ranges) for i in s.loops)


@pytest.mark.parametrize("seed", range(len(DRAWN)))
def test_equal_values_are_one_key_of_a_dictionary_and_others_are_not(seed: int) -> None:
    scope, again = DRAWN[seed], parse(str(DRAWN[seed]))
    assert scope is not again and scope == again and hash(scope) == hash(again) and {scope: 1}[again] == 1
    assert scope.body == again.body and hash(scope.body) == hash(again.body)
    assert canonical_form(scope) == canonical_form(again) and scope.key == again.key
    others = [t for t in DRAWN if str(t) != str(scope)]
    assert all(t != scope for t in others) and scope not in others


def test_a_hash_is_computed_once() -> None:
    computed = []

    @hashed_once
    class Value(Hashed):
        def __hash__(self) -> int:
            computed.append(self)
            return 7

    first, second = Value(), Value()
    assert [hash(v) for v in (first, first, second, first, second)] == [7] * 5
    assert computed == [first, second]


def test_a_property_of_the_class_is_the_property_with_its_words() -> None:
    assert isinstance(Scope.parts, kept) and Scope.parts.name == "parts" and Scope.parts.__doc__ == Scope.parts.compute.__doc__


def test_what_is_remembered_does_not_travel() -> None:
    """Strings have other hashes in another process: a hash that came along would hide a scope from a dictionary."""
    scope = DRAWN[0]
    for known in (hash(scope), hash(scope.body), scope.key, scope.parts):
        assert known is not None
    for other in (pickle.loads(pickle.dumps(scope)), copy.deepcopy(scope)):
        assert other == scope and set(vars(other)) <= {"loops", "sums", "body", "reduce", "_hash"}
        assert pickle.loads(pickle.dumps(scope.body))._hash is None
    assert "_hash" not in vars(pickle.loads(pickle.dumps(scope)))


def test_scopes_are_walked_once_however_often_they_are_read() -> None:
    """Written out, what two scopes read stands there twice."""
    scope = parse("x : f32[3]\nL[i<3] {L[i<3] {L[i<3] 2*x[i]}[i]}[i] + {L[i<3] 3*{L[i<3] 2*x[i]}[i]}[i]")
    assert [len(walk(scope)), len(list(walk_repeated(scope)))] == [4, 5]
    assert walk(scope)[0] == next(walk_repeated(scope)) == scope
