"""Keys of sums over iterators that look alike: the least of all orders, found without trying those that only exchange what may be exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, permutations, product
from time import process_time

import pytest

from einnet.expr import key
from einnet.expr.nodes import Iter, Scope
from einnet.expr.normal.inline import inline
from einnet.expr.notation.text import parse

DECLARED = "A : f32[6]\nB : f32[6]\nX : f32[6,6]\nY : f32[6,6,6]\n"
TEXTS = (
    "Σ[a<6,b<6,c<6,d<6] A[a]*A[b]*A[c]*A[d]", "Σ[a<6,b<6,c<6,d<6] X[h,a]*X[h,b]*X[h,c]*X[h,d]*B[a]*B[b]*B[c]*B[d]",
    "Σ[a<6,b<6,c<6,d<6] X[a,b]*X[b,c]*X[c,d]*X[d,a]", "Σ[a<6,b<6,c<6,d<6] X[a,b]*X[b,a]*X[c,d]*X[d,c]", "Σ[a<6,b<6,c<6,d<6] X[a,b]*X[c,d]*A[a]*A[c]",
    "Σ[a<6,b<6,c<6,d<6] A[(a+b+c+d)//4]", "Σ[a<6,b<6,c<6,d<6] select(a-b>=0 & c-d>=0, A[h], 0)", "Σ[a<6,b<6,c<6,d<6] select(a-b>=0, A[c]*A[d], 0)",
    "max[a<6,b<6,c<6,d<6] A[a]+A[b]+A[c]+A[d]", "Σ[a<6,b<6,c<6,d<6,e<6] X[a,b]*X[b,c]*X[c,d]*X[d,e]*X[e,a]", "Σ[a<6,b<6,c<6,d<5] A[a]*A[b]*A[c]*A[d]",
    "Σ[a<6,b<6,c<6,d<6,e<6] Y[a,b,c]*Y[c,d,e]*A[h]", "Σ[a<6,b<6,c<6,d<6] exp(X[a,b]-X[c,d])", "Σ[a<6,b<6,c<6,d<6] less(A[a]*A[b],A[c]*A[d])",
)  # fmt: skip


def every_order(scope: Scope, names: dict[str, str], classes: list[list[Iter]]) -> Iterator[Iterator[Iter]]:
    return (chain.from_iterable(order) for order in product(*map(permutations, classes)))


@pytest.mark.parametrize("text", TEXTS)
def test_the_least_of_all_orders_is_found(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = parse(f"{DECLARED}L[h<6] {text}")
    found = key.canonical_form(scope)
    assert key.canonical_form(Scope(scope.loops, scope.sums[::-1], scope.body, scope.reduce)) == found
    monkeypatch.setattr(key, "_orders", every_order)
    assert key.canonical_form(scope) == found


@pytest.mark.parametrize(("body", "orders"), [
    ("*".join(f"A[{n}]" for n in "abcdefgi"), 1), ("*".join(f"X[h,{n}]*B[{n}]" for n in "abcdefgi"), 1), ("X[a,b]*X[c,d]*X[e,f]*A[g]*A[i]", 36),
    ("select(a-b>=0, A[c]*A[d]*A[e]*A[f]*A[g]*A[i], 0)", 1), ("A[a]*A[b]*A[c]*A[d]+A[e]*A[f]*A[g]*A[i]", 70),
])  # fmt: skip
def test_what_may_be_exchanged_takes_no_order_of_its_own(body: str, orders: int) -> None:
    """Of eight iterators there are 40320."""
    scope = parse(f"{DECLARED}L[h<6] Σ[{','.join(f'{n}<6' for n in 'abcdefgi')}] {body}")
    names = {"h": "L0"}
    assert len(list(key._orders(scope, names, key._classes(scope, names)))) == orders


def test_powers_of_sums_have_forms_in_time() -> None:
    """Twelve sums could be put in 479001600 orders."""
    product_of = "{L[m<6] Σ[k<6] X[m,k]*B[k]}[m]"
    began = process_time()
    inline(parse(f"{DECLARED}L[m<6] {'*'.join([product_of] * 12)}"))
    assert process_time() - began < 20


def test_what_differs_in_one_thing_has_another_key() -> None:
    """Denominators, fills, bounds, values that a tensor carries, equations and inequalities. Names and orders do not matter."""
    tables = "T : weight f32[2] = [1, 2]\n", "T : weight f32[2] = [1, 3]\n", "T : weight f32[2]\n", "T : f32[2]\n", "T : f64[2]\n", "U : f32[2]\n"
    apart = [parse(f"{t}L[h<2] {t[0]}[h]") for t in tables]
    texts = ("A[h]", "A[h/2]", "A[h/3]", "A[h//2]", "A[h//3]", "A[h]|1", "B[h]", "A[h+1]", "A[2*h]", "Σ[k<2] A[k]", "Σ[k<3] A[k]", "max[k<2] A[k]")
    apart += [
        parse(f"{DECLARED}L[h<6] {text}")
        for text in (*texts, "select(h-2>=0, A[h], 0)", "select(h-2==0, A[h], 0)", "less(A[h],B[h])", "less(B[h],A[h])")
    ]
    keys = [s.key for s in apart]
    assert len({*keys}) == len(keys) and all(len(k) == 32 for k in keys)
    for one, other in (("A[h]*B[h]", "B[h]*A[h]"), ("max(A[h],B[h])", "max(B[h],A[h])"), ("Σ[k<2,l<3] X[k,l]", "Σ[b<3,a<2] X[a,b]")):
        assert parse(f"{DECLARED}L[h<6] {one}").key == parse(f"{DECLARED}L[g<6] {other.replace('[h]', '[g]')}").key
