"""Which nodes make one piece: chains through which a sum may pass to advantage, cut where it does not; and what they could take at best."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx
import pytest

from einnet.expr.index import var
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.graph.orders import Factor, Term, Tie, closed, fewer, in_digits
from einnet.graph.passes.prepare import prepare
from einnet.graph.passes.simplify import simplify
from einnet.graph.promise import least, remainders, taken
from einnet.graph.split import subprograms
from tests.graph.cases import build, node, values

Shapes = dict[str, tuple[int, ...]]


def parts(nodes: Sequence[onnx.NodeProto], inputs: Shapes, weights: Shapes, outputs: Sequence[str] = ("y",)) -> list[set[str]]:
    """The ONNX outputs that the nodes of each piece with a reduction give."""
    held = {name: values(shape, n) for n, (name, shape) in enumerate(weights.items())}
    model = build(list(nodes), {name: values(shape) for name, shape in inputs.items()}, tuple(outputs), held)
    return [{n.output.name for n in p.nodes} for p in subprograms(simplify(load(model))) if any(n.scope.sums for n in p.nodes)]


def chain(between: Sequence[onnx.NodeProto] = (), first: tuple[int, int] = (8, 16), second: tuple[int, int] = (16, 2)) -> list[set[str]]:
    """Two products with weights, with something between `a` and `b`."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), *(between or [node("Identity", ["a"], ["b"])]), node("MatMul", ["b", "v"])]
    return parts(nodes, {"x": (4, 8)}, {"w": first, "v": second})


def test_products_whose_weights_fold_are_one_piece() -> None:
    assert chain() == [{"a", "y"}]
    assert chain([node("Neg", ["a"], ["b"])]) == [{"a", "y"}], "the sign is in the weights"


def test_products_whose_order_is_best_as_it_stands_are_not() -> None:
    assert chain(first=(8, 2), second=(2, 16)) == [{"a"}, {"y"}]


def test_an_activation_cuts() -> None:
    assert chain([node("Relu", ["a"], ["b"])]) == [{"a", "b"}, {"y"}]
    assert chain([node("Softmax", ["a"], ["b"])])[-1] >= {"y"}


def test_a_value_that_is_used_elsewhere_cuts() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"])]
    sizes: tuple[Shapes, Shapes] = {"x": (4, 8)}, {"w": (8, 16), "v": (16, 2)}
    assert parts(nodes, *sizes) == [{"a", "y"}]
    assert parts(nodes, *sizes, outputs=("a", "y")) == [{"a"}, {"y"}]
    assert parts([*nodes, node("Relu", ["a"], ["z"])], *sizes, outputs=("y", "z")) == [{"a"}, {"y"}]


def test_sums_of_products_with_one_operand_are_one_piece() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["x", "v"], ["b"]), node("Add", ["a", "b"])]
    sizes: Shapes = {"w": (8, 8), "v": (8, 8)}
    assert parts(nodes, {"x": (4, 8)}, sizes) == [{"a", "b", "y"}]
    nodes[1] = node("MatMul", ["z", "v"], ["b"])
    assert parts(nodes, {"x": (4, 8), "z": (4, 8)}, sizes) == [{"a"}, {"b", "y"}]


def test_windows_beyond_the_edge_and_products_that_share_in_turn_are_one_piece() -> None:
    """Three filters of one padded plane are one filter; of a*c + a*d + b*c + b*d each product shares a factor with the next."""
    beside = [node("Conv", ["x", w], [o], pads=p) for w, o, p in (("w", "a", [1, 0, 1, 0]), ("v", "b", [0, 1, 0, 1]), ("u", "c", [1, 1, 1, 1]))]
    nodes = [*beside, node("Add", ["a", "b"], ["d"]), node("Add", ["c", "d"])]
    weights: Shapes = {"w": (8, 8, 3, 1), "v": (8, 8, 1, 3), "u": (8, 8, 3, 3)}
    assert parts(nodes, {"x": (1, 8, 16, 16)}, weights) == [{"a", "b", "c", "d", "y"}]
    products = [node("MatMul", [left, right], [left + right]) for left in "ab" for right in "cd"]
    added = [node("Add", ["ac", "ad"], ["e"]), node("Add", ["bc", "bd"], ["f"]), node("Add", ["e", "f"])]
    assert len(parts([*products, *added], {"a": (8, 8), "b": (8, 8), "c": (8, 8), "d": (8, 8)}, {})) == 1


