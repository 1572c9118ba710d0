"""Program-level passes: each leaves the meaning of a program alone and does what it promises."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from onnx import parser

from einnet.derivation.steps import KINDS, rules_of
from einnet.expr.nodes import INF, Const, Iter, Read, Scope, Select, Tensor, indices, is_weight, make_add, reads, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.constant_folding import evaluate_weights, merge_weights
from einnet.graph.passes.masks import chosen, region
from einnet.graph.passes.simplify import simplify
from einnet.graph.passes.storage_order import channels_last, permute
from einnet.graph.passes.window_reads import composed
from einnet.graph.program import Node, Opaque, Program
from einnet.graph.replace_nodes import Refused, substitute
from einnet.graph.split import Subprogram, is_contraction, pieces, reduces, subprograms
from einnet.search.outcome import canonical
from einnet.search.space import Options, Space
from tests.graph.cases import build, compare, node, run_opaque, values
from tests.graph.networks import BN, network
from tests.models import tiny

SEEDS = (*range(40), 184)


def same(a: Program, b: Program, inputs: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    first, second = interpret(a, inputs, run_opaque), interpret(b, inputs, run_opaque)
    assert list(first) == list(second)
    for name, want in first.items():
        assert second[name].shape == want.shape
        np.testing.assert_allclose(second[name], want, rtol=tolerance, atol=tolerance * float(np.abs(want).max(initial=1)))


def texts(program: Program) -> list[str]:
    return [n.scope.text() for n in program.expression_nodes()]


@pytest.mark.parametrize(
    "body",
    ["v[j,i]", "v[i,j]*w[j]", "v[i,j]+w[j]", "v[i,j]/w[j]", "1/10*v[i,j]", "v[i,j]/2", "v[i,j]*w[j]+w[j]", "v[i,j]*w[j]*w[i]", "v[i,j]+w[j]+w[i]"],
)
def test_weights_are_computed_as_in_float64_and_rounded_once(body: str) -> None:
    """Of any numbers of float32: large ones, tiny ones that are not normal, and of either sign."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 1 << 32, 201 * 200, dtype=np.uint64).astype(np.uint32).view(np.float32)
    drawn = np.where(np.isfinite(drawn), drawn, np.float32(1.5)) * np.where(np.arange(drawn.size) % 2, 1, np.float32(1e-20))
    held = {"v": drawn[:40000].reshape(200, 200).astype(np.float32), "w": drawn[40000:].astype(np.float32)}
    scope = parse(f"v : weight f32[200,200]\nw : weight f32[200]\nL[i<200,j<200] {body}")
    program = Program((), (Node(Tensor("y", (200, 200)), scope, "y"),), (("y", "y"),), held)
    found = evaluate_weights(program).weights["y"]
    with np.errstate(over="ignore"):
        wanted = evaluate(scope, held, "float64").astype(np.float32)
    assert found.dtype == np.float32 and found.tobytes() == wanted.tobytes()


def valid(program: Program) -> None:
    """Producers come first, every tensor is declared once and alike, weights have the shapes that are read."""
    known = {t.name: t for t in program.inputs} | {k: Tensor(k, v.shape, "f32", True) for k, v in program.weights.items() if v.dtype == np.float32}
    for n in program.nodes:
        for t in tensors(n.scope).values() if isinstance(n, Node) else ():
            assert known[t.name] == t
        assert all(name in known or name in program.weights for name in n.inputs)
        for t in n.outputs:
            assert t.name not in known
            known[t.name] = t
    assert all(name in known or name in program.weights for _, name in program.outputs)


