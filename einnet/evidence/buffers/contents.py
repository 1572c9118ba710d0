"""What the buffers of a plan hold while it runs, as expressions: the last write to each element, and views of what was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from einnet.evidence.buffers.addresses import address, digits, element, ranges_of
from einnet.evidence.buffers.series import in_series
from einnet.expr.index import var
from einnet.expr.nodes import Body, Read, Scope, Select, Tensor
from einnet.graph.rewrite import is_copy
from einnet.instantiate.kernels import NotLifted, Value, View, dense_view, loops_of

Owners = np.ndarray[Any, np.dtype[np.int32]]

MOST_PIECES = 64
"""Writes that one view may be made of, which are no series."""

FEW_PIECES = 8
"""As many writes are told one by one, whatever they are."""

NOBODY = -1


@dataclass(frozen=True)
class Write:
    """A value, element by element where the view has it; `named` where it is another name for what was there."""

    view: View
    value: Value
    named: bool = False


@dataclass
class Cell:
    """A buffer: its writes, and for each element the number of the last one; None where the first write filled all and stands alone.

    `names` are those under which what is there is known, by view, each with the number of writes that there were then; and whether it is but
    another name for what has one.
    """

    size: int
    writes: list[Write] = field(default_factory=list)
    owners: Owners | None = None
    names: list[tuple[View, Tensor, int, bool]] = field(default_factory=list)


class Contents:
    """The buffers by name; empty at first."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.cells = {name: Cell(size) for name, size in sizes.items()}

    def write(self, view: View, value: Value) -> None:
        """Let the elements of the view be those of the value. Raises NotLifted for a view whose elements share addresses or leave it."""
        cell = self.cells[view.buffer]
        if view == dense_view(view.buffer, view.shape) and prod(view.shape) == cell.size:
            cell.writes, cell.owners, cell.names = [Write(view, value)], None, []
            return
        self.append(cell, Write(view, value))

    def name(self, view: View, tensor: Tensor, alias: bool = False) -> None:
        """Say that what a view shows is a tensor. It is read by that name from then on, unless that is an `alias`; by an older one where that is of
        just the view that is read."""
        cell = self.cells[view.buffer]
        if alias:
            pass
        elif cell.owners is None and len(cell.writes) == 1 and cell.writes[0].view == view:
            cell.writes = [Write(view, tensor, True)]
        else:
            self.append(cell, Write(view, tensor, True))
        cell.names.append((view, tensor, len(cell.writes), alias))

    @staticmethod
    def append(cell: Cell, write: Write) -> None:
        """Add a write to those of a buffer. Raises NotLifted as `write` does."""
        inside(write.view, cell.size)
        digits(write.view)
        if cell.owners is None:
            cell.owners = np.full(cell.size, 0 if cell.writes else NOBODY, np.int32)
        part(cell.owners, write.view)[...] = len(cell.writes)
        cell.writes.append(write)

    def known(self, view: View) -> Iterator[tuple[Tensor, bool]]:
        """The tensors that a view shows, by their names, and whether these are aliases; none where something was written there since."""
        cell = self.cells[view.buffer]
        for named, tensor, count, alias in reversed(cell.names):
            if alike(named, view) and all(n != NOBODY and (n < count or cell.writes[n].named) for n in self.owners(view)):
                yield tensor, alias

    def shows(self, view: View, tensor: Tensor | None) -> bool:
        """A view shows a tensor, element by element. Raises NotLifted as `read` does."""
        shown = self.read(view)
        found = shown if isinstance(shown, Tensor) else is_copy(shown)
        return tensor is not None and (found == tensor or any(t == tensor for t, _ in self.known(view)))

    def is_named(self, view: View) -> bool:
        """All that a view shows is of one tensor that has a name."""
        owners = self.owners(view)
        return len(owners) == 1 and owners[0] != NOBODY and self.cells[view.buffer].writes[owners[0]].named

    def is_moved(self, view: View) -> bool:
        """All that a view shows are elements of tensors as they are, under names or copied: nothing is computed of them."""
        writes = self.cells[view.buffer].writes
        return all(n != NOBODY and (writes[n].named or moves(writes[n].value)) for n in self.owners(view))

    def owners(self, view: View) -> list[int]:
        """The numbers of the writes that the elements of a view come from, the last one first; `NOBODY` for what was never written. Raises NotLifted
        for a view that leaves its buffer."""
        cell = self.cells[view.buffer]
        inside(view, cell.size)
        if cell.owners is None:
            return [0 if cell.writes else NOBODY]
        found = part(cell.owners, view)
        if found.size == 0 or found.min() == found.max():
            return [int(found.flat[0])] if found.size else []
        return [int(n) for n in np.unique(found)[::-1]]

    def count(self, view: View, owner: int) -> int:
        """How many elements of a view come from one write."""
        owners = self.cells[view.buffer].owners
        return prod(view.shape) if owners is None else int(np.count_nonzero(part(owners, view) == owner))

    def read(self, view: View) -> Value:
        """What a view shows, over loops from 0. Raises NotLifted where that has too many pieces."""
        cell, owners = self.cells[view.buffer], self.owners(view)
        if len(owners) == 1 and owners[0] != NOBODY and cell.writes[owners[0]].view == view:
            return cell.writes[owners[0]].value
        tensor = next((t for t, alias in self.known(view) if not alias), None)
        if tensor is not None:
            return tensor
        series = self.series(view)
        if series is not None:
            return series
        if len(owners) > MOST_PIECES:
            raise NotLifted(f"{view} was written in {len(owners)} pieces")
        loops = loops_of(view.shape)
        ranges, at = ranges_of(loops), address(view, loops)
        body: Body | None = None
        for owner in reversed(owners):
            if owner == NOBODY:
                body = Read(Tensor(f"unwritten_{view.buffer}", (cell.size,)), (at,))
                continue
            write = cell.writes[owner]
            index, conds = element(write.view, at, ranges)
            found = Read(write.value, index)
            body = found if body is None or not conds else Select(conds, found, body)
        return Scope(loops, (), Read(Tensor("nothing", (0,)), (var("i0"),)) if body is None else body)

    def series(self, view: View) -> Scope | None:
        """What a view shows that was written in many chunks that are alike, as one expression over loops from 0."""
        cell, owners = self.cells[view.buffer], self.owners(view)
        if cell.owners is None or len(owners) <= FEW_PIECES or NOBODY in owners:
            return None
        return in_series(view, part(cell.owners, view), {n: (cell.writes[n].view, cell.writes[n].value) for n in owners})

    def borders(self, view: View, dimension: int) -> frozenset[int]:
        """Where along a dimension of a view the dimensions begin and end in which it was written: 128 and 384 where 1152 are 3·3·128."""
        cell, step, extent = self.cells[view.buffer], view.strides[dimension], view.shape[dimension]
        found: set[int] = set()
        for owner in self.owners(view) if step else []:
            written = cell.writes[owner].view if owner != NOBODY else view
            found.update(b // step for s, n in zip(written.strides, written.shape) if n > 1 for b in (s, s * n) if b % step == 0)
        return frozenset(b for b in found if 1 < b < extent and extent % b == 0)


def moves(value: Value) -> bool:
    """Each element of the value is one of a tensor."""
    return isinstance(value, Tensor) or (not value.sums and isinstance(value.body, Read) and isinstance(value.body.base, Tensor))


def alike(one: View, other: View) -> bool:
    """Two views of a buffer show the same, element by element."""
    moving = [[(s, n) for s, n in zip(v.strides, v.shape) if n > 1] for v in (one, other)]
    return one.shape == other.shape and one.offset == other.offset and moving[0] == moving[1]


def inside(view: View, size: int) -> None:
    """Raise NotLifted for a view that leaves a buffer of so many elements."""
    steps = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    first, last = (view.offset + sum(end(step, 0) for step in steps) for end in (min, max))
    if prod(view.shape) and (first < 0 or last >= size):
        raise NotLifted(f"{view} leaves its buffer of {size} elements")


def part(array: np.ndarray[Any, Any], view: View) -> np.ndarray[Any, Any]:
    """The elements of a flat array that a view shows; writing to them writes to the array."""
    return as_strided(array[view.offset :], view.shape, [s * array.itemsize for s in view.strides])