def test_products_of_what_stands_apart_or_by_one_weight_are_one_piece() -> None:
    """Of data with zeros between its elements a filter has few taps at each place; a*w + b*w is (a + b)*w."""
    nodes = [node("ConvTranspose", ["x", "d"], ["a"], strides=[2, 2], group=8), node("Conv", ["a", "w"], pads=[1, 1, 1, 1])]
    assert parts(nodes, {"x": (1, 8, 8, 8)}, {"d": (8, 1, 1, 1), "w": (8, 8, 3, 3)}) == [{"a", "y"}]
    nodes = [node("MatMul", ["a", "w"], ["s"]), node("MatMul", ["b", "w"], ["t"]), node("Add", ["s", "t"])]
    assert parts(nodes, {"a": (8, 16), "b": (8, 16)}, {"w": (16, 8)}) == [{"s", "t", "y"}]


def test_two_chains_of_small_products_are_no_product_of_a_large_weight() -> None:
    """x·W·V + x·U·T is x·(W·V + U·T), which pays where the product of the weights takes no more than the chain."""

    def branches(between: int) -> list[set[str]]:
        nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["b"])]
        nodes += [node("MatMul", ["x", "u"], ["c"]), node("MatMul", ["c", "t"], ["d"]), node("Add", ["b", "d"])]
        weights = {"w": (16, between), "v": (between, 16), "u": (16, between), "t": (between, 16)}
        return parts(nodes, {"x": (32, 16)}, weights)

    assert branches(between=12) == [{"a", "b", "c", "d", "y"}]
    assert branches(between=3) == [{"a"}, {"b"}, {"c"}, {"d", "y"}]


@pytest.mark.parametrize(("taps", "pieces"), [(3, 1), (5, 4)])
def test_two_separable_filters_of_one_plane_are_a_square_one_where_that_has_fewer_taps(taps: int, pieces: int) -> None:
    """Nine taps are fewer than four times three, and 25 are more than four times five."""
    tall, wide = {"pads": [taps // 2, 0, taps // 2, 0]}, {"pads": [0, taps // 2, 0, taps // 2]}
    nodes = [node("Conv", ["x", "w"], ["a"], **tall), node("Conv", ["a", "v"], ["b"], **wide)]
    nodes += [node("Conv", ["x", "u"], ["c"], **wide), node("Conv", ["c", "t"], ["d"], **tall), node("Add", ["b", "d"])]
    shapes: Shapes = {"w": (4, 4, taps, 1), "v": (4, 4, 1, taps), "u": (4, 4, 1, taps), "t": (4, 4, taps, 1)}
    assert len(parts(nodes, {"x": (1, 4, 16, 16)}, shapes)) == pieces


def test_a_product_of_a_concatenation_is_one_piece_with_its_parts() -> None:
    """(x*w | x*v)*u is x*(w*u' + v*u''); what is concatenated along a loop stays apart."""
    beside = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["x", "v"], ["b"])]
    weights: Shapes = {"w": (16, 16), "v": (16, 16), "u": (32, 4)}
    nodes = [*beside, node("Concat", ["a", "b"], ["c"], axis=1), node("MatMul", ["c", "u"])]
    assert parts(nodes, {"x": (8, 16)}, weights) == [{"a", "b", "c", "y"}]
    assert len(parts([*beside, node("Concat", ["a", "b"], axis=1)], {"x": (8, 16)}, weights)) == 2


