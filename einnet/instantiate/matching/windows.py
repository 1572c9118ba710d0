"""Matching towards convolution: y[n, f, o] = Σ_{c, r} x[n, c, o·stride + r·dilation - pad] w[f, c, r], and its transposed form.

The data operand is read dimension by dimension, because reading outside a dimension's box is padding; the weights and the result are
compared as addresses, like in a Matmul.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.facts import product_reads
from einnet.derivation.rules.relayout import digits, factor, repeated
from einnet.expr.index import Floor, Index, Range, in_range
from einnet.expr.nodes import Iter, Read, Scope, is_weight, used_names
from einnet.instantiate.address import name_of
from einnet.instantiate.kernels import dense_strides
from einnet.instantiate.matching.contraction import form_problems
from einnet.instantiate.matching.convolution import Roles, Window, convolution
from einnet.instantiate.matching.mismatches import Digits, Reflect, Skew, SumSplit, Taps
from einnet.instantiate.matching.types import Match, Mismatch, NoFix, Table

GOOD_SPATIAL = 2
"""Spatial dimensions that vendors' fast kernels have."""

Part = Window | Index | Mismatch | str
"""What a dimension of the data is: a window, an index of channels and groups, what a step makes one of these, or why none does."""


def match_conv(scope: Scope, table: Table) -> Match | list[Mismatch]:
    """The convolution that computes a sum of products of two reads, or the mismatches left.

    Where one operand is known at compile time it is the weights; else both orders are tried.
    """
    problems = form_problems(scope)
    if problems:
        return problems
    operands = product_reads(scope.body)
    assert operands is not None and len(operands) == 2
    tried: list[list[Mismatch]] = []
    constant = [is_weight(r) for r in operands]
    for data, weight, n in ((operands[0], operands[1], 0), (operands[1], operands[0], 1)):
        if constant[n] and not constant[1 - n]:
            continue
        result = _match_ordered(scope, data, weight, n, table.taps)
        if isinstance(result, Match):
            return result
        tried.append(result)
    return min(tried, key=lambda found: (any(isinstance(m, NoFix) for m in found), len(found)))


def _match_ordered(scope: Scope, data: Read, weight: Read, n: int, most: int) -> Match | list[Mismatch]:
    again = repeated(data)
    if again:
        return [NoFix(f"iterator {again} stands in two dimensions of {name_of(data)}")]
    parts = _dimensions(scope, data, weight)
    problems = _problems(scope, data, weight, n, parts, most)
    if problems:
        return problems
    placed = _placed(scope, data, parts)
    if isinstance(placed, Mismatch):
        return [placed]
    address, offset = placed
    channels = tuple(i for name in address for i in scope.sums if i.name == name)
    groups = tuple(i for name in address for i in scope.loops if i.name == name)
    windows = [part for part in parts if isinstance(part, Window)]
    batches = leading(windows)
    spatial = tuple(w for w in windows if w not in batches)
    address |= {w.loop.name: w.step for w in batches}
    return convolution(scope, Roles(data, weight, n, spatial, tuple(w.loop for w in batches), channels, groups, address, offset))


def _problems(scope: Scope, data: Read, weight: Read, n: int, parts: Sequence[Part], most: int) -> list[Mismatch]:
    """What is in the way in the dimensions of the data. Where all of it are dimensions that mix roles, one copy mends them together."""
    problems: list[Mismatch] = [NoFix(f"dimension {d} of {name_of(data)}: {part}") for d, part in enumerate(parts) if isinstance(part, str)]
    problems = problems or long_windows(parts, most) or [part for part in parts if isinstance(part, Mismatch)]
    mixed = [m for m in problems if isinstance(m, Digits)]
    if not mixed or len(mixed) < len(problems):
        return problems
    forms = in_digits(scope, data, used_names(weight), [m.divisor if isinstance(m, Digits) else 0 for m in parts])
    return [replace(mixed[0], operand=n, order=tuple(x for f in forms for x in sorted(f.names())), added=forms)]


def _placed(scope: Scope, data: Read, parts: Sequence[Part]) -> tuple[dict[str, int], int] | Mismatch:
    """How many elements one step of a channel or group iterator is, and where the first element is that is read; or why the data have no such."""
    first = {i.name: i.lo for i in (*scope.loops, *scope.sums)}
    address: dict[str, int] = {}
    offset = 0
    for d, (part, (begin, _), step) in enumerate(zip(parts, data.base.box, _steps(data))):
        if not isinstance(part, Index):
            continue
        terms = [(str(a), c) for a, c in part.terms]
        if any(c < 0 for _, c in terms):
            return NoFix(f"dimension {d} of {name_of(data)}: channels run backwards")
        address |= {name: c * step for name, c in terms}
        offset += step * (part.const + sum(c * first[name] for name, c in terms) - begin)
    return address, offset


def _steps(data: Read) -> tuple[int, ...]:
    """Elements from one position of a dimension to the next."""
    return dense_strides(tuple(hi - lo for lo, hi in data.base.box))


@lru_cache(maxsize=1 << 13)
def _dimensions(scope: Scope, data: Read, weight: Read) -> list[Part]:
    """Each dimension of the data: a window, an index of channels, or what is in the way (see `_dimension`)."""
    return [_dimension(ix, box, step, used_names(weight), scope) for ix, box, step in zip(data.index, data.base.box, _steps(data))]


