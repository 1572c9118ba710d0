"""Operands flattened to addresses: matching compares strides, not dimensions (paper section 5.1, step 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einnet.expr.index import Index, Range, affine_parts, combine, in_range, simplify, var
from einnet.expr.nodes import Read, Scope, Tensor
from einnet.instantiate.kernels import dense_strides


def flat_index(index: Sequence[Index], box: Sequence[Range], ranges: Mapping[str, Range]) -> Index:
    """The row-major element address of an index into a box."""
    strides = dense_strides(tuple(hi - lo for lo, hi in box))
    parts = [(ix - lo, s) for ix, (lo, _), s in zip(index, box, strides)]
    return simplify(combine(*parts), ranges) if parts else Index()


@dataclass(frozen=True, slots=True)
class Address:
    """offset + Σ strides[name]·(name - lo); iterators that do not move the address are left out."""

    strides: Mapping[str, int]
    offset: int


def address_of(read: Read, ranges: Mapping[str, Range]) -> Address | str:
    """The affine address of a read that stays inside its box, or what is in the way. No stride is negative: libraries refuse such views."""
    for n, (ix, box) in enumerate(zip(read.index, read.base.box)):
        if not in_range(ix, box, ranges):
            return f"dimension {n} of {name_of(read)} is read outside its box [{box[0]},{box[1]})"
    parts = affine_parts(flat_index(read.index, read.base.box, ranges))
    if parts is None:
        return f"the address of {name_of(read)} is not affine"
    strides, offset = parts
    backwards = sorted(k for k, s in strides.items() if s < 0)
    if backwards:
        return f"{name_of(read)} is read backwards along {backwards[0]}"
    return Address(strides, offset + sum(s * ranges[k][0] for k, s in strides.items()))


def name_of(read: Read) -> str:
    """How messages call an operand."""
    return "the inner scope" if isinstance(read.base, Scope) else read.base.name


def single(base: Tensor | Scope) -> bool:
    """The elements are float32 in memory, as vendor kernels read them: those of a tensor may be of another type."""
    return isinstance(base, Scope) or base.dtype == "f32"


def is_alias(scope: Scope) -> bool:
    """The scope is a copy whose memory order and element type equal those of what it copies: no kernel is needed."""
    if scope.sums or not isinstance(scope.body, Read) or not single(scope.body.base):
        return False
    box = scope.body.base.box
    size = 1
    for lo, hi in box:
        size *= hi - lo
    own = 1
    for i in scope.loops:
        own *= i.extent
    if size != own or any(not in_range(ix, b, scope.ranges) for ix, b in zip(scope.body.index, box)):
        return False
    here = flat_index([var(i.name) for i in scope.loops], scope.box, scope.ranges)
    return flat_index(scope.body.index, box, scope.ranges) == here
