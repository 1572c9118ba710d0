"""Each operator's expression is what the standard says: proven equal to its function body, and to its reference evaluator in numbers."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from einnet.expr.nodes import Const, Scope, make_add
from einnet.graph.onnx.importer import load
from einnet.graph.operators.op import Function, Op, Result
from einnet.graph.operators.registry import OPERATORS
from tests.graph.collected import collected
from tests.graph.standard import COMPARED, PAGE, REFUSED, ROUNDED, compared, expanded, with_the_body, with_the_evaluator, with_weights_given

LEFT_OUT = {"DynamicQuantizeLinear": "the body has Cast"}
"""A cast of floats to integers is none of the language: what lies beyond the ends of the type is not defined."""

COPIES = ("Cast", "CastLike", "Dropout", "Identity")
"""Of which a program has no node."""


def rows_of_the_page() -> dict[str, list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return {m[1]: [cell.strip() for cell in line.split("|")[2:5]] for line in lines if (m := re.match(r"\| `(\w+)`", line))}


def test_no_body_is_refuted_and_none_is_left_out() -> None:
    assert [p for row in compared().values() for p in row.problems if "evaluator" not in p] == []
    assert {name: what for name, row in compared().items() for what in row.bodies if what not in COMPARED} == LEFT_OUT
    assert sum(row.bodies["proven"] for row in compared().values()) >= 48
    assert {name for name, row in compared().items() if row.bodies["equal to rounding"]} <= ROUNDED.keys()


def test_the_evaluator_gives_the_same_but_where_it_is_known_not_to() -> None:
    assert {name for name, row in compared().items() if sum(row.reference.values()) > row.reference["equal"]} == REFUSED.keys()
    assert [name for name, row in compared().items() if not row.reference and name not in COPIES] == []


def test_the_page_says_no_more() -> None:
    """Run `python -m tests.graph.standard` where it says something else."""
    page = rows_of_the_page()
    assert page.keys() == compared().keys()
    for name, row in compared().items():
        cases, bodies, reference = page[name]
        assert (name, int(cases)) == (name, sum(row.reference.values()))
        assert (name, int(re.findall(r"equal (\d+)", reference)[0])) == (name, row.reference["equal"])
        for what in ("proven", "tested"):
            told = sum(map(int, re.findall(rf"{what} (\d+)", bodies)))
            assert told <= row.bodies["proven"] + (row.bodies["tested"] if what == "tested" else 0), name


def shifted(function: Function) -> Function:
    """An operator whose result is larger by a thousandth."""

    def wrong(op: Op) -> Result:
        right = function(op)
        assert isinstance(right, Scope)
        assert not right.sums
        return Scope(right.loops, (), make_add((right.body, Const(Fraction(1, 1000)))))

    return wrong


@pytest.mark.parametrize("name", ["HardSigmoid", "Mish", "LeakyRelu", "Softmax"])
def test_a_wrong_expression_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in collected() if c.operators == name)
    given = with_weights_given(case.model)
    body = expanded(given)
    assert body is not None
    monkeypatch.setitem(OPERATORS, name, shifted(OPERATORS[name]))
    problems: list[str] = []
    assert with_the_body(load(given), body, problems, name) == "refuted"
    assert with_the_evaluator(load(case.model), case, problems) == "different"
    assert len(problems) == 2
