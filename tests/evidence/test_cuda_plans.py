"""Programs for CUDA devices are lifted like those for the processor, and run by the host driver; changed ones are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.drawn import forced
from einnet.evidence.examine import proven, told_constants, told_kernels, told_lifting
from einnet.evidence.running import OnHost, overlaps, plan_of
from einnet.graph.program import Program
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.program import CudaProgram, Gemm, Generated, Step
from einnet.search.forms import Form
from tests.models import tiny

Drawn = tuple[Program, CudaProgram, list[Form]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    program, plan, forms = forced(tiny("transformer", sequence=4, hidden=8), 0, states=60)
    return program, lower(plan), forms


def problems(drawn: Drawn, made: CudaProgram) -> list[str]:
    program, _, forms = drawn
    found = proven(program, plan_of(made), [f.derivation for f in forms if f.steps])
    return told_lifting(program, found)["problems"] + told_constants(found.constants)["problems"] + overlaps(made)


def with_step(made: CudaProgram, place: int, step: Step) -> CudaProgram:
    return replace(made, steps=(*made.steps[:place], step, *made.steps[place + 1 :]))


def test_every_step_is_lifted_and_proven(drawn: Drawn) -> None:
    assert problems(drawn, drawn[1]) == []


def test_kernels_run_on_integers_by_the_host_driver(drawn: Drawn) -> None:
    made = drawn[1]
    told = told_kernels(plan_of(made), OnHost(made))
    assert told["problems"] == [] and told["exact"] > 0 and told["vendor"] > 0 and told["generated"] > 0


def test_a_changed_step_is_not_the_model(drawn: Drawn) -> None:
    made, tried = drawn[1], 0
    for n, step in enumerate(made.steps):
        if isinstance(step, Gemm):
            tried += 1
            assert problems(drawn, with_step(made, n, replace(step, a=replace(step.a, row=step.a.column, column=step.a.row))))
            assert problems(drawn, with_step(made, n, replace(step, relu=not step.relu)))
    assert tried


def test_places_that_overlap_are_found(drawn: Drawn) -> None:
    made = drawn[1]
    live = next(s for s in made.steps if isinstance(s, Gemm))
    moved = {**made.places, live.c.buffer: replace(made.places[live.c.buffer], offset=made.places[live.a.buffer].offset, constant=False)}
    if made.places[live.a.buffer].constant:
        pytest.skip("the first product reads constants")
    assert overlaps(replace(made, places=moved))


def test_a_changed_text_is_found_on_integers(drawn: Drawn) -> None:
    made = drawn[1]
    runner = OnHost(made)
    if not runner.runs_text:
        pytest.skip("no C++ compiler")
    place, step = next((n, s) for n, s in enumerate(made.steps) if isinstance(s, Generated) and " + " in made.texts[s.text])
    text = made.texts[step.text].replace(" + ", " - ", 1)
    for wrong in (text, made.texts[step.text].replace("0.0f", "1.0f")):
        if wrong == made.texts[step.text]:
            continue
        other = replace(made, texts={**made.texts, step.text: wrong})
        try:
            found = told_kernels(plan_of(other), OnHost(other), [place])["problems"]
        except Exception:  # what does not compile or run is refused, too
            continue
        inputs = {name: np.ones(view.shape, np.float32) for name, view in made.inputs}
        got, wanted = OnHost(other).host(inputs), runner.host(inputs)
        assert found or all(np.array_equal(got[name], wanted[name], equal_nan=True) for name in wanted)