def test_a_product_of_what_is_repeated_is_one_piece_with_the_copy() -> None:
    """(x | x)*w is x*(w' + w''), and so is x tiled; (x | z)*w takes what it takes."""
    doubled = [node("Concat", ["x", "x"], ["c"], axis=1), node("MatMul", ["c", "w"])]
    assert parts(doubled, {"x": (8, 16)}, {"w": (32, 4)}) == [{"c", "y"}]
    beside = [node("Concat", ["x", "z"], ["c"], axis=1), doubled[1]]
    assert parts(beside, {"x": (8, 16), "z": (8, 16)}, {"w": (32, 4)}) == [{"y"}]


def test_products_before_a_softmax_are_one_piece_with_it() -> None:
    """A softmax reads them twice; they are computed once all the same."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["b"]), node("Softmax", ["b"], ["p"])]
    nodes += [node("MatMul", ["p", "u"], ["c"]), node("MatMul", ["c", "o"])]
    (found,) = parts(nodes, {"x": (64, 128)}, {"w": (128, 64), "v": (64, 32), "u": (32, 64), "o": (64, 128)})
    assert found >= {"a", "b", "c", "y"}


def test_a_mean_of_attention_is_one_piece_with_it() -> None:
    """A mean of the rows of p*v is a mean of p's, times v. The scores, which are read for their maximum and for their sum, too, are computed once."""
    nodes = [
        node("MatMul", ["q", "k"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["o"]),
        node("ReduceMean", ["o"], axes=[0], keepdims=0),
    ]  # fmt: skip
    inputs: Shapes = {"q": (64, 8), "k": (8, 64), "v": (64, 8)}
    assert len(parts(nodes, inputs, {})) == 1


def test_a_long_chain_is_cut_in_pieces_of_a_few() -> None:
    names = ["x", *(f"h{n}" for n in range(19)), "y"]
    nodes = [node("MatMul", [a, f"w{n}"], [b]) for n, (a, b) in enumerate(pairwise(names))]
    found = parts(nodes, {"x": (2, 8)}, {f"w{n}": (8, 64) if n % 2 == 0 else (64, 8) for n in range(20)})
    assert sorted(name for part in found for name in part) == sorted(names[1:])
    assert 3 <= len(found) <= 6 and max(map(len, found)) <= 8


TWO_PRODUCTS = "{L[m<8,n<4] Σ[l<16] {L[m<8,l<16] Σ[k<2] A[m,k]*B[k,l]}[m,l]*C[l,n]}"
SHIFTED = f"L[m<8,n<4] exp({TWO_PRODUCTS}[m,n] + (-1)*{{L[m<8] max[j<4] {TWO_PRODUCTS}[m,j]}}[m])"
"""Two functions of what is computed once."""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("L[m<8,n<4] Σ[l<16] {L[m<8,l<16] Σ[k<2] A[m,k]*B[k,l]}[m,l]*C[l,n]", 2 * 8 * 16 * 2 + 2 * 8 * 4 * 16, 2 * 2 * 16 * 4 + 2 * 8 * 2 * 4),
        ("L[m<8] Σ[l<16] {L[m<8,l<16] Σ[k<2] A[m,k]*B[k,l]}[m,l]", 2 * 8 * 16 * 2 + 8 * 16, 2 * 16 + 2 * 8 * 2),
        ("L[m<8,l<16] relu({L[m<8,l<16] Σ[k<2] A[m,k]*B[k,l]}[m,l])", 2 * 8 * 16 * 2, 2 * 8 * 16 * 2),
        (SHIFTED, 2 * 8 * 16 * 2 + 2 * 8 * 4 * 16 + 8 * 4, 2 * 2 * 16 * 4 + 2 * 8 * 2 * 4 + 8 * 4),
        ("L[m<8,l<16] Σ[j<8] select(m-j==0, A[m,0], 0)*D[j,l]", 2 * 8 * 16 * 8, 2 * 8 * 16),
        ("L[m<8] max[l<16] {L[m<8,l<16] Σ[k<2] A[m,k]*B[k,l]}[m,l]", 2 * 8 * 16 * 2 + 8 * 16, 2 * 8 * 16 * 2 + 8 * 16),
        ("L[m<8,n<4] Σ[l<16] {L[m<8,l<16] select(l+m-8>=0, A[m,0], D[m,l])}[m,l]*W[l,n]", 2 * 8 * 4 * 16, 2 * 8 * 4 * 16),
        ("L[h<4,m<8,n<4] {L[m<8,c<16] Σ[k<8] R[m,k]*V[k,c]}[m,4*h+n]", 2 * 8 * 16 * 8, 2 * 8 * 16 * 8),
        ("L[m<8,n<4] Σ[l<16] A[m,l%2]*W[l,n]", 2 * 8 * 4 * 16, 2 * 8 * 4 * 2),
        ("L[m<8,n<4] Σ[l<16] A[m,l//8]*W[l,n]", 2 * 8 * 4 * 16, 2 * 8 * 4 * 2),
        ("L[m<8,n<4] Σ[l<16] Q[l//4,m,l%4]*W[l,n]", 2 * 8 * 4 * 16, 2 * 8 * 4 * 16),
        ("L[m<8,n<4] Σ[l<16] {L[m<8,l<16] select(l-8>=0, P[m,l-8], P[m,l])}[m,l]*W[l,n]", 2 * 8 * 4 * 16, 2 * 8 * 4 * 8),
        ("L[m<8,n<4] Σ[2<=l<10] {L[m<8,2<=l<10] select(l-8>=0, P[m,l-8], P[m,l])}[m,l]*W[l,n]", 2 * 8 * 4 * 8, 2 * 8 * 4 * 6),
        ("L[m<8,n<4] Σ[l<10] {L[m<8,l<10] select(7-l>=0, P[m,l], P[m,l-8])}[m,l]*W[l,n]", 2 * 8 * 4 * 10, 2 * 8 * 4 * 8),
        ("L[m<8,n<4] Σ[l<16] {L[m<8,l<16] select(l-8>=0, P[m,l-8], R[m,l])}[m,l]*W[l,n]", 2 * 8 * 4 * 16, 2 * 8 * 4 * 16),
        ("L[m<8,n<4] Σ[l<16] {L[m<8,l<16] select(l-8>=0, P[m,l-8], R[m,l])}[m,l]*C[l,n]", 2 * 8 * 4 * 16, 2 * 8 * 4 * 16),
    ],
)  # fmt: skip
def test_what_a_chain_takes_at_best(text: str, before: int, after: int) -> None:
    data = "A : f32[8,2]\nB : f32[2,16]\nC : f32[16,4]\nD : f32[8,16]\nP : f32[8,8]\nQ : f32[4,8,4]\nR : f32[8,8]\n"
    scope = parse(f"{data}W : weight f32[16,4]\nV : weight f32[8,16]\n{text}")
    assert (taken(scope), least(scope)) == (before, after)


