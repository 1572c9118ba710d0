"""Scale and shift by weights: composed along pointwise chains, and folded into the weights of the contraction before them.

y = a·(Σ x·w) + b  =  Σ x·(w·a) + b  where a depends on weights only and varies along loops at which w is read. Batch normalisation after a
convolution is the usual case; nothing here knows of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from einnet.expr.index import Index, as_index, in_range, var
from einnet.expr.nodes import (
    Add,
    Body,
    Const,
    Div,
    Iter,
    Mul,
    Read,
    Scope,
    Tensor,
    exchange_in,
    indices,
    inside,
    is_weight,
    make_add,
    make_div,
    make_mul,
    reads,
    substitute_body,
    used_names,
)  # fmt: skip
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))


@dataclass(frozen=True, slots=True)
class Affine:
    """scale · x + shift, both of weights only."""

    scale: Body
    shift: Body

    def times(self, factors: tuple[Body, ...]) -> Affine:
        return Affine(product(self.scale, *factors), product(self.shift, *factors))

    def body(self, x: Body) -> Body:
        return total(product(self.scale, x), self.shift)


def product(*factors: Body) -> Body:
    """A product in which 0 and 1 are gone."""
    if ZERO in factors:
        return ZERO
    return make_mul(f for f in factors if f != ONE)


def total(*terms: Body) -> Body:
    """A sum in which 0 is gone."""
    return make_add(t for t in terms if t != ZERO)


def affine_in(body: Body, name: str, at: tuple[Index, ...]) -> Affine | None:
    """The body as scale·T[at] + shift for the tensor of that name; None if it has another form."""
    if isinstance(body, Read) and isinstance(body.base, Tensor) and body.base.name == name:
        return Affine(ONE, ZERO) if body.index == at else None
    if not isinstance(body, (Add, Mul, Div)):
        return None
    args = (body.num, body.den) if isinstance(body, Div) else body.args
    holding = [a for a in args if mentions(a, name)]
    others = tuple(a for a in args if not mentions(a, name))
    if not all(map(is_weight, others)):
        return None
    if isinstance(body, Add) and len(holding) > 1:
        return added([affine_in(a, name, at) for a in holding], others)
    if len(holding) != 1:
        return None
    inner = affine_in(holding[0], name, at)
    if inner is None:
        return None
    if isinstance(body, Add):
        return Affine(inner.scale, total(inner.shift, *others))
    if isinstance(body, Mul):
        return inner.times(others)
    return inner.times((make_div(ONE, body.den),)) if holding[0] is body.num else None


def added(terms: Sequence[Affine | None], others: tuple[Body, ...]) -> Affine | None:
    """The sum of terms of one tensor, scaled by numbers of one sign: where nothing is taken away, less rounding is no other number."""
    scales = [t.scale.value for t in terms if t is not None and isinstance(t.scale, Const) and isinstance(t.scale.value, Fraction)]
    if len(scales) < len(terms) or not (all(s > 0 for s in scales) or all(s < 0 for s in scales)):
        return None
    return Affine(Const(sum(scales, Fraction(0))), total(*(t.shift for t in terms if t is not None), *others))


def mentions(body: Body, name: str) -> bool:
    """The tensor is read, directly or in a nested scope."""
    return any(mentions(r.base.body, name) if isinstance(r.base, Scope) else r.base.name == name for r in reads(body))


def data_inputs(node: Node) -> list[str]:
    """The tensors of a node that are not weights."""
    found = dict.fromkeys(r.base.name for r in reads(node.scope.body) if isinstance(r.base, Tensor) and not r.base.weight)
    return list(found)


def fold_affine(program: Program) -> Program:
    """Compose affine pointwise nodes with the affine node or contraction before them, where that has no other user."""
    fresh = Fresh(program)
    uses: dict[str, int] = {}
    for node in program.nodes:
        for name in node.inputs:
            uses[name] = uses.get(name, 0) + 1
    for _, name in program.outputs:
        uses[name] = uses.get(name, 0) + 1
    done: dict[str, ProgramNode] = {}
    scaled: set[str] = set()
    for node in program.nodes:
        if isinstance(node, Node):
            node = absorb(unscaled(node, done, uses, fresh, scaled), done, uses, fresh, scaled)
            weights, node = into_weights(node, done, fresh)
            done.update((weight.output.name, weight) for weight in weights)
        done[node.outputs[0].name] = node
    holds = {name: held for name, held in program.holds.items() if name not in scaled}
    return replace(program, nodes=tuple(done.values()), holds=holds)


def unscaled(node: Node, done: dict[str, ProgramNode], uses: Mapping[str, int], fresh: Fresh, changed: set[str]) -> Node:
    """A node that reads a tensor anywhere and scales it by a number, as one that only reads it: c·T[f(x)] = (c·T)[f(x)]; T has no other user."""
    found = scaled_read(node.scope)
    if found is None:
        return node
    factor, read, name = found
    before = done.get(name) if uses[name] == 1 else None
    if not isinstance(before, Node):
        return node
    if before.scope.sums:
        scaled = scale_weights(before, factor, fresh)
        if scaled is None:
            return node
        weight, made = scaled
        del done[name]
        done[weight.output.name] = weight
    else:
        del done[name]
        made = replace(before, scope=replace(before.scope, body=product(factor, before.scope.body)))
        made = absorb(made, done, uses, fresh, changed)
    done[name] = made
    changed.add(name)
    return replace(node, scope=replace(node.scope, body=read))


def into_weights(node: Node, done: Mapping[str, ProgramNode], fresh: Fresh) -> tuple[list[Node], Node]:
    """Σ (a·T)[f]·w = Σ T[f]·(a·w): nodes for scaled weights, and the contraction that reads them and data as it was before it was scaled."""
    weights: list[Node] = []
    for name in data_inputs(node) if node.scope.sums else ():
        before = done.get(name)
        found = [r for r in reads(node.scope.body) if isinstance(r.base, Tensor) and r.base.name == name]
        if not isinstance(before, Node) or len(found) != 1 or found[0].fill != 0:
            continue
        source = scaled_tensor(before.scope)
        scale = None if source is None else scale_at(before.scope, source[0], found[0], node.scope)
        scaled = None if scale is None else scale_weights(node, scale, fresh)
        if source is not None and scaled is not None and source[1].dtype == before.output.dtype:
            weight, made = scaled
            node = replace(made, scope=exchange_in(made.scope, {name: source[1]}), origin=(*before.origin, *node.origin))
            weights.append(weight)
    return weights, node


def scale_at(scope: Scope, scale: Body, read: Read, reader: Scope) -> Body | None:
    """The scale of a scope where another one reads it, each dimension that it varies along by an iterator; None where it may be read outside."""
    place = {i.name: ix for i, ix in zip(scope.loops, read.index) if i.name in used_names(scale)}
    inside_it = all(in_range(place[i.name], i.range, reader.ranges) for i in scope.loops if i.name in place)
    plain = all(len(ix.names()) == 1 and ix == var(*ix.names()) for ix in place.values())
    return substitute_body(scale, place) if inside_it and plain else None


def scaled_tensor(scope: Scope) -> tuple[Body, Tensor] | None:
    """The scale and the tensor, if the scope is that tensor times weights, element by element."""
    found = {r.base for r in reads(scope.body) if isinstance(r.base, Tensor) and not r.base.weight}
    if scope.sums or len(found) != 1:
        return None
    (tensor,) = found
    form = affine_in(scope.body, tensor.name, indices(scope.loops))
    if form is None or form.shift != ZERO or form.scale == ONE or scope.box != tuple((0, n) for n in tensor.shape):
        return None
    return substitute_body(form.scale, {i.name: as_index(i.lo) for i in scope.loops if i.extent == 1}), tensor


def scaled_read(scope: Scope) -> tuple[Const, Read, str] | None:
    """The number, the read and its tensor of a scope that is the product of both, of data and inside the tensor's box."""
    if scope.sums or not isinstance(scope.body, Mul) or len(scope.body.args) != 2:
        return None
    factor, read = sorted(scope.body.args, key=lambda a: isinstance(a, Read))
    if not isinstance(factor, Const) or not isinstance(factor.value, Fraction) or not isinstance(read, Read) or not isinstance(read.base, Tensor):
        return None
    return (factor, read, read.base.name) if inside(read, scope.ranges) and not read.base.weight else None


