"""Index arithmetic stays within machine integers: what leaves them wraps around in compiled code, whatever the algebra says of integers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

from einnet.expr.index import Index, Range, bounds
from einnet.expr.nodes import Read, Scope, index_functions, reads, walk
from einnet.expr.notation.printing import print_index

LARGEST = 1 << 61
"""Absolute values, intermediate ones too, that no index function may exceed: addresses of bytes are four to eight times as large."""


@lru_cache(maxsize=1 << 12)
def overflow(scope: Scope) -> str:
    """What leaves 64 bits in a scope or in those that it reads; empty where nothing does."""
    for s in walk(scope):
        for e in index_functions(s.body):
            if reach(e, s.ranges) > LARGEST:
                return f"the index {print_index(e)} leaves 64 bits"
        for box in (s.box, *(r.base.box for r in reads(s.body) if isinstance(r, Read))):
            if prod(hi - lo for lo, hi in box) > LARGEST or any(max(-lo, hi) > LARGEST for lo, hi in box):
                return f"a tensor of shape {'x'.join(str(hi - lo) for lo, hi in box)} has addresses that leave 64 bits"
    return ""


def reach(e: Index, ranges: Mapping[str, Range]) -> int:
    """The greatest absolute value that occurs on the way to an index function's numerator."""
    total = most = abs(e.const)
    for atom, c in e.terms:
        if isinstance(atom, str):
            lo, hi = ranges[atom]
        else:
            most = max(most, reach(atom.num, ranges))
            low, high = bounds(atom.num, ranges)
            lo, hi = low // atom.den, high // atom.den + 1
        total += abs(c) * max(abs(lo), abs(hi - 1), 1)
    return max(total, most)