def test_remainders_and_nothing_else() -> None:
    """Another multiple of the quotient, the iterator once more, or a multiple of it divided, is no remainder."""
    k, j = var("k"), var("j")
    assert remainders(k % 4) == remainders((k + 1) % 4 * 3 + j) == {"k": 4}
    assert remainders(k % 4 * 2 + j % 6) == {"k": 4, "j": 6}
    for index in (k, k // 4, k - k // 4 * 8, k % 4 + k, k * 3 % 4, k % 4 + k // 2, (k + j) % 4):
        assert not remainders(index), index


def test_an_iterator_stands_by_its_digits_where_one_number_divides_it() -> None:
    """By two numbers there are three digits at least, and no pair of them is the iterator."""
    extents = {"k": 10, "k//4": 3, "k//2": 5}
    whole, high, other = (Factor(frozenset((name,)), False) for name in ("k", "k//4", "k//2"))
    term, sizes = in_digits(Term(frozenset("k"), (whole, high)), extents)
    assert [f.names for f in term.factors] == [{"k//4", "k%4"}, {"k//4"}]
    assert (sizes["k//4"], sizes["k%4"], "k" in sizes) == (3, 4, False)
    several = Term(frozenset("k"), (whole, high, other))
    assert in_digits(several, extents) == (several, extents)


def weights_of(model: onnx.ModelProto) -> list[str]:
    """The expressions of a model, as prepared for the search."""
    return [n.scope.text() for n in prepare(load(model)).expression_nodes()]


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.eye(8), "select(i0-i1==0, 1, 0)"), (np.diag(np.arange(1.0, 9.0)), "select(i0-i1==0, w[i0,i1], 0)"),
        (np.kron(np.eye(4), np.arange(1.0, 5.0).reshape(2, 2)), "select(i0//2-i1//2==0, w[i0,i1], 0)"), (np.ones((8, 8)), "{L[i0<8,i1<8] 1}"),
        (np.tril(np.arange(1.0, 65.0).reshape(8, 8)), "select(i0-i1>=0, w[i0,i1], 0)"),
        (np.outer(np.arange(1.0, 9.0), np.arange(2.0, 10.0)), "w_factor[i0]*w_factor_2[i1]"),
    ],
)  # fmt: skip
def test_structure_is_found_by_value(array: np.ndarray, shown: str) -> None:
    (text,) = weights_of(build([node("MatMul", ["x", "w"])], {"x": values((3, 8))}, ("y",), {"w": array.astype(np.float32)}))
    assert shown in text, text


