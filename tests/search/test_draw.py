"""Which candidates may be drawn: the same on every machine, and none that works for much longer than the model's own operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import pytest

from einnet.expr.nodes import Scope
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.split import subprograms
from einnet.instantiate.kernels import Kernel
from einnet.search.choosing import choose
from einnet.search.choosing.candidate import Candidate, Choice, Estimate
from einnet.search.choosing.choose import MOST_TIMES, draw
from einnet.search.choosing.counted_work import A_SECOND, counted_work
from einnet.search.forms import Form
from einnet.search.outcome import canonical
from einnet.search.space import Options, deepen
from tests.models import tiny


@cache
def part(model: str, place: int) -> tuple[Scope, tuple[Form, ...]]:
    """A part of a small model, and what a short search finds for it."""
    expression = canonical(subprograms(prepare(load(tiny(model))))[place].expression)
    return expression, tuple(deepen(expression, Options(states=40, intensity=0.0))[0])


def attention() -> tuple[Scope, tuple[Form, ...]]:
    """Of more candidates than are tried part by part."""
    return part("longformer", 3)


def enlarging() -> tuple[Scope, tuple[Form, ...]]:
    """A transposed convolution, of which some candidates compute what it reads again at every point, and one of the original ones does."""
    return part("fsrcnn", -1)


def drawn(seed: int, found: tuple[Scope, tuple[Form, ...]], estimate: Estimate = counted_work) -> Choice:
    return draw(*found, estimate, lambda kernel: True, Random(seed))


def work(candidate: Candidate) -> float:
    return sum(counted_work(candidate.kernels))


def upside_down(kernels: Sequence[Kernel]) -> list[float]:
    """On a machine where what works most is fastest."""
    return [1 / n for n in counted_work(kernels)]


def test_a_draw_is_the_same_whatever_is_predicted() -> None:
    for seed in range(2):
        one, other = drawn(seed, attention()), drawn(seed, attention(), upside_down)
        assert (one.best.form.key, one.best.way, one.original.way) == (other.best.form.key, other.best.way, other.original.way)
        assert one.best.kernels == other.best.kernels
        assert other.best.predicted == sum(upside_down(other.best.kernels)), "what is told of it is predicted"


def test_beside_what_is_drawn_stands_the_original_that_works_least() -> None:
    choice = drawn(0, enlarging(), upside_down)
    originals = sorted(work(c) for c in choice.candidates if c.original)
    assert work(choice.original) == originals[0] < originals[-1] / 100


def test_what_would_work_for_seconds_and_much_longer_than_the_original_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = MOST_TIMES * work(drawn(0, enlarging()).original)
    assert limit < A_SECOND
    assert any(work(drawn(seed, enlarging()).best) > limit for seed in range(12)), "a small part is computed any way there is"
    monkeypatch.setattr(choose, "A_SECOND", 0)
    choices = [drawn(seed, enlarging()) for seed in range(12)]
    assert all(work(c.best) <= limit and not c.best.original for c in choices)
    assert len({c.best.form.key for c in choices}) > 2