def absorb(node: Node, done: dict[str, ProgramNode], uses: Mapping[str, int], fresh: Fresh, changed: set[str]) -> Node:
    """The node with what stands before it folded in; `done` loses and gains the nodes concerned, `changed` gains tensors that get other values."""
    while True:
        names = data_inputs(node)
        before = done.get(names[0]) if len(names) == 1 else None
        if not isinstance(before, Node) or uses[names[0]] != 1 or node.scope.sums or node.scope.box != before.scope.box:
            return node
        form = affine_in(node.scope.body, names[0], indices(node.scope.loops))
        if form is None:
            return node
        composed = compose(node, form, before)
        if composed is not None:
            del done[names[0]]
            node = composed
            continue
        scaled = scale_weights(before, renamed(form.scale, node.scope.loops, before.scope.loops), fresh)
        if scaled is None:
            return node
        weight, contraction = scaled
        del done[names[0]]
        done[weight.output.name] = weight
        done[names[0]] = contraction
        changed.add(names[0])
        return replace(node, scope=replace(node.scope, body=total(Read(contraction.output, indices(node.scope.loops)), form.shift)))


def renamed(body: Body, old: tuple[Iter, ...], new: tuple[Iter, ...]) -> Body:
    """The body over other loops of the same box."""
    return substitute_body(body, {a.name: var(b.name) for a, b in zip(old, new)})


