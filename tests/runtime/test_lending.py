"""Inputs are read and outputs written where the caller has them: the same results, nothing beyond an array, nothing that was lent is used later."""

from __future__ import annotations

import ctypes as C
import mmap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, EOperator, Plan, dense_view
from einnet.records import read
from einnet.runtime.arena import ALIGNMENT
from einnet.runtime.artifact import describe, load, save
from einnet.runtime.cpu.binding import lending
from einnet.runtime.cpu.program import Executable, build_code
from einnet.runtime.machine import Built
from tests.runtime.plans import residual_block, two_layers, with_opaque_nodes

PAGE = mmap.PAGESIZE

TEXTS = [
    "x : f32[37,61]\nL[i<61,j<37] relu(x[j,i])",
    "x : f32[37,61]\nL[i<37,j<61] exp(x[i,j])",
    "x : f32[37,61]\nL[i<37] sum[j<61] x[i,j]",
    "x : f32[37,61]\nL[i<37,j<61] sum[k<5] x[i,j+k-2]",
]

Make = Callable[[tuple[int, ...]], np.ndarray]


def before_a_guard(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array that starts at any element; behind its last one is a page that nobody may touch."""
    nbytes = 4 * int(np.prod(shape))
    pages = -(-nbytes // PAGE)
    memory = np.frombuffer(mmap.mmap(-1, (pages + 1) * PAGE), np.uint8)
    assert C.CDLL(None).mprotect(C.c_void_p(memory.ctypes.data + pages * PAGE), C.c_size_t(PAGE), 0) == 0
    first = pages * PAGE - nbytes
    return memory[first : first + nbytes].view(np.float32).reshape(shape)


def apart(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array with gaps, which no program reads in its place."""
    return np.zeros((*shape, 2), np.float32)[..., 0]


def beginning(at: int) -> Make:
    """Float32 arrays that begin so many bytes behind a cache line."""

    def made(shape: tuple[int, ...]) -> np.ndarray:
        nbytes = 4 * int(np.prod(shape))
        memory = np.zeros(nbytes + 2 * ALIGNMENT, np.uint8)
        first = -memory.ctypes.data % ALIGNMENT + at
        return memory[first : first + nbytes].view(np.float32).reshape(shape)

    return made


def filled(make: Make, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    array = make(shape)
    array[...] = np.random.default_rng(seed).uniform(-1, 1, shape)
    return array


def generated(text: str) -> Plan:
    """A plan of one generated kernel, from x to y."""
    scope = parse(text)
    (x,) = tensors(scope).values()
    size = {"x": int(np.prod(x.shape)), "y": int(np.prod(scope.shape))}
    kernel = EOperator(scope, (("x", dense_view("x", x.shape)),), dense_view("y", scope.shape))
    buffers = (Buffer("x", size["x"], "f32", "input"), Buffer("y", size["y"], "f32", "output"))
    return Plan(buffers, (kernel,), (("x", dense_view("x", x.shape)),), (("y", dense_view("y", scope.shape)),))


@pytest.fixture(autouse=True)
def everything_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "WORTH_BYTES", 0)


def places(program: Executable) -> list[bool]:
    """Which inputs and outputs lie in the program's own memory now."""
    return [one.at == one.home for one in program._lending.every]


@pytest.mark.parametrize("plan", [two_layers(), residual_block(), *map(generated, TEXTS)])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_lent_is_read_and_written_in_its_place(plan: Plan, threads: int) -> None:
    program = Executable(plan, threads)
    shape, result = program._inputs[0][1].shape, program._outputs[0][1].shape
    for seed in range(3):
        plain = filled(apart, shape, seed)
        wanted = program.run(plain)[0]
        x, y = filled(before_a_guard, shape, seed), filled(before_a_guard, result, 99)
        assert program.into([x], [y]) is None
        assert places(program) == [False, False]
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_array_equal(x, plain, err_msg="an input is not written")
        np.testing.assert_array_equal(program.run(x)[0], wanted)


def test_results_of_earlier_calls_stay_what_they_were() -> None:
    program = Executable(two_layers(), 1)
    x = filled(before_a_guard, (4, 32))
    first = program.run(x)[0]
    kept = first.copy()
    x[...] = 2.0
    second = program.run(x)[0]
    np.testing.assert_array_equal(first, kept)
    assert not np.array_equal(first, second)
    program.execute()
    program.sample()
    np.testing.assert_array_equal(first, kept)
    assert places(program) == [True, True], "a program that is timed runs on its own memory"


def test_a_result_on_an_inputs_memory_is_copied() -> None:
    """Rows of a residual block are read again after some of the result was written."""
    program = Executable(residual_block(), 1)
    x = filled(before_a_guard, (1, 12, 12, 16))
    wanted = program.run(x)[0]
    program.into([x], [x])
    np.testing.assert_array_equal(x, wanted)
    both = before_a_guard((2, 12, 12, 16))
    both[0] = filled(apart, (12, 12, 16))
    program.into([both[:1]], [both[1:]])
    np.testing.assert_array_equal(both[1:], wanted)


def test_arrays_of_any_strides_and_starts_are_taken() -> None:
    program = Executable(generated(TEXTS[0]), 1)
    plain = filled(apart, (37, 61))
    wanted = program.run(plain)[0]
    for x in (np.asfortranarray(plain), np.repeat(plain, 2, axis=1)[:, ::2], plain, np.ascontiguousarray(plain)[::-1]):
        wanted = program.run(x.copy())[0]
        y = np.zeros((*wanted.shape[:-1], 2 * wanted.shape[-1]), np.float32)[..., ::2]
        program.into([x], [y])
        np.testing.assert_array_equal(y, wanted)
        assert places(program) == [True, True]
    readonly = filled(before_a_guard, wanted.shape)
    readonly.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        program.into([plain], [readonly])


def test_what_onnx_runtime_holds_and_what_is_given_twice_is_not_lent() -> None:
    plan = with_opaque_nodes()
    program = Executable(plan, 1)
    held = {v.buffer for k, v in ((k, v) for k in plan.kernels if type(k).__name__ == "OpaqueCall" for v in (*k.operand_views, *k.result_views))}
    given = [v.buffer for _, v in (*plan.inputs, *plan.outputs)]
    assert [one is None or name not in held for one, name in zip([*program._lending.inputs, *program._lending.outputs], given, strict=True)]
    view = dense_view("x", (2, 3))
    identity = Executable(Plan((Buffer("x", 6, "f32", "input"),), (), (("x", view),), (("y", view), ("z", view))), 1)
    assert identity._lending.every == []
    x = filled(before_a_guard, (2, 3))
    y, z = identity.run(x)
    np.testing.assert_array_equal(y, x)
    assert not np.shares_memory(y, z) and not np.shares_memory(y, x)


def test_an_input_that_a_kernel_writes_is_copied() -> None:
    plan = generated("x : f32[37,61]\nL[i<37,j<61] relu(x[i,j])")
    (kernel,) = plan.kernels
    again = replace(kernel, out=dense_view("x", (37, 61)), operands=(("x", dense_view("y", (37, 61))),))
    program = Executable(replace(plan, kernels=(kernel, again)), 1)
    x = filled(before_a_guard, (37, 61))
    before = x.copy()
    np.testing.assert_array_equal(program.run(x)[0], np.maximum(before, 0))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("text", TEXTS)
def test_code_of_older_files_takes_arrays_that_begin_with_a_cache_line(text: str, tmp_path: Path) -> None:
    plan = generated(text)
    code = build_code(plan, 1)
    save(tmp_path / "now.einnet", plan, code, threads=1)
    save(tmp_path / "older.einnet", plan, replace(code, anywhere=False), threads=1)
    loaded = {name: load(tmp_path / f"{name}.einnet").code for name in ("now", "older")}
    assert loaded == {"now": code, "older": replace(code, anywhere=False)}
    shape, result = (37, 61), plan.outputs[0][1].shape
    wanted = Executable(plan, 1, code=code).run(filled(apart, shape))[0]
    for name, own in loaded.items():
        program = Executable(plan, 1, code=own)
        for at in (0, 4, 60):
            x, y = filled(beginning(at), shape), beginning(at)(result)
            program.into([x], [y])
            np.testing.assert_array_equal(y, wanted)
            assert places(program) == [name == "older" and at > 0] * 2


def test_a_file_that_does_not_say_where_arrays_begin_is_an_older_one() -> None:
    told = describe("native")
    fields = {name: getattr(told, name) for name in ("system", "architecture", "cpu", "features", "code")}
    assert told.anywhere and not read(Built, fields).anywhere
