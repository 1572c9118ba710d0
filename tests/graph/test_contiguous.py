"""What lies one after the other: any view of any array, in whatever order its dimensions are."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from einnet.graph import contiguous as module
from einnet.graph.contiguous import contiguous


@pytest.mark.parametrize("order", permutations(range(3)), ids=str)
@pytest.mark.parametrize("step", [1, -1, 3])
def test_a_view_becomes_an_array_of_the_same_elements(order: tuple[int, ...], step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slabs that do not divide the sizes, too."""
    monkeypatch.setattr(module, "LARGE", 1)
    monkeypatch.setattr(module, "SLAB", 4)
    view = np.arange(6 * 7 * 13, dtype=np.float32).reshape(6, 7, 13)[:, ::step].transpose(order)
    made = contiguous(view)
    assert made.flags.c_contiguous and made.dtype == view.dtype
    np.testing.assert_array_equal(made, view)


def test_what_lies_so_is_no_copy() -> None:
    for array in (np.ones((600, 600)), np.array(3), np.ones((0, 4)), np.ones((4, 4, 5))):
        assert contiguous(array) is array
    assert contiguous(np.ones((3, 4)).T).flags.c_contiguous