@pytest.mark.parametrize("spoil", [(0, 5), (7, 7), (3, 4)])
def test_a_single_element_spoils_it(spoil: tuple[int, int]) -> None:
    """What was of one term may be of two then."""
    for array in (np.eye(8), np.ones((8, 8)), np.outer(np.arange(1.0, 9.0), np.arange(2.0, 10.0))):
        array = array.astype(np.float32)
        array[spoil] *= np.float32(1.00001)
        array[spoil] += np.float32(1e-3)
        (text,) = weights_of(build([node("MatMul", ["x", "w"])], {"x": values((3, 8))}, ("y",), {"w": array}))
        beside = "1 + select(i0-i1==0, w_factor[i0,i1], 0)" in text  # what is told of all others
        assert (beside or "w_factor" not in text.partition("Σ[r0<2]")[0]) and " 1}" not in text and ", 1, 0)" not in text, text
        assert "w_factor[i0]" not in text, text


@pytest.mark.parametrize(("low", "last", "masked"), [(-3e38, "p", True), (-1e9, "p", False), (-3e38, "m", False)])
def test_what_exporters_write_for_minus_infinity_is_that_before_a_softmax(low: float, last: str, masked: bool) -> None:
    """Not where the scores are given out, nor for a number that a large score reaches."""
    mask = np.where(np.tri(6) > 0, 0.0, low).astype(np.float32)
    nodes = [node("Add", ["x", "c"], ["m"]), node("Softmax", ["m"], ["p"], axis=-1)]
    texts = weights_of(build(nodes, {"x": values((2, 6, 6))}, tuple({"p", last}), {"c": mask}))
    assert any("-inf" in text for text in texts) == masked, texts


def test_a_row_that_is_masked_throughout_keeps_its_numbers() -> None:
    mask = np.full((6, 6), np.finfo(np.float32).min, dtype=np.float32)
    mask[1:] = 0
    nodes = [node("Add", ["x", "c"], ["m"]), node("Softmax", ["m"], ["p"], axis=-1)]
    assert not any("-inf" in text for text in weights_of(build(nodes, {"x": values((2, 6, 6))}, ("p",), {"c": mask})))