def compose(node: Node, outer: Affine, before: Node) -> Node | None:
    """outer ∘ inner, where the node before is affine and pointwise too."""
    names = data_inputs(before)
    if before.scope.sums or len(names) != 1:
        return None
    inner = affine_in(before.scope.body, names[0], indices(before.scope.loops))
    if inner is None:
        return None
    old, new = before.scope.loops, node.scope.loops
    scale, shift = renamed(inner.scale, old, new), renamed(inner.shift, old, new)
    (source,) = {r.base for r in reads(before.scope.body) if isinstance(r.base, Tensor) and r.base.name == names[0]}
    both = Affine(product(outer.scale, scale), total(product(outer.scale, shift), outer.shift))
    return replace(node, scope=replace(node.scope, body=both.body(Read(source, indices(new)))), origin=(*before.origin, *node.origin))


def scale_weights(node: Node, scale: Body, fresh: Fresh) -> tuple[Node, Node] | None:
    """A node for scaled weights, and the contraction that reads them; None if no weight varies along the scale's loops.

    `scale` is over the loops of the contraction.
    """
    scope = node.scope
    if scale == ONE or not scope.sums or scope.reduce != "sum" or not isinstance(scope.body, Mul):
        return None
    for position, factor in enumerate(scope.body.args):
        if not isinstance(factor, Read) or not isinstance(factor.base, Tensor) or not factor.base.weight or factor.fill != 0:
            continue
        where = {e: k for k, e in enumerate(factor.index)}
        if any(var(name) not in where for name in used_names(scale)):
            continue
        loops = tuple(Iter(f"i{k}", 0, n) for k, n in enumerate(factor.base.shape))
        moved = substitute_body(scale, {name: var(f"i{where[var(name)]}") for name in used_names(scale)})
        tensor = Tensor(fresh(f"{factor.base.name}_scaled"), factor.base.shape, "f32", True)
        weight = Node(tensor, Scope(loops, (), product(Read(factor.base, indices(loops)), moved)), node.origin)
        args = (*scope.body.args[:position], Read(tensor, factor.index), *scope.body.args[position + 1 :])
        return weight, replace(node, scope=replace(scope, body=Mul(args)))
    return None
