"""The notation and the canonical key on random expressions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.errors import ParseError
from einnet.expr.index import var
from einnet.expr.nodes import (
    INF,
    Add,
    Body,
    Call,
    Const,
    Iter,
    Mul,
    Read,
    Scope,
    children,
    make_add,
    make_div,
    make_mul,
    negate,
    rebuild,
    substitute_body,
    tensors,
    walk,
)  # fmt: skip
from einnet.expr.notation.latex import latex
from einnet.expr.notation.text import Known, Parser, parse
from einnet.expr.values.evaluate import evaluate
from tests.strategies import repeatable, scopes

MANY = repeatable(400)
SOME = repeatable(200)


@MANY
@given(scopes(depth=2))
def test_what_is_printed_is_read_back(scope: Scope) -> None:
    assert parse(str(scope)) == scope
    assert eval(repr(scope), {"parse": parse}) == scope


NUMBERS = (
    Fraction(1, 48), Fraction(-1, 48), Fraction(-3), Fraction(0), Fraction(1, 3) ** 40, Fraction(10) ** 45, Fraction("1e-45"), Fraction(7) ** 60,
    Fraction(1, 7**60), Fraction(0.1), Fraction(10**320, 3), INF, -INF,
)  # fmt: skip


def with_numbers(body: Body, generator: random.Random) -> Body:
    """The body with numbers of all kinds in place of some of its parts, and quotients of them, built as importer and rules build."""
    if generator.random() < 0.3:
        return Const(generator.choice(NUMBERS))
    if isinstance(body, Read):
        base = replace(body.base, body=with_numbers(body.base.body, generator)) if isinstance(body.base, Scope) else body.base
        return Read(base, body.index, generator.choice((body.fill, *NUMBERS)))
    args = [with_numbers(a, generator) for a in children(body)]
    build = {Add: make_add, Mul: make_mul}.get(type(body), lambda args: rebuild(body, tuple(args)))
    own = build(args) if args else body
    match generator.randrange(6):
        case 0:
            return make_div(own, Const(generator.choice(NUMBERS)))
        case 1:
            return make_div(make_div(Const(generator.choice(NUMBERS)), Const(generator.choice(NUMBERS))), own)
        case 2:
            return make_mul((make_mul((own, negate(own))), own))
        case 3:
            return make_add((own, make_add((negate(own), own))))
    return own


@SOME
@given(scopes(depth=2), st.integers(0, 1 << 32))
def test_numbers_of_all_kinds_are_read_back(scope: Scope, seed: int) -> None:
    given = replace(scope, body=with_numbers(scope.body, random.Random(seed)))
    assert parse(str(given)) == given
    assert parse(str(given)).key == given.key


def shuffled(body: Body, generator: random.Random) -> Body:
    """The same body with operands of commutative operators and the insides of scopes in another order."""
    if isinstance(body, Read):
        return replace(body, base=renamed(body.base, generator)) if isinstance(body.base, Scope) else body
    args = [shuffled(a, generator) for a in children(body)]
    if isinstance(body, Add | Mul) or (isinstance(body, Call) and body.name in ("max", "min")):
        generator.shuffle(args)
    return rebuild(body, tuple(args)) if args else body


def renamed(scope: Scope, generator: random.Random) -> Scope:
    """The same scope with other names and another order of sums and operands."""
    fresh = {i.name: f"{generator.choice('xyz')}{k}" for k, i in enumerate((*scope.loops, *scope.sums))}
    body = substitute_body(scope.body, {old: var(new) for old, new in fresh.items()})
    sums = [Iter(fresh[i.name], i.lo, i.hi) for i in scope.sums]
    generator.shuffle(sums)
    loops = tuple(Iter(fresh[i.name], i.lo, i.hi) for i in scope.loops)
    return Scope(loops, tuple(sums), shuffled(body, generator), scope.reduce)


@MANY
@given(scopes(depth=2))
def test_the_key_forgets_names_and_order(scope: Scope) -> None:
    assert renamed(scope, random.Random(scope.text())).key == scope.key


@pytest.mark.parametrize(("condition", "holds"), [
    ("i>=j", lambda i, j: i >= j), ("i<=j", lambda i, j: i <= j), ("i<j", lambda i, j: i < j), ("i==j", lambda i, j: i == j),
    ("2*i-1<j+2", lambda i, j: 2 * i - 1 < j + 2), ("i//2==j%2", lambda i, j: i // 2 == j % 2), ("i>=1 & j<2 & i<=j", lambda i, j: 1 <= i <= j < 2),
])  # fmt: skip
def test_comparisons_mean_what_they_say(condition: str, holds: Callable[[int, int], bool]) -> None:
    found = evaluate(parse(f"L[i<4,j<4] select({condition}, 1, 0)"), {})
    assert found.tolist() == [[float(holds(i, j)) for j in range(4)] for i in range(4)]


CONV = "A : f32[6,6,4]\nK : f32[3,3,4]\nL[h<6,w<6] Σ[r<3,s<3,c<4] A[h+r-1,w+s-1,c]*K[r,s,c]"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("K[r,s,c]", "K[s,r,c]"),
        ("h<6,w", "h<5,w"),
        ("L[h<6,w<6]", "L[w<6,h<6]"),
        ("c<4", "c<3"),
        ("A : f32[6,6,4]", "A : f32[6,7,4]"),
        ("A : f32", "A : f16"),
        ("K : f32", "K : weight f32"),
        ("h+r-1", "h+r-2"),
        ("h+r-1", "(h+r-1)%6"),
        ("h+r-1", "(h+r-1)//2"),
        ("h+r-1", "(h+r-1)/2"),
        ("c]*K", "c]|1*K"),
        ("Σ", "max"),
        ("]*K", "]+K"),
    ],
)
def test_the_key_forgets_nothing_else(old: str, new: str) -> None:
    assert old in CONV
    assert parse(CONV.replace(old, new)).key != parse(CONV).key


def test_latex_shows_every_part() -> None:
    text = latex(parse("A : f32[6,6]\nL[h<6,1<=w<5] max[r1<3] select(h-w>=0, relu({L[i<6,j<6] 1/3*A[i//2,(j+1)/2]}[h+r1,w]|-inf), 0) + val(h)"))
    for part in (
        r"\mathrm{L}", r"1\le w<5", r"\max_{r_{1}<3}", r"\begin{cases}", r"h-w \ge 0", r"\operatorname{relu}", r"\lfloor i / 2 \rfloor",
        r"\frac{j+1}{2}", r"\tfrac{1}{3}", r"\big|_{-\infty}", r"\left(h\right)",
    ):  # fmt: skip
        assert part in text
    assert text.count("{") == text.count("}")


@SOME
@given(scopes())
def test_what_is_known_is_not_read_again(scope: Scope) -> None:
    """Of two expressions with a scope in common the second is read as it is alone, and finds what it has in common with the first."""
    declared = tensors(scope)
    reader = parse(f"L[i<2] {{{scope.text()}}}[{','.join('0' for _ in scope.loops)}] + 1", declared)
    known: dict[str, Known] = {}
    assert parse(scope.text(), declared, known) == scope
    assert parse(reader.text(), declared, known) == reader
    assert {k: v.scope for k, v in known.items()} == {f"{{{s.text()}}}": s for s in walk(reader) if s is not reader}
    before = dict(known)
    parser = Parser(reader.text(), declared, known)
    assert parser.expression() == reader and not parser.found and len(parser.tokens) < 40
    assert known == before


def test_what_is_known_of_undeclared_tensors_is_of_their_first_reads() -> None:
    """A tensor that is not declared has the box that its own expression suggests: nothing is kept of it."""
    known: dict[str, Known] = {}
    assert parse("L[i<2] {L[h<4] A[h]}[i]", {}, known).nested[0].shape == (4,) and not known
    (small,) = tensors(parse("L[i<2] A[i]*{L[h<4] A[h]}[i]", {}, known)).values()
    assert small.shape == (2,) and not known


@pytest.mark.parametrize("text", [
    "L[i<2] {L[h<4] B[h]}[i] + }", "L[i<2] {{L[h<4] B[h]}[i]", "L[i<2] {L[h<4] B[h]}[i,i]", "L[i<2] 2 {L[h<4] B[h]}[i]",
])  # fmt: skip
def test_errors_beside_what_is_known_are_what_they_are_without(text: str) -> None:
    known: dict[str, Known] = {}
    declared = tensors(parse("B : f32[4]\nL[i<2] {L[h<4] B[h]}[i]"))
    parse("L[i<2] {L[h<4] B[h]}[i]", declared, known)
    assert known
    assert parse("L[i<2] {L[h<4] B[h]}[i] # {L[h<4] B[h]} [", declared, known) == parse("L[i<2] {L[h<4] B[h]}[i]", declared)
    said = []
    for more in (None, known):
        with pytest.raises(ParseError) as caught:
            parse(text, declared, more)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_what_is_known_may_not_nest_deeper_than_what_is_read() -> None:
    known: dict[str, Known] = {}
    declared = tensors(parse("B : f32[4]\nL[i<4] B[i]"))

    def too_deep(text: str, known: dict[str, Known] | None) -> bool:
        try:
            parse(text, declared, known)
        except ParseError as error:
            return "nested deeper than 200 levels" in str(error)
        return False

    text, found = "L[i<4] B[i]", []
    for n in range(100):
        found.append((too_deep(text, known), too_deep(text, None)))
        text = f"L[i<4] {{L[i<4] {{{text}}}[i] + {{L[i<4] B[i] + {n}}}[i]}}[i]"
    assert {False, True} == {known for known, _ in found}
    assert all(known == alone for known, alone in found)