@pytest.mark.parametrize("seed", SEEDS)
def test_simplify_split_and_permute_keep_the_meaning(seed: int) -> None:
    model, inputs = network(seed)
    program = load(model)
    valid(program)
    compare(program, model, inputs, 1e-4)
    simple = simplify(program)
    valid(simple)
    same(program, simple, inputs)
    assert texts(simplify(simple)) == texts(simple)
    joined = replace(simple, nodes=tuple(Node(p.output, p.expression) if isinstance(p, Subprogram) else p for p in pieces(simple)))
    valid(joined)
    same(simple, joined, inputs)
    rng = np.random.default_rng(seed)
    order = {name: tuple(map(int, rng.permutation(len(t.shape)))) for name, t in simple.tensors().items() if rng.random() < 0.7}
    for wanted in (order, channels_last(simple)):
        moved = permute(simple, wanted)
        valid(moved)
        same(simple, moved, inputs)
        assert moved.inputs == simple.inputs
        assert moved.outputs == simple.outputs


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_are_a_partition_without_leaks(seed: int) -> None:
    program = simplify(load(network(seed)[0]))
    found = pieces(program)
    nodes = [n for p in found for n in (p.nodes if isinstance(p, Subprogram) else (p,))]
    assert len(nodes) == len(program.nodes)
    assert {id(n) for n in nodes} == {id(n) for n in program.nodes}
    users = program.users()
    for piece in subprograms(program):
        interior = {n.output.name for n in piece.nodes[:-1]}
        assert not interior & {name for _, name in program.outputs}
        assert all(any(user is n for n in piece.nodes) for name in interior for user in users[name])
        assert not interior & set(piece.inputs)
        assert sum(is_contraction(n.scope) for n in piece.nodes) <= 1 or any(map(reduces, piece.nodes))


def conv_bn(features: int = 4, group: int = 1, kind: str = "Conv") -> tuple[Program, Program, dict[str, np.ndarray]]:
    held = {n: values((features,), k, 0.5, 1.5) for k, n in enumerate(BN)}
    held["w"] = values((features, 4 // group, 3, 3) if kind == "Conv" else (4, features // group, 3, 3), 9)
    held["c"] = values((features,), 8)
    nodes = [node(kind, ["x", "w", "c"], ["a"], group=group), node("BatchNormalization", ["a", *BN], ["b"]), node("Relu", ["b"])]
    inputs = {"x": values((1, 4, 5, 5))}
    program = load(build(nodes, inputs, ("y",), held))
    return program, simplify(program), inputs


@pytest.mark.parametrize(("group", "kind"), [(1, "Conv"), (2, "Conv"), (4, "Conv"), (1, "ConvTranspose")])
def test_batch_normalization_folds_into_weights(group: int, kind: str) -> None:
    program, simple, inputs = conv_bn(4, group, kind)
    assert len(simple.nodes) == 3
    conv, bias, _ = simple.expression_nodes()
    assert "w_scaled[" in conv.scope.text()
    assert bias.scope.text().endswith("] a_conv[n,c,h,w] + b_const[c]")
    assert set(simple.weights) == {"w_scaled", "b_const"}
    same(program, simple, inputs)


def test_scale_of_a_value_with_other_users_is_not_folded() -> None:
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Mul", ["a", "k"], ["b"]), node("Add", ["a", "b"])]
    held = {"w": values((4, 3, 3, 3)), "k": values((4, 1, 1), 1)}
    inputs = {"x": values((1, 3, 5, 5))}
    program = load(build(nodes, inputs, ("y",), held))
    simple = simplify(program)
    assert len(simple.nodes) == 3
    assert "w" in simple.weights
    same(program, simple, inputs)


@pytest.mark.parametrize(("scale", "folded"), [((), True), ((1, 3, 1, 1), True), ((3, 1, 1), True), ((1, 1, 1, 5), False)])
def test_a_scale_before_a_convolution_folds_into_its_weights(scale: tuple[int, ...], folded: bool) -> None:
    """The convolution reads data as it was, whoever else reads it scaled."""
    nodes = [node("Mul", ["x", "k"], ["d"]), node("Conv", ["d", "w"], ["a"], pads=[1, 1, 1, 1]), node("Add", ["a", "d"])]
    held = {"w": values((3, 3, 3, 3)), "k": values(scale, 1)}
    inputs = {"x": values((1, 3, 5, 5))}
    program = load(build(nodes, inputs, ("y",), held))
    simple = simplify(program)
    conv = next(n for n in simple.expression_nodes() if n.output.name.startswith("a"))
    assert ("x[n," in conv.scope.text()) == folded
    same(program, simple, inputs)


@pytest.mark.parametrize(("operator", "times", "folded"), [("Add", 2, True), ("Sum", 3, True), ("Sub", 2, False)])
def test_a_tensor_added_to_itself_is_a_scale(operator: str, times: int, folded: bool) -> None:
    """What is taken from itself is no scale: what is left of that is told elsewhere."""
    nodes = [node(operator, ["x"] * times, ["d"]), node("MatMul", ["d", "w"])]
    inputs = {"x": values((3, 8))}
    program = load(build(nodes, inputs, ("y",), {"w": values((8, 4))}))
    simple = simplify(program)
    assert (len(simple.nodes) == 1) == folded
    same(program, simple, inputs)


def test_scale_along_a_position_is_not_folded() -> None:
    held = {"w": values((4, 3, 3, 3)), "k": values((3,), 1)}
    inputs = {"x": values((1, 3, 5, 5))}
    program = load(build([node("Conv", ["x", "w"], ["a"]), node("Mul", ["a", "k"])], inputs, ("y",), held))
    assert texts(simplify(program)) == texts(program)


def test_repeated_expressions_and_equal_weights_are_held_once() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["x", "v"], ["b"]), node("Exp", ["a"], ["c"]), node("Exp", ["b"], ["d"])]
    inputs = {"x": values((2, 3))}
    program = load(build([*nodes, node("Add", ["c", "d"])], inputs, ("y",), {"w": values((3, 4)), "v": values((3, 4))}))
    simple = simplify(program)
    assert len(simple.nodes) == 3
    assert len(simple.weights) == 1
    same(program, simple, inputs)