def long_windows(parts: Sequence[Part], most: int) -> list[Mismatch]:
    """Windows of more taps than the table has: their taps are split first, then all but the finest ones are summed outside."""
    taps = [w.tap for w in parts if isinstance(w, Window) and w.tap and w.tap.extent > most > 0]
    if taps:
        why = f"the windows of {', '.join(f'{t.extent} taps {t.name}' for t in taps)} are longer than {most}"
        return [Taps(why, tuple(t.name for t in taps), most)]
    spread = [m for m in parts if isinstance(m, SumSplit)]
    if most and spread:
        return [replace(spread[0], order=tuple(x for m in spread for x in m.order))]
    return [NoFix(m.why) for m in spread]


def leading(windows: Sequence[Window]) -> list[Window]:
    """The dimensions that are a batch: the first, if no tap moves it, and more such as long as the spatial ones are more than libraries are
    good at; they have to nest."""
    taken = [w for w in windows[:1] if w.plain]
    for w in windows:
        left = len(windows) - len(taken)
        if w.plain and w not in taken and left > GOOD_SPATIAL and (not taken or taken[-1].step == w.extent * w.step):
            taken.append(w)
    return taken


def in_digits(scope: Scope, data: Read, of_weight: frozenset[str], divisors: Sequence[int]) -> tuple[Index, ...]:
    """The dimensions of a copy of the data, of which each has one role: batch, spatial, groups, channels; outermost first."""
    own = {i.name for i in scope.loops} - of_weight
    sums = {i.name for i in scope.sums}
    spatial = next((n for n, ix in enumerate(data.index) if ix.names() & own and ix.names() & sums), 0)

    def role(dimension: int, form: Index) -> int:
        names = form.names()
        if names & own:
            return 0 if len(names) == 1 and (divisors[dimension] or dimension < spatial) else 1
        return 3 if names & sums else 2

    found = [(role(n, f), f) for n, (ix, d) in enumerate(zip(data.index, divisors)) for f in digits(ix, d)]
    return tuple(f for _, f in sorted(found, key=lambda pair: pair[0]))


def _dimension(ix: Index, box: Range, step: int, of_weight: frozenset[str], scope: Scope) -> Part:
    """What one dimension of the data is: a window, or an index of channel and group iterators, or the reason why neither."""
    if any(isinstance(a, Floor) for a, _ in ix.terms):
        return "floor division"
    used = [i for a, _ in ix.terms for i in (*scope.loops, *scope.sums) if i.name == a]
    taps = [i for i in used if i in scope.sums]
    own = [i for i in used if i not in taps and i.name not in of_weight and i.extent > 1]
    if not own:
        return _plain(ix, box, of_weight, scope)
    backward = _backward(ix, own, taps)
    if backward is not None:
        return backward
    if len(own) == 1 and len(taps) < 2 and len(used) == 1 + len(taps):
        return _window(ix, box, step, own[0], taps[0] if taps else None)
    return _mixed(ix, [i.name for i in own], [i.name for i in taps], scope)


def _backward(ix: Index, own: Sequence[Iter], taps: Sequence[Iter]) -> Reflect | None:
    """The first tap to count from its other end, where loops go forwards and taps backwards."""
    backward = [i.name for i in taps if ix.coefficient(i.name) < 0 and i.extent > 1]
    if not backward or ix.den != 1 or any(ix.coefficient(i.name) <= 0 for i in own):
        return None
    return Reflect(f"the window of {', '.join(i.name for i in own)} and {backward[0]} runs backwards", backward[0])


def _plain(ix: Index, box: Range, of_weight: frozenset[str], scope: Scope) -> Index | str:
    """An index of channels and groups, which has to stay inside the box."""
    if any(i.name not in of_weight and i.name in ix.names() for i in scope.sums):
        return "a summation iterator that the weights do not have"
    return ix if ix.den == 1 and in_range(ix, box, scope.ranges) else "channels are read outside their box"


def _window(ix: Index, box: Range, step: int, loop: Iter, tap: Iter | None) -> Window | str:
    """The window of a loop and a tap, or of a loop alone."""
    a, b = ix.coefficient(loop.name), ix.coefficient(tap.name) if tap else 0
    const = ix.const + a * loop.lo + (b * tap.lo if tap else 0) - box[0] * ix.den
    extent = box[1] - box[0]
    if ix.den == 1 and a > 0 and b >= 0:
        return Window(loop, tap, a, max(b, 1), -const, extent, step, False)
    if a == 1 and b <= 0:
        return Window(loop, tap, ix.den, max(-b, 1), const, extent, step, True)
    return "the window runs backwards"


def _mixed(ix: Index, own: Sequence[str], taps: Sequence[str], scope: Scope) -> Mismatch | str:
    """What makes a window of a dimension with more iterators than one loop and one tap: its digits, or a sum outside, or a skew."""
    text = f"the index of {len(ix.terms)} iterators is no window of one loop and one tap"
    divisor = factor(ix, scope.ranges)
    coarse = {str(a) for a, c in ix.terms if divisor and c % divisor == 0}
    window = len(coarse & set(own)) == 1 and len(coarse & set(taps)) <= 1 and coarse <= {*own, *taps}
    if window and len(ix.terms) == len(coarse) + 1:
        return Digits(text, divisor)
    alone = ix.is_affine and len(own) == 1 and abs(ix.coefficient(own[0])) == 1
    return _spread(ix, own, taps, text) if alone else text


def _spread(ix: Index, own: Sequence[str], taps: Sequence[str], text: str) -> Mismatch | str:
    """A window of one loop over several taps, or over a tap and loops of the weights, which a skew takes in."""
    if len(own) + len(taps) == len(ix.terms):
        finest = min(taps, key=lambda x: abs(ix.coefficient(x)))
        return SumSplit(text, tuple(x for x in taps if x != finest))
    to = Index(tuple((a, c) for a, c in ix.terms if a not in taps), ix.const)
    return Skew(text, own[0], to)
