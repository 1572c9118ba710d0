"""The arena: what lives at the same time does not overlap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.instantiate.kernels import Buffer, OpaqueCall, Plan, dense_view
from einnet.runtime.arena import ALIGNMENT, Block, Lifetime, align_up, lifetimes, place

items = st.lists(st.tuples(st.integers(0, 5000), st.integers(-1, 20), st.integers(0, 8)), max_size=40).map(
    lambda rows: [Lifetime(f"b{n}", size, first, first + length) for n, (size, first, length) in enumerate(rows)]
)


@given(items)
def test_living_buffers_do_not_overlap(found: list[Lifetime]) -> None:
    arena = place(found)
    spans = [(arena.offsets[i.name], arena.offsets[i.name] + i.nbytes, i) for i in found]
    assert all(start % ALIGNMENT == 0 and end <= arena.nbytes for start, end, _ in spans)
    for n, (start, end, item) in enumerate(spans):
        for other_start, other_end, other in spans[:n]:
            if item.first <= other.last and other.first <= item.last:
                assert end <= other_start or other_end <= start or item.nbytes == 0 or other.nbytes == 0


@given(items)
def test_the_arena_is_no_larger_than_everything_and_no_smaller_than_any_moment(found: list[Lifetime]) -> None:
    arena = place(found)
    size = {i.name: align_up(max(i.nbytes, 1)) for i in found}
    moments = [sum(size[i.name] for i in found if i.first <= t <= i.last) for t in range(-1, 30)]
    assert max(moments) <= arena.nbytes <= sum(size.values())


def test_a_chain_needs_two_buffers() -> None:
    assert place([Lifetime(f"t{n}", 1000, n, n + 1) for n in range(10)]).nbytes == 2 * align_up(1000)


def test_allocated_memory_is_zero_and_aligned_and_can_be_given_back() -> None:
    for n in (0, 1, 4096, 100_000):
        block = Block(n)
        assert len(block.bytes) == n
        assert not block.bytes.any()
        assert n == 0 or block.address % 4096 == 0
        block.bytes[:] = 7
        block.touch()
        assert (block.bytes == 7).all()
        address = block.address
        block.release()
        assert block.address == address
        assert not block.bytes.any()


def test_indices_that_are_given_live_to_the_end() -> None:
    """A run on what is in memory finds them as they were given; floats may be anything there."""
    views = {name: dense_view(name, (4,)) for name in ("ids", "x", "y", "z")}
    calls = (OpaqueCall(b"", (views["ids"], views["x"]), (views["y"],), "Gather"), OpaqueCall(b"", (views["y"],), (views["z"],), "Relu"))
    kinds = {"ids": ("i64", "input"), "x": ("f32", "input"), "y": ("f32", "temporary"), "z": ("f32", "output")}
    buffers = tuple(Buffer(name, 4, *kinds[name]) for name in views)
    plan = Plan(buffers, calls, tuple((n, views[n]) for n in ("ids", "x")), (("z", views["z"]),))
    assert {i.name: i.last for i in lifetimes(plan)} == {"ids": 2, "x": 0, "y": 1, "z": 2}


BLOCKS = """
import ctypes, re
from pathlib import Path
from einnet.runtime.capacity import given_back_at_once

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]

def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

with given_back_at_once(True):
    before, blocks = held(), []
    for n in range(200):
        blocks.append(library.malloc(300_000))
        ctypes.memset(blocks[-1], 1, 300_000)
        library.malloc(20_000)
    taken = held() - before
    for block in blocks:
        library.free(block)
    print(taken, held() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no memory")
def test_weights_of_a_middling_size_go_back_to_the_system_though_something_stands_between_them() -> None:
    """ONNX Runtime parses a model's weights and copies each: of 900 KB they had left a third of the model behind."""
    told = subprocess.run([sys.executable, "-c", BLOCKS], capture_output=True, text=True, check=True).stdout
    taken, left = map(int, told.split())
    assert taken > 50_000_000
    assert left < 10_000_000


AGAIN = """
import re, resource
from contextlib import nullcontext
from pathlib import Path
import numpy as np
from einnet.runtime.capacity import kept_for_more

def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def pages(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        np.ones(25_000_000, np.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with kept_for_more():
    np.ones(25_000_000, np.float32)
    print(pages(5))
    kept = held()
print(pages(5), kept - held())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no memory")
def test_arrays_that_are_made_again_are_not_taken_from_the_system_again() -> None:
    """Five arrays of 100 MB in the place of another come without a page; what was kept is given back at the end, from which on all is as it was."""
    told = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, check=True).stdout
    within, after, back = map(int, told.split())
    assert within < 50 < after
    assert back > 90_000_000