def test_weights_that_differ_in_one_element_anywhere_are_two() -> None:
    one = np.arange(35 * 40, dtype=np.float32).reshape(40, 35).T
    for place in range(one.size):
        other = one.copy()
        other.flat[place] += 1
        w, v, u = (Tensor(name, one.shape, "f32", True) for name in "WVU")
        x = Tensor("X", one.shape)
        loops = (Iter("i", 0, 35), Iter("j", 0, 40))
        body = make_add([Read(t, indices(loops)) for t in (x, w, v, u)])
        program = Program((x,), (Node(Tensor("Y", one.shape), Scope(loops, (), body), ("n",)),), (("Y", "Y"),), {"W": one, "V": other, "U": one + 0})
        (merged,) = merge_weights(program).nodes
        assert merged.inputs == ("X", "W", "V"), place


DISTANCES = '''<ir_version: 8, opset_import: ["": 17]> m (float[9,1,4] x) => (float[9,5] y)
  <float[5,4] c = {CODES}, float[4] v = {1, 2, 3, 4}, int64[1] last = {-1}> {
    e = Sub (x, c) d = SCALED q = Mul (d, d) y = ReduceSum <keepdims = 0> (q, last) }'''.replace("CODES", ", ".join(f"{n}.5" for n in range(20)))
BIASED = '''<ir_version: 8, opset_import: ["": 17]> m (float[9,2] x) => (float[9,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 2}> {
  p = MatMul (x, w) d = Sub (p, b) y = Relu (d) }'''


@pytest.mark.parametrize("scaled", ["Identity (e)", "Div (e, v)", "Mul (e, v)"])
def test_what_is_taken_away_is_told_from_what_is_added_but_at_the_end_of_a_product(scaled: str) -> None:
    """The square of a difference from constants is not opened by default: where they are near, what it is opened to is all rounding."""
    (part,) = subprograms(simplify(load(parser.parse_model(DISTANCES.replace("SCALED", scaled)))))

    def opened(*kinds: str) -> bool:
        forms = Space(Options(max_depth=6, kinds=kinds)).forms(canonical(part.expression))
        return any("distribute" in rules_of(f.steps) for f in forms)

    assert opened(*KINDS) and not opened(*KINDS[:2])
    assert not [t for t in texts(simplify(load(parser.parse_model(BIASED)))) if "(-1)" in t], "libraries add a weight to a product"


def test_interpolation_tables_are_not_multiplied_out() -> None:
    held = {"k": np.array([1, 1, 2, 2], np.float32)}
    simple = simplify(load(build([node("Resize", ["x", "", "k"], mode="linear")], {"x": values((1, 2, 4, 4))}, ("y",), held)))
    assert [v.shape for v in simple.weights.values()] == [(8, 2)]  # both axes share one table


