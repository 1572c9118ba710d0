"""Plans lifted to expressions: every candidate that a search draws is proven to be the model; changed kernels are not."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import inf
from operator import mul

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.drawn import forced, forms
from benchmarks.models import MODELS
from einnet.evidence.buffers.addresses import address, digits, element, ranges_of, refined, unfolded
from einnet.evidence.buffers.contents import Contents
from einnet.evidence.examine import Proven, proven, told_constants, told_lifting
from einnet.evidence.lift import BEFORE
from einnet.expr.index import value, var
from einnet.expr.nodes import Cond, Read, Scope, Tensor, indices, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.instantiate.build import builds
from einnet.instantiate.epilogue_kernels import keeping_nan
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, NotLifted, Plan, Post, View, dense_view, loops_of
from einnet.instantiate.kernels.kernel import post_json, read_posts
from einnet.instantiate.posts_apart import apart
from einnet.search.choosing.candidate import OUT
from einnet.search.forms import Form
from einnet.search.outcome import canonical
from einnet.search.plan import Assembly
from tests.models import tiny, two_outputs, with_opaque

SOME = ("fsrcnn", "transformer")


def evidence(program: Program, plan: Plan, forms: list[Form]) -> Proven:
    return proven(program, plan, [f.derivation for f in forms if f.steps])


def problems(program: Program, plan: Plan, forms: list[Form]) -> list[str]:
    found = evidence(program, plan, forms)
    return told_lifting(program, found)["problems"] + told_constants(found.constants)["problems"]


def check(model: object, seed: int) -> None:
    program, plan, forms = forced(model, seed, states=120)
    found = evidence(program, plan, forms)
    told = told_lifting(program, found)
    assert told["problems"] == [] and found.constants.problems == []
    assert told["proven"] + told["by_derivation"] == told["subprograms"] > 0


@pytest.mark.parametrize("name", SOME)
def test_drawn_candidates_are_proven(name: str) -> None:
    check(tiny(name), 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_drawn_candidates_of_every_model_are_proven(name: str, seed: int) -> None:
    check(tiny(name), seed)


def test_a_node_in_onnx_runtime_is_a_node_of_the_model() -> None:
    program, plan, forms = forced(with_opaque(), 0)
    assert problems(program, plan, forms) == []
    calls = [k for k in plan.kernels if not isinstance(k, (EOperator, Matmul, Conv))]
    assert calls
    other = tuple(replace(k, model=k.model + b" ") if k in calls else k for k in plan.kernels)
    assert any("does not have" in p for p in problems(program, replace(plan, kernels=other), forms))


def with_kernel(plan: Plan, place: int, kernel: Kernel) -> Plan:
    return replace(plan, kernels=(*plan.kernels[:place], kernel, *plan.kernels[place + 1 :]))


def test_parts_of_an_input_that_are_read_where_they_lie() -> None:
    """Halves of an input, each of which is summed up in two ways: what is proven of a sum is of the half, as a derivation is."""
    from onnx import TensorProto, helper, numpy_helper

    axes = {"outer": [0, 2], "all": [0, 1, 2]}
    weights = [numpy_helper.from_array(np.array(a, np.int64), name) for name, a in axes.items()]
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2)]
    nodes += [helper.make_node("ReduceSumSquare", [half, name], [f"{half}_{name}"], keepdims=0) for half in "ab" for name in axes]
    ends = [[helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 5, 6))]]
    ends += [[helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, None) for n in nodes[1:]]]
    model = helper.make_model(helper.make_graph(nodes, "halves", *ends, weights), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    program, plan, forms = forced(model, 0)
    places = {"a": View("x", (2, 5, 6), (30, 6, 1)), "b": View("x", (2, 5, 6), (30, 6, 1), 60)}

    def there(view: View) -> View:
        return replace(view, buffer="x", offset=view.offset + places[view.buffer].offset) if view.buffer in places else view

    kernels = tuple(k.map_views(there) for k in plan.kernels if not places.keys() & {v.buffer for v in k.result_views})
    buffers = tuple(b for b in plan.buffers if b.name not in places)
    found = evidence(program, replace(plan, kernels=kernels, buffers=buffers, places=places), forms)
    assert told_lifting(program, found)["problems"] == []
    halves = [x for x in found.lifting.found.values() if x.last == BEFORE]
    assert [x.output for x in halves] == ["a", "b"]
    assert all(any(x.output in y.aliases for y in found.lifting.computed()) for x in halves)


def test_what_onnx_runtime_gives_out_is_itself_also_where_it_is_read_turned() -> None:
    """A result of an opaque node is an output, and is read with its axes exchanged where it lies: both names are of what is there."""
    from onnx import TensorProto, helper, numpy_helper

    axes = {"outer": [0, 2], "all": [0, 1, 2]}
    weights = [numpy_helper.from_array(np.array(a, np.int64), name) for name, a in axes.items()]
    nodes = [helper.make_node("LpNormalization", ["x"], ["y"], axis=0), helper.make_node("Transpose", ["y"], ["t"], perm=[0, 2, 1])]
    nodes += [helper.make_node("ReduceMax", ["t", name], [f"t_{name}"], keepdims=0) for name in axes]
    ends = [[helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 5, 6))]]
    ends += [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "t_outer", "t_all")]]
    model = helper.make_model(helper.make_graph(nodes, "turned", *ends, weights), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    program, plan, forms = forced(model, 0)
    turned = View("y", (4, 6, 5), (30, 1, 6))

    def there(view: View) -> View:
        assert view.buffer != "t" or view == dense_view("t", turned.shape)
        return turned if view.buffer == "t" else view

    kernels = tuple(k.map_views(there) for k in plan.kernels if all(v.buffer != "t" for v in k.result_views))
    assert kernels != plan.kernels
    shared = replace(plan, kernels=kernels, buffers=tuple(b for b in plan.buffers if b.name != "t"), places={"t": turned})
    assert problems(program, shared, forms) == []
    wrong = replace(shared, places={"t": View("y", (4, 6, 5), (30, 5, 1))})
    assert problems(program, wrong, forms) != []


def test_a_clip_that_is_taken_out_of_the_plan_is_missed() -> None:
    from onnx import helper

    from benchmarks.models.net import Net

    net = Net("clipped", 0)
    x = net.gemm(net.input("x", (4, 16)), "product", 8)
    model = net.finish(x)
    model.graph.node[-1].output[0] = "inner"
    low, high = (helper.make_node("Constant", [], [n], value_float=v) for n, v in (("low", 0.0), ("high", 6.0)))
    model.graph.node.extend([low, high, helper.make_node("Clip", ["inner", "low", "high"], [model.graph.output[0].name])])
    program, plan, forms = forced(model, 0)
    assert problems(program, plan, forms) == []
    cut = 0
    for n, kernel in enumerate(plan.kernels):
        if isinstance(kernel, (Matmul, Conv)) and any(p.kind == "clip" for p in kernel.post):
            cut += 1
            less = replace(kernel, post=tuple(p for p in kernel.post if p.kind != "clip"))
            assert problems(program, with_kernel(plan, n, less), forms)
            wider = replace(kernel, post=tuple(replace(p, beta=7.0) if p.kind == "clip" else p for p in kernel.post))
            assert problems(program, with_kernel(plan, n, wider), forms)
        if isinstance(kernel, EOperator) and "min(" in kernel.scope.text():
            cut += 1
            scope = kernel.scope
            call = scope.body
            less = replace(kernel, scope=Scope(scope.loops, scope.sums, call.args[0], scope.reduce))  # type: ignore[union-attr]
            assert problems(program, with_kernel(plan, n, less), forms)
    assert cut


@pytest.mark.parametrize("name", ["two_outputs", pytest.param("fsrcnn", marks=pytest.mark.slow)])
def test_derivations_must_be_there_and_end_where_the_plan_does(name: str) -> None:
    program, plan, forms = forced(two_outputs() if name == "two_outputs" else tiny(name), 1)
    derived = [f for f in forms if any(s.kind == "precision" for s in f.steps) or any(s.rule in ("bilinear", "sum-split", "divide") for s in f.steps)]
    assert derived
    assert problems(program, plan, forms) == []
    regrouping = 0
    for form in derived:
        others = [f for f in forms if f is not form]
        without = evidence(program, plan, others)
        regrouping += any("no derivation says how" in v.problem for v in without.verdicts)
        for end in range(1, len(form.steps), 7):
            shorter = replace(form, steps=form.steps[:end])
            cut = evidence(program, plan, [*others, shorter])
            assert all(not v.problem or "where its derivation ends" in v.problem for v in cut.verdicts)
    assert regrouping


@pytest.mark.parametrize("seed", range(3))
def test_views_of_views(seed: int) -> None:
    """What a buffer shows through a view is what numpy says, whatever was written through other views before."""
    generator = np.random.default_rng(seed)
    contents, memory, arrays = Contents({"b": 64}), np.zeros(64), {}
    views = [
        dense_view("b", (64,)), View("b", (4, 8), (16, 1)), View("b", (8, 2), (4, 2), 1), View("b", (2, 3, 5), (32, 8, 1), 3),
        View("b", (4,), (8,), 16), View("b", (4, 4, 4), (1, 16, 4)),
    ]  # fmt: skip
    for n in range(4):
        view = views[0] if n == 0 else views[int(generator.integers(len(views)))]
        name = f"t{n}"
        arrays[name] = generator.integers(1, 100, view.shape).astype(np.float64)
        contents.write(view, Tensor(name, view.shape))
        np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, [8 * s for s in view.strides])[...] = arrays[name]
        for shown in views:
            found = contents.read(shown)
            scope = found if isinstance(found, Scope) else Scope(loops_of(found.shape), (), Read(found, indices(loops_of(found.shape))))
            wanted = np.lib.stride_tricks.as_strided(memory[shown.offset :], shown.shape, [8 * s for s in shown.strides])
            np.testing.assert_array_equal(evaluate(scope, arrays), wanted)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("view", [View("b", (4, 2), (3, 1)), View("b", (3,), (1,), 6), View("b", (2,), (-1,), 0), View("b", (8,), (1,), -1)])
def test_a_view_that_leaves_its_buffer_shows_nothing(view: View, apart: bool) -> None:
    """Neither the memory behind it, as an artifact that was changed would have it, is read or written."""
    contents = Contents({"b": 8})
    contents.write(View("b", (4,), (2,)) if apart else dense_view("b", (8,)), Tensor("t", (4,) if apart else (8,)))
    for use in (contents.read, contents.owners, lambda v: contents.write(v, Tensor("u", v.shape)), lambda v: contents.borders(v, 0)):
        with pytest.raises(NotLifted, match="leaves its buffer of 8 elements"):
            use(view)


def test_names_of_what_a_buffer_holds() -> None:
    """A tensor, its second half, and both once more under another name; what is read is told by the name of just that view."""
    whole, half = View("b", (4, 2), (2, 1)), View("b", (2, 2), (2, 1), 4)
    contents = Contents({"b": 8})
    kernel, first, second, same = (Tensor(n, v.shape) for n, v in (("kernel", whole), ("first", whole), ("second", half), ("same", whole)))
    contents.write(whole, kernel)
    assert contents.read(whole) == kernel and not contents.is_named(whole)
    contents.name(whole, first)
    assert contents.read(whole) == first and contents.is_named(half)
    contents.name(half, second, alias=True)
    contents.name(whole, same, alias=True)
    assert contents.read(whole) == first, "an alias is no name to read by"
    assert contents.shows(whole, same) and contents.shows(half, second) and not contents.shows(half, first)
    contents.write(View("b", (1,), (1,), 7), Tensor("other", (1,)))
    assert not contents.shows(whole, first) and not contents.shows(whole, same) and not contents.shows(half, second)
    assert contents.shows(View("b", (2, 2), (2, 1)), Tensor("none", (2, 2))) is False


def test_what_is_copied_is_moved_and_what_is_computed_is_not() -> None:
    halves, whole = [View("b", (4,), (1,), 4 * n) for n in range(2)], View("b", (8,), (1,))
    contents = Contents({"b": 8})
    contents.write(halves[0], parse("A : f32[6]\nL[i<4] A[i+2]"))
    assert contents.is_moved(halves[0]) and not contents.is_moved(whole)
    contents.write(halves[1], parse("A : f32[6]\nL[i<4] A[i] + A[i+1]"))
    assert contents.is_moved(halves[0]) and not contents.is_moved(whole)
    contents.write(halves[1], parse("A : f32[6]\nL[i<4] A[3-i]"))
    assert contents.is_moved(whole) and not contents.is_named(whole)


def test_parts_that_become_one_tensor_keep_their_names() -> None:
    parts, whole = [View("b", (2, 2), (2, 1), 4 * n) for n in range(2)], View("b", (4, 2), (2, 1))
    contents = Contents({"b": 8})
    for n, view in enumerate(parts):
        contents.write(view, Tensor(f"kernel{n}", view.shape))
        contents.name(view, Tensor(f"part{n}", view.shape))
    assert contents.is_moved(whole) and not contents.is_named(whole)
    contents.name(whole, Tensor("whole", whole.shape))
    assert contents.read(whole) == Tensor("whole", whole.shape)
    assert [contents.read(view) for view in parts] == [Tensor(f"part{n}", view.shape) for n, view in enumerate(parts)]
    turned = contents.read(View("b", (2, 2), (1, 2)))
    assert isinstance(turned, Scope) and "whole" in turned.text()


def test_elements_at_addresses() -> None:
    view, other = View("b", (3, 4), (10, 2), 5), View("b", (2, 2), (10, 2), 15)
    loops = loops_of(other.shape)
    index, conds = element(view, address(other, loops), ranges_of(loops))
    assert conds == ()
    assert [int(value(ix, {"i0": 1, "i1": 1})) for ix in index] == [2, 1]
    _, conds = element(other, address(view, loops_of(view.shape)), ranges_of(loops_of(view.shape)))
    assert conds
    with pytest.raises(NotLifted):
        digits(View("b", (3, 4), (2, 1)))


@st.composite
def two_views(draw: st.DrawFn) -> tuple[View, View]:
    """Two views of one buffer; of the first each address has one element, with gaps between, or none."""
    strides, shape, reach = list[int](), list[int](), 0
    for _ in range(draw(st.integers(1, 3))):
        strides.append(reach + draw(st.integers(1, 4)))
        shape.append(draw(st.integers(2, 4)))
        reach += strides[-1] * (shape[-1] - 1)
    order = draw(st.permutations(range(len(shape))))
    view = View("b", tuple(shape[n] for n in order), tuple(strides[n] for n in order), draw(st.integers(0, 9)))
    steps = draw(st.lists(st.sampled_from((*strides, 1, 2, 5)), min_size=1, max_size=3))
    return view, View("b", tuple(draw(st.integers(2, 4)) for _ in steps), tuple(steps), draw(st.integers(0, 9)))


@settings(max_examples=300)
@given(two_views())
def test_an_address_has_an_element_where_it_is_told(views: tuple[View, View]) -> None:
    view, other = views
    held = {view.offset + sum(map(mul, view.strides, at)): at for at in product(*map(range, view.shape))}
    loops = loops_of(other.shape)
    where = address(other, loops)
    index, conds = element(view, where, ranges_of(loops))
    for at in product(*map(range, other.shape)):
        point = {i.name: n for i, n in zip(loops, at)}
        wanted = held.get(int(value(where, point)))
        there = all(value(c.index, point) == 0 if c.equal else value(c.index, point) >= 0 for c in conds)
        assert there == (wanted is not None)
        assert wanted is None or tuple(value(ix, point) for ix in index) == wanted


def test_a_part_that_begins_within_a_row_is_told_without_divisions() -> None:
    """The second half of the channels: what lies below it lies beyond the channels of the point before, where there is none."""
    view, other = View("b", (4, 4, 128), (1024, 256, 1), 128), View("b", (4, 4, 256), (1024, 256, 1))
    loops = loops_of(other.shape)
    index, conds = element(view, address(other, loops), ranges_of(loops))
    assert index == (var("i0"), var("i1"), var("i2") - 128)
    assert conds == (Cond(var("i2") - 128),)


def test_dimensions_are_divided_where_others_begin() -> None:
    loops, index, where = refined(View("b", (64, 8), (8, 1)), View("b", (1, 4, 16, 8), (512, 128, 8, 1)))
    assert [i.extent for i in loops] == [4, 16, 8]
    assert int(value(index[0], {i.name: n for i, n in zip(loops, (3, 5, 7))})) == 3 * 16 + 5
    assert int(value(where, {i.name: n for i, n in zip(loops, (3, 5, 7))})) == (3 * 16 + 5) * 8 + 7


@pytest.mark.parametrize(
    ("view", "shape", "strides"),
    [
        (View("x", (6, 5), (15, 1), 4), (1, 6, 5), (90, 15, 1)),
        (View("x", (6, 5), (15, 1), 4), (2, 1, 3, 5), (45, 0, 15, 1)),
        (View("x", (6, 1, 4), (1, 99, 6)), (3, 2, 2, 2), (2, 1, 12, 6)),
        (View("x", (6, 5), (15, 1)), (5, 6), None),
        (View("x", (6, 5), (15, 1)), (30,), None),  # two dimensions that are not neighbours in memory are not one
        (View("x", (6, 5), (15, 1)), (2, 3, 4), None),
        (View("x", (6, 5), (15, 1)), (6, 5, 2), None),
        (View("x", (6, 5), (15, 1)), (6,), None),
    ],
)
def test_places_over_divided_dimensions(view: View, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    found = unfolded(view, shape)
    assert (found is None) == (strides is None)
    if found is not None and strides is not None:
        assert [s for s, n in zip(found.strides, shape) if n > 1] == [s for s, n in zip(strides, shape) if n > 1]
        assert (found.shape, found.offset) == (shape, view.offset)
        values = np.arange(200)
        one, other = (np.lib.stride_tricks.as_strided(values[v.offset :], v.shape, [8 * s for s in v.strides]) for v in (view, found))
        np.testing.assert_array_equal(one.reshape(shape), other)


def with_function(node: str, **attributes: float) -> Program:
    """A product, and a function of it."""
    from onnx import TensorProto, helper, numpy_helper

    values = {"w": np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32), "low": np.float32(0), "high": np.float32(0.3)}
    bounds = ["low", "high"] if node == "Clip" else []
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node(node, ["p", *bounds], ["y"], **attributes)]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (("x", (6, 8)), ("y", (6, 16)))]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items() if name in ("w", *bounds)]
    graph = helper.make_graph(nodes, node, *ends, weights)
    return prepare(load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)))


def as_one_kernel(program: Program) -> tuple[Plan, list[Form]]:
    """The program as a product of the library with the function behind it."""
    (part,) = subprograms(program)
    expression = canonical(part.expression)
    ways = [(f, b) for f in forms(expression, 3, 60) for b in builds(f.tree, dict(f.matches), OUT)]
    form, build = next((f, b) for f, b in ways if any(isinstance(k, Matmul) and k.posts for k in b.kernels))
    assembly = Assembly(program)
    assembly.add(build, dict(zip(tensors(expression), part.inputs)), part.output.name)
    return assembly.finish(), [form]


FUNCTIONS: dict[str, tuple[dict[str, float], Fraction]] = {
    "HardSwish": ({}, Fraction(1, 6)), "LeakyRelu": ({"alpha": 0.01}, Fraction(1, 100)), "Clip": ({}, Fraction(3, 10)),
}  # fmt: skip
"""A function whose parameter is no binary fraction, with that."""


@pytest.mark.parametrize("node", FUNCTIONS)
def test_functions_by_kernels_of_their_own_are_proven(node: str) -> None:
    """What the library applied to its product has the numbers of the expression: a kernel of its own is the model's; with others it is not."""
    attributes, number = FUNCTIONS[node]
    program = with_function(node, **attributes)
    plan, found = as_one_kernel(program)
    place, product = next((n, k) for n, k in enumerate(plan.kernels) if isinstance(k, Matmul))
    assert number in {x for p in product.posts for x in (p.alpha, p.beta)}
    assert read_posts(json.loads(json.dumps([post_json(p) for p in product.posts]))) == product.posts

    def wrong(kernels: tuple[Kernel, ...]) -> list[str]:
        return problems(program, replace(plan, kernels=(*plan.kernels[:place], *kernels, *plan.kernels[place + 1 :])), found)

    pair = apart(product)
    assert pair is not None and wrong(pair) == [] == wrong(keeping_nan(product))
    assert len(keeping_nan(product)) == (2 if node == "Clip" else 1)
    moved = [{name: x + Fraction(1, 10**9) for name, x in (("alpha", p.alpha), ("beta", p.beta)) if x == number} for p in product.posts]
    near = product.with_posts(tuple(replace(p, **changes) for p, changes in zip(product.posts, moved)))
    other = apart(near)
    assert other is not None and wrong(other) and wrong((near,))


def test_numbers_of_stored_operations() -> None:
    """As they are, also where no double is one; a double is read as what it is."""
    posts = (Post("clip", None, -inf, Fraction(1, 3)), Post("linear", None, Fraction(1, 2), Fraction(-3)), Post("relu"))
    told = json.loads(json.dumps([post_json(p) for p in posts]))
    assert told == [["clip", None, -inf, "1/3"], ["linear", None, 0.5, -3.0], ["relu", None, 0.0, 0.0]] and read_posts(told) == posts
    assert read_posts([["hardswish", None, 1 / 6, 0.5]])[0].alpha == Fraction(1 / 6) != Fraction(1, 6)
