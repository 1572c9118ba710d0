"""CUDA programs on disk: the same program comes back, and what is damaged does not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from einnet.errors import ArtifactError
from einnet.instantiate.kernels import POSTS, Matmul, Post, dense_view
from einnet.runtime import artifact
from einnet.runtime.cuda.archive import load, save
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.profiling.precompile import plan_of
from tests.models import tiny, with_opaque
from tests.runtime.cuda.programs import own_plan
from tests.runtime.plans import two_layers


@pytest.mark.parametrize("model", [with_opaque(), tiny("longformer"), tiny("fsrcnn")], ids=["opaque", "longformer", "fsrcnn"])
def test_round_trip(model, tmp_path):
    program = lower(own_plan(model))
    save(tmp_path / "p.cuda", program)
    again = load(tmp_path / "p.cuda")
    assert again == program
    assert again.constants.keys() == program.constants.keys()
    assert all(np.array_equal(again.constants[n], v.reshape(-1)) for n, v in program.constants.items())
    save(tmp_path / "q.cuda", again)
    assert load(tmp_path / "q.cuda") == program


@pytest.mark.parametrize("kinds", list(product(POSTS, repeat=2)), ids="+".join)
def test_posts_that_no_library_fuses_come_back(kinds, tmp_path):
    c, dense = dense_view("c", (4, 6)), dense_view("p", (4, 6))
    posts = tuple(Post(kind, dense if kind in ("add", "mul") else None, 0.25, 1.5) for kind in kinds)
    kernel = Matmul(dense_view("a", (4, 5)), dense_view("b", (5, 6)), c, posts)
    program = lower(plan_of(kernel))
    assert len(program.steps) == 2, "the product, and what follows it"
    save(tmp_path / "p.cuda", program)
    assert load(tmp_path / "p.cuda") == program


def test_lowering_is_deterministic():
    assert lower(own_plan(tiny("fsrcnn"))) == lower(own_plan(tiny("fsrcnn")))


def test_damaged_files_are_refused(tmp_path):
    save(tmp_path / "p.cuda", lower(two_layers()))
    data = bytearray((tmp_path / "p.cuda").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "p.cuda").write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        load(tmp_path / "p.cuda")
    with pytest.raises(ArtifactError, match="cannot be read"):
        load(tmp_path / "missing.cuda")


def test_a_program_for_the_processor_is_none_for_cuda(tmp_path):
    program = lower(two_layers())
    save(tmp_path / "p.cuda", program)
    with pytest.raises(ArtifactError, match=r"p\.cuda is a program for a CUDA device"):
        artifact.load(tmp_path / "p.cuda")


def test_buffers_outside_their_region_are_refused(tmp_path):
    from dataclasses import replace

    program = lower(two_layers())
    save(tmp_path / "p.cuda", replace(program, arena_bytes=16))
    with pytest.raises(ArtifactError, match="outside its region"):
        load(tmp_path / "p.cuda")