def test_tails_join_the_contraction_and_softmax_is_one_piece() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["c"]), node("Transpose", ["c"], ["d"], perm=[1, 0]),
        node("Relu", ["d"], ["e"]), node("Softmax", ["e"]),
    ]  # fmt: skip
    program = simplify(load(build(nodes, {"x": values((2, 3))}, ("y",), {"w": values((3, 4)), "b": values((4,))})))
    first, second = subprograms(program)
    assert [n.output.name for n in first.nodes] == ["a", "c", "d", "e"]
    assert first.inputs == ("x", "w", "b")
    assert len(second.nodes) == 4
    assert second.inputs == ("e",)


def test_a_residual_joins_the_later_of_two_contractions() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["z", "v"], ["b"]), node("Add", ["a", "b"])]
    program = simplify(load(build(nodes, {"x": values((2, 3)), "z": values((2, 3))}, ("y",), {"w": values((3, 4)), "v": values((3, 4), 1)})))
    assert [[n.output.name for n in p.nodes] for p in subprograms(program)] == [["a"], ["b", "y"]]


def test_keys_forget_names_and_nothing_else() -> None:
    def key(x: str, w: str, features: int) -> str:
        held = {w: values((features, 3, 3, 3))}
        (piece,) = subprograms(load(build([node("Conv", [x, w])], {x: values((1, 3, 5, 5))}, ("y",), held)))
        return piece.key

    assert key("x", "w", 4) == key("image", "kernel", 4)
    assert key("x", "w", 4) != key("x", "w", 5)


def chain() -> Program:
    nodes = [node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["c"]), node("Add", ["c", "x"])]
    return load(build(nodes, {"x": values((2, 3))}))


def step(text: str, name: str, *known: Tensor) -> Node:
    scope = parse(text, {t.name: t for t in known})
    return Node(Tensor(name, scope.shape), scope)


def test_substitute() -> None:
    program = chain()
    relu, exp, neg, _ = program.expression_nodes()
    x, a = Tensor("x", (2, 3)), Tensor("a", (2, 3))
    fused = step("L[m<2,n<3] -exp(relu(x[m,n]))", "c", x)
    result = substitute(program, [relu, exp, neg], [fused])
    assert isinstance(result, Program)
    valid(result)
    same(program, result, {"x": values((2, 3))})
    refusals = [
        ([relu], [], "a is used outside and no longer computed"),
        ([relu, exp], [step("L[m<2,n<3] exp(relu(x[m,n]))", "q", x)], "b is used outside"),
        ([relu], [step("L[m<2] x[m,0]", "a", x)], r"a changes from f32\[2, 3\] to f32\[2\]"),
        ([exp], [step("L[m<2,n<3] exp(z[m,n])", "b", Tensor("z", (2, 3)))], "z is not computed by any node"),
        ([relu], [step("L[m<2,n<3] c[m,n]", "a", Tensor("c", (2, 3)))], "depends on its own result"),
        ([exp], [step("L[m<2,n<3] exp(a[m,n])", "b", a), step("L[m<2,n<3] a[m,n]", "c", a)], "c is computed elsewhere"),
        ([replace(relu, origin=("other",))], [], "not in the program"),
    ]
    for old, new, why in refusals:
        refused = substitute(program, old, new)
        assert isinstance(refused, Refused)
        assert re.search(why, refused.why), refused.why


def test_substitute_moves_nodes_behind_what_they_read() -> None:
    program = chain()
    relu = next(program.expression_nodes())
    c = Tensor("c", (2, 3))
    late = step("L[m<2,n<3] c[m,n] + 1", "z", c)
    result = substitute(program, [relu], [late, relu])
    assert isinstance(result, Program)
    valid(result)
    assert [n.outputs[0].name for n in result.nodes] == ["a", "b", "c", "z", "y"]


def test_channels_last_of_a_convolution_net() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]), node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2]),
        node("GlobalAveragePool", ["c"], ["d"]), node("Flatten", ["d"], ["e"]), node("MatMul", ["e", "v"]),
    ]  # fmt: skip
    held = {"w": values((5, 3, 3, 3)), "v": values((5, 2))}
    program = simplify(load(build(nodes, {"x": values((1, 3, 6, 6))}, ("y",), held)))
    order = channels_last(program)
    assert set(order) == {"x", "a", "b", "c", "d", "d_reduced"}
    assert set(order.values()) == {(0, 2, 3, 1)}
    moved = permute(program, order)
    assert len(moved.nodes) == len(program.nodes) + 1
    assert texts(moved)[0] == "L[n<1,h<6,w<6,c<3] x[n,c,h,w]"
    assert texts(moved)[1] == "L[n<1,h<6,w<6,f<5] Σ[c<3,r<3,s<3] x_permuted[n,h+r-1,w+s-1,c]*w[f,c,r,s]"


