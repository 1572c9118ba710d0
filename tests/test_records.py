"""Records: what is written is read back, what is none is told with its place, and the JSON holds what it always held."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from einnet.evidence.report.card_schema import CudaReport
from einnet.evidence.report.plain import plain
from einnet.evidence.report.ranged_schema import RangedReport
from einnet.evidence.report.schema import KernelTime, Report
from einnet.records import Record, added, as_json, as_text, changed, fields_of, read, read_text, renamed
from einnet.search.time_shares import RANGE_LEAST_S
from tests.filled import filled


class Inner(Record):
    """A part."""

    size: float
    note: str | None = None


@dataclass(frozen=True)
class Pair:
    """A dataclass in a record."""

    a: int
    b: tuple[int, ...]


class Outer(Record):
    """A whole: names that are words of Python, values that older files do not have."""

    start: str = renamed("from")
    digest: str | None = added(None)
    parts: dict[str, Inner]
    pair: Pair
    last: bool | None = None


WHOLE = Outer(start="here", digest=None, parts={"x": Inner(size=1.5)}, pair=Pair(1, (2, 3)))
WRITTEN = {"from": "here", "digest": None, "parts": {"x": {"size": 1.5}}, "pair": {"a": 1, "b": [2, 3]}}


def test_what_is_written_is_read_back_in_the_order_of_the_fields() -> None:
    assert as_json(WHOLE) == WRITTEN and list(as_json(WHOLE)) == list(WRITTEN)
    assert read(Outer, WRITTEN) == read_text(Outer, as_text(WHOLE)) == pickle.loads(pickle.dumps(WHOLE)) == WHOLE
    assert read(Outer, {**WRITTEN, "new": 1}) == read(Outer, {k: v for k, v in WRITTEN.items() if k != "digest"}) == WHOLE
    assert as_json(changed(WHOLE, last=False))["last"] is False
    assert Outer(**fields_of(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    ("change", "place"),
    [({"parts": {"x": {"size": "1"}}}, r"\$\.parts\[\.\.\.\]\.size"), ({"pair": {"a": 1.5, "b": []}}, r"\$\.pair\.a"), ({"from": None}, r"\$\.from")],
)
def test_a_wrong_value_is_told_with_its_place(change: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=place):
        read(Outer, {**WRITTEN, **change})
    with pytest.raises(ValueError, match="missing required field"):
        read(Outer, {"from": "here"})


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        WHOLE.start = "there"  # type: ignore[misc]


def test_numbers_are_numbers_whatever_made_them() -> None:
    assert as_json(Inner(size=RANGE_LEAST_S)) == {"size": 0.5} and type(as_json(Inner(size=RANGE_LEAST_S))["size"]) is float
    told = as_json({"a": np.float64(1.5), "b": np.int64(2), "c": Inner(size=np.float32(0.5)), "d": (np.bool_(True), float("inf"))})
    assert told == {"a": 1.5, "b": 2, "c": {"size": 0.5}, "d": [True, float("inf")]}
    assert [type(v) for v in (told["a"], told["b"], told["d"][0])] == [float, int, bool]
    assert read_text(Inner, '{"size": Infinity}').size == float("inf")
    assert plain(Inner(size=float("inf"))) == {"size": None}


@pytest.mark.parametrize("kind", [Report, CudaReport, RangedReport])
def test_a_report_is_the_same_after_it_was_a_file(kind: type[Report]) -> None:
    report = filled(kind, {"subprograms": [{"key": "k", "kernels": [{"kernel": "Matmul", "ms": None}]}], "sizes": {"1": {}}})
    text = json.dumps(plain(report))
    assert read_text(kind, text) == report
    assert json.loads(text) == as_json(report)


def test_of_a_kernel_on_a_processor_nothing_is_told_of_cards() -> None:
    assert list(as_json(KernelTime(kernel="Matmul", ms=None))) == ["kernel", "ms"]
