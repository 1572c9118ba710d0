"""Windows of one tensor are computed once: blocks that read parts of the same mask or layout read them where the whole of it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from einnet.expr.index import Range, var
from einnet.expr.nodes import Iter, Scope, substitute_body, walk
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, View, dense_view
from einnet.instantiate.stitch import Window


def shared_windows(kernels: Sequence[Kernel], temporaries: Mapping[str, Buffer]) -> tuple[list[Kernel], dict[str, Buffer]]:
    """The same kernels with one in place of those that compute windows of one tensor, where the smallest box around all has no more elements than
    they have together."""
    made, buffers = list(kernels), dict(temporaries)
    groups: dict[object, list[EOperator]] = {}
    for k in kernels:
        if isinstance(k, EOperator) and _is_window(k, buffers):
            groups.setdefault((_placeless(k.scope), k.operands, k.dtype, k.arithmetic), []).append(k)
    for group in groups.values():
        box = _around(group)
        if len(group) > 1 and prod(hi - lo for lo, hi in box) <= sum(prod(k.scope.shape) for k in group):
            found = _together(made, buffers, group, box)
            made, buffers = found or (made, buffers)
    return made, buffers


def _is_window(k: EOperator, temporaries: Mapping[str, Buffer]) -> bool:
    """Nothing is reduced, and the result is all of a temporary buffer."""
    return k.out == dense_view(k.out.buffer, k.scope.shape) and k.out.buffer in temporaries and not any(s.reduces for s in walk(k.scope))


def _placeless(scope: Scope) -> object:
    """What a scope computes at a point, whatever its box is."""
    return len(scope.loops), substitute_body(scope.body, {i.name: var(f"i{n}") for n, i in enumerate(scope.loops)})


def _around(group: Sequence[EOperator]) -> tuple[Range, ...]:
    """The smallest box that holds those of all."""
    return tuple((min(lo for lo, _ in sides), max(hi for _, hi in sides)) for sides in zip(*(k.scope.box for k in group)))


def _together(
    kernels: Sequence[Kernel], temporaries: Mapping[str, Buffer], group: Sequence[EOperator], box: tuple[Range, ...]
) -> tuple[list[Kernel], dict[str, Buffer]] | None:  # fmt: skip
    """The kernels with the whole box computed where the first of the group was; None where something reads a window in a way that strides of the
    whole cannot say, or what is read for it is written later."""
    first, windows = group[0], {k.out.buffer: k.scope.box for k in group}
    whole = _over(first.scope, box)
    name = "t_" + whole.key[:20]
    writers = [n for n, k in enumerate(kernels) if any(v.buffer in windows for v in k.result_views)]
    later = {v.buffer for k in kernels[writers[0] :] for v in k.result_views}
    views = {v: _placed(v, windows[v.buffer], box, name) for k in kernels for v in k.operand_views if v.buffer in windows}
    taken = name in temporaries.keys() - windows.keys() or later & {v.buffer for v in first.operand_views}
    if taken or len(writers) > len(group) or not all(views.values()):
        return None
    made = [k.map_views(lambda v: views.get(v) or v) for n, k in enumerate(kernels) if n not in writers[1:]]
    made[writers[0]] = replace(first, scope=whole, out=dense_view(name, whole.shape))
    buffers = {n: b for n, b in temporaries.items() if n not in windows}
    return made, {**buffers, name: Buffer(name, prod(whole.shape), "f32", "temporary")}


def _over(scope: Scope, box: tuple[Range, ...]) -> Scope:
    """The scope over another box."""
    return replace(scope, loops=tuple(Iter(i.name, *side) for i, side in zip(scope.loops, box)))


def _placed(v: View, own: tuple[Range, ...], box: tuple[Range, ...], name: str) -> View | None:
    """A view of a dense window as one of the whole."""
    found: View | None = v
    shape = [hi - lo for lo, hi in own]
    for axis in reversed(range(len(own))):
        extent, shape[axis] = shape[axis], box[axis][1] - box[axis][0]
        found = found and Window(tuple(shape), axis, own[axis][0] - box[axis][0], extent).view(found, name)
    return found