def test_a_convolution_of_each_channel_alone_is_copied_into_no_order() -> None:
    """Beside another convolution it has that one's order, and from a product whose rows are the channels' places the order in which they come."""
    alone = [node("Conv", ["x", "k"], ["a"], group=3, pads=[1, 1, 1, 1]), node("Relu", ["a"], ["y"])]
    image = {"x": values((1, 3, 6, 6))}
    own = {"k": values((3, 1, 3, 3))}
    assert channels_last(simplify(load(build(alone, image, ("y",), own)))) == {}
    before = [node("Conv", ["x", "w"], ["b"]), node("Conv", ["b", "k"], ["y"], group=3, pads=[1, 1, 1, 1])]
    beside = channels_last(simplify(load(build(before, {"x": values((1, 4, 6, 6))}, ("y",), {**own, "w": values((3, 4, 1, 1))}))))
    assert beside == dict.fromkeys(("x", "b", "y"), (0, 2, 3, 1))
    sequence = [
        node("MatMul", ["x", "v"], ["b"]), node("Transpose", ["b"], ["c"], perm=[0, 2, 1]), node("Conv", ["c", "l"], ["d"], group=3, pads=[2, 0]),
        node("Transpose", ["d"], ["e"], perm=[0, 2, 1]), node("MatMul", ["e", "v"], ["y"]),
    ]  # fmt: skip
    held = {"v": values((3, 3)), "l": values((3, 1, 3))}
    order = channels_last(simplify(load(build(sequence, {"x": values((1, 8, 3))}, ("y",), held))))
    assert {name: order.get(name) for name in "xbcdey"} == {**dict.fromkeys("xbey"), "c": (0, 2, 1), "d": (0, 2, 1)}


def test_an_order_that_moves_nothing_is_none() -> None:
    """Of a tensor with one position the channels lie as they lay: no copy brings them there."""
    program = load(build([node("ConvTranspose", ["x", "w"])], {"x": values((2, 3, 1, 1))}, ("y",), {"w": values((3, 4, 2, 2))}))
    order = channels_last(program)
    assert order["x"] == (0, 2, 3, 1)
    moved = permute(program, order)
    valid(moved)
    same(program, moved, {"x": values((2, 3, 1, 1))})
    assert not any(text.endswith("x[n,c,h,w]") for text in texts(moved)), "no copy of x"
    assert any("x_permuted" in text for text in texts(permute(program, {"x": (1, 0, 2, 3)})))


def test_matrix_products_want_no_order() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["t", "a"])]
    assert channels_last(load(build(nodes, {"x": values((2, 2, 4, 3))}, ("y",), {"w": values((3, 5))}))) == {}


def test_permuted_weights_and_opaque_operands() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("TopK", ["a", "k"], ["b", "i"]), node("Add", ["b", "a"])]
    inputs = {"x": values((2, 3))}
    program = load(build(nodes, inputs, ("y",), {"w": values((3, 4)), "k": np.array([4], np.int64)}))
    moved = permute(program, dict.fromkeys(("x", "w", "a", "b", "y"), (1, 0)))
    valid(moved)
    assert moved.weights["w"].shape == (4, 3)
    assert [type(n) for n in moved.nodes].count(Opaque) == 1
    same(program, moved, inputs)


def test_weight_only_nodes_are_evaluated() -> None:
    nodes = [node("Expand", ["w", "s"], ["e"]), node("Exp", ["e"], ["f"]), node("Add", ["x", "f"])]
    program = load(build(nodes, {"x": values((2, 3))}, ("y",), {"w": values((3,)), "s": np.array([2, 3], np.int64)}))
    simple = simplify(program)
    (only,) = simple.expression_nodes()
    assert not is_weight(only.scope)
    assert len(simple.weights) == 1


