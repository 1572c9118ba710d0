"""Nests whose reductions depend on the same few loops, as a softmax does: a row is reduced, reduced again and written by one team of threads.

A row is what the other loops and the reductions walk while those few stand still. Nothing is stored between the reductions, and one launch does
what a launch for each of them would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda.reduction_nest import uses_expanded
from einnet.instantiate.codegen.cuda.rescaled_sizes import cycles_apart, walked
from einnet.instantiate.codegen.cuda.staging import Staged, staged
from einnet.instantiate.codegen.cuda.tiling import WARP
from einnet.instantiate.codegen.ir import Expr, Known, Nest, Reduce, children, names, rebuild, simplified, weights

ROWS, LONG_ROW = 64, 4096
"""Fewer rows than this are not made longer than that: all threads of the device share such a row."""


@dataclass(frozen=True)
class Row:
    """Reductions in the order in which they are needed, each with the key of its value; `rest` is the expression around them."""

    outer: tuple[Iter, ...]
    inner: tuple[Iter, ...]
    reductions: tuple[tuple[Known, Reduce], ...]
    rest: Expr

    @property
    def length(self) -> int:
        """Most terms or elements that one pass over the row walks."""
        return max(prod(i.extent for i in self.inner), *(prod(i.extent for i in e.sums) for _, e in self.reductions))


def row(nest: Nest) -> Row | None:
    """The rows of a normalised nest; None where its reductions depend on other loops, or rows are short or few and long."""
    whole = simplified(uses_expanded(nest.expr), nest.ranges)
    found = reductions(whole)
    loops = {i.name for i in nest.loops}
    used = frozenset(n for e in found for n in names(e))
    outer, inner = (tuple(i for i in nest.loops if (i.name in used) == first) for first in (True, False))
    if not found or not used <= loops or nest.outer or not all(plain(e, nest.tables) for e in found):
        return None
    result = Row(outer, inner, tuple((k, replace(e, body=known(e.body, found))) for e, k in found.items()), known(whole, found))
    few = prod(i.extent for i in outer) < ROWS and result.length > LONG_ROW
    return None if few or prod(i.extent for i in inner) < WARP else result


def reductions(e: Expr) -> dict[Reduce, Known]:
    """The reductions of an expression in the order in which they are needed, each with a key for its value."""
    found: dict[Reduce, Known] = {}
    for part in inside_first(e):
        if isinstance(part, Reduce) and part not in found:
            found[part] = Known(f"(reduction {len(found)})", frozenset())
    return found


def plain(e: Reduce, tables: frozenset[str]) -> bool:
    """The sum is a loop over what it reads: no product with a known matrix, and none over nothing."""
    return not weights(e, tables) and all(i.extent > 0 for i in e.sums)


def inside_first(e: Expr) -> Iterator[Expr]:
    """Everything in the expression, operands before what they are used in."""
    for a in children(e):
        yield from inside_first(a)
    yield e


def known(e: Expr, found: dict[Reduce, Known]) -> Expr:
    """The expression with the keys of reductions in their places."""
    if isinstance(e, Reduce):
        return found[e]
    args = children(e)
    return rebuild(e, tuple(known(a, found) for a in args)) if args else e


def divided(nest: Nest, apart: bool = True) -> Staged:
    """The kernels of a nest: one where it has rows and its arrays lie apart, or sums exponentials under their maximum and that is faster; else
    one for all that is stored on the way, and its own."""
    found = staged(nest)
    if not apart or len(found.nests) == 1:
        return found
    whole = normalise(nest)
    summed = walked(whole)
    if row(whole) is not None or summed is not None and summed.cycles <= cycles_apart(found.nests):
        return Staged((whole,), {})
    return found