def attention_by_decays(exponent: str) -> list[set[str]]:
    """((c b') * exp(masked exponent of sums p and scores s)) x."""
    held = {"mask": np.tril(np.ones((64, 64), bool)), "least": np.array(-np.inf, np.float32)}
    nodes = [
        node("Unsqueeze", ["p", "last"], ["rows"]), node("Unsqueeze", ["p", "first"], ["columns"]), node("Sub", ["rows", "columns"], ["apart"]),
        node("Add", ["rows", "e"], ["mixed"]),
        node("Where", ["mask", exponent, "least"], ["causal"]), node("Exp", ["causal"], ["decay"]), node("MatMul", ["c", "b"], ["scores"]),
        node("Mul", ["scores", "decay"], ["decayed"]), node("MatMul", ["decayed", "x"]),
    ]  # fmt: skip
    held |= {"last": np.array([1], np.int64), "first": np.array([0], np.int64)}
    inputs = {"p": (64,), "c": (64, 8), "b": (8, 64), "x": (64, 16), "e": (64, 64)}
    model = build(nodes, {name: values(shape) for name, shape in inputs.items()}, ("y",), held)
    return [{n.output.name for n in p.nodes} for p in subprograms(prepare(load(model)))]


def test_a_square_with_decays_that_are_data_is_one_piece() -> None:
    """exp(p[t] - p[s]) where t comes after s is a product of one number of t and one of s: sums over s may pass."""
    (whole,) = attention_by_decays("apart")
    assert {"decay", "scores", "y"} <= whole


def test_an_exponent_that_does_not_separate_is_a_piece_of_its_own() -> None:
    for exponent in ("e", "mixed"):
        assert not any({"decay", "y"} <= piece for piece in attention_by_decays(exponent))


def blocks_then(second: np.ndarray) -> list[set[str]]:
    """A product with eight blocks along a diagonal, then one with these weights."""
    first = np.kron(np.eye(8), np.ones((8, 8))) * values((64, 64), 1)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"])]
    model = build(nodes, {"x": values((4, 64))}, ("y",), {"w": first.astype(np.float32), "v": second.astype(np.float32)})
    return [{n.output.name for n in p.nodes} for p in subprograms(prepare(load(model))) if any(n.scope.sums for n in p.nodes)]


def test_blocks_fold_into_the_same_blocks() -> None:
    """Blocks times blocks are blocks: one product with them takes half of what two take; with a full matrix it would take more than they do."""
    same = np.kron(np.eye(8), np.ones((8, 8))) * values((64, 64), 2)
    assert blocks_then(same) == [{"a", "y"}]
    full = parse("x : f32[4,64]\nW : weight f32[64,64]\nV : weight f32[64,4]\nL[m<4,n<4] Σ[k<64] x[m,k]*V[k,n]")
    assert least(full) == 2 * 4 * 64 * 4


@pytest.mark.parametrize(
    ("ties", "times"),
    [
        ([("ab", 8.0, True), ("bc", 8.0, True)], 64.0),
        ([("ab", 8.0, True), ("bc", 8.0, True), ("ac", 8.0, True)], 64.0),
        ([("ab", 8.0, True), ("bc", 4.0, True), ("ac", 8.0, True)], 64.0),
        ([("ab", 8.0, True), ("cd", 4.0, True)], 32.0),
        ([("ab", 1.5, False), ("bc", 1.5, False), ("ac", 1.5, False)], 3.375),
    ],
)
def test_what_follows_from_other_ties_leaves_no_fewer_points(ties: list[tuple[str, float, bool]], times: float) -> None:
    assert fewer(Tie(frozenset(names), f, equal) for names, f, equal in ties) == times


def test_what_equals_the_same_is_equal() -> None:
    """An order follows from nothing: `a <= b` and `c <= b` say nothing of a and c."""
    ab, bc, cd = (Tie(frozenset(names), f, equal=True) for names, f in (("ab", 8.0), ("bc", 4.0), ("cd", 2.0)))
    assert closed([ab, bc]) == {ab, bc, Tie(frozenset("ac"), 4.0, equal=True)}
    assert {t.names for t in closed([ab, bc, cd])} == {frozenset(p) for p in ("ab", "bc", "cd", "ac", "bd", "ad")}
    order = Tie(frozenset("bc"), 1.5)
    assert closed([ab, order]) == {ab, order}