@pytest.mark.parametrize("name", ["longformer", "longformer_masked"])
def test_attention_is_one_piece_and_no_band_is_gathered(name: str) -> None:
    program = simplify(load(tiny(name)))
    attention = [p for p in subprograms(program) if "exp(" in p.expression.text()]
    assert len(attention) == 1
    assert sum(is_contraction(n.scope) for n in attention[0].nodes) == 2
    sources = [r for n in program.expression_nodes() if is_contraction(n.scope) for r in reads(n.scope.body) if isinstance(r.base, Tensor)]
    largest = max(prod(n.scope.shape) for n in program.expression_nodes() if is_contraction(n.scope))
    assert all(prod(r.base.shape) <= largest for r in sources)


def test_readers_of_a_window_read_what_it_copies() -> None:
    declared = "A : f32[9,3]\nB : f32[9,3]\n"
    window, pads = parse(declared + "L[m<9,w<5,k<3] A[m+w-2,k]"), parse(declared + "L[m<9,w<5,k<3] A[m+w-2,k]|1")
    small, far = parse(declared + "L[m<4,w<1,k<3] A[m+w,k]"), parse(declared + "L[m<9,w<5,k<3] A[(m+w)//2,k]")
    reader = "W : f32[{}]\n" + declared + "L[m<{},w<{}] Σ[k<3] W[m,{},k]*B[m,k]"
    plain = parse(reader.format("9,5,3", 9, 5, "w"))
    assert composed(plain, {"W": window}).text() == "L[m<9,w<5] Σ[k<3] A[m+w-2,k]*B[m,k]"
    assert composed(plain, {"W": pads}).text() == "L[m<9,w<5] Σ[k<3] A[m+w-2,k]|1*B[m,k]"
    assert composed(plain, {"W": far}) == plain, "a floor would remain"
    outside = parse(reader.format("9,5,3", 9, 6, "w"))
    assert composed(outside, {"W": window}) == outside, "the window is read beyond its box"
    inner = parse(reader.format("4,1,3", 4, 1, "w"))
    assert composed(inner, {"W": small}) == inner, "the copy is smaller than what it copies"


def mask(hits: np.ndarray, inside: float = 0.0, outside: float = -np.inf) -> np.ndarray:
    return np.where(hits, inside, outside).astype(np.float32)


def test_masks_become_choices_that_agree_in_every_element() -> None:
    rows, columns = np.indices((9, 9))
    dilated = (abs(columns - rows) <= 4) & ((columns - rows) % 2 == 0)
    for hits in (dilated, columns <= rows, (rows < 3) & (columns > 4)):
        found = region(mask(hits, 1.5))
        assert found is not None
        conds, inside, outside = found
        loops = (Iter("i0", 0, 9), Iter("i1", 0, 9))
        assert (inside, outside) == (Const(Fraction(3, 2)), Const(-INF))
        chosen = Scope(loops, (), Select(conds, Const(Fraction(1)), Const(Fraction(0))))
        assert np.array_equal(evaluate(chosen, {}, "float64") == 1, hits)


@pytest.mark.parametrize(
    "values",
    [
        mask(np.eye(9) > 0, 0, -1e9), mask(np.random.default_rng(0).random((9, 9)) < 0.5), np.zeros((9, 9), np.float32), np.full((9, 9), np.nan),
        np.where(np.eye(9) > 0, -np.inf, np.arange(9.0)), np.where(np.eye(9) > 0, np.inf, mask(np.tri(9) > 0)),
    ],
    ids=["finite", "no structure", "one value", "nan", "many values", "two infinities"],
)  # fmt: skip
def test_other_arrays_are_no_masks(values: np.ndarray) -> None:
    assert region(values) is None


def test_only_masks_read_whole_are_replaced() -> None:
    declared = "A : f32[9,9]\nM : weight f32[9,9]\n"
    weights = {"M": mask(np.tri(9) > 0)}
    assert "select(m-n>=0, 0, -inf)" in chosen(parse(declared + "L[m<9,n<9] A[m,n] + M[m,n]"), weights, {}).text()
    for body in ("A[m,n] + M[m,m]", "A[m,n] + M[m,n+1]", "A[m,n] + M[m,3]"):
        scope = parse(f"{declared}L[m<9,n<9] {body}")
        assert chosen(scope, weights, {}) == scope
