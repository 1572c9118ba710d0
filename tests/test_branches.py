"""What counts as a branch, and what has too many."""

from __future__ import annotations

import ast

import pytest

from tests import branches


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("return x", 1),
        ("if x:\n  pass\nelif y:\n  pass\nelse:\n  pass", 3),
        ("return a and b and c or d", 4),
        ("return [x for x in y if x if not z for w in x]", 5),
        ("while x:\n  try:\n    pass\n  except A:\n    pass", 3),
        ("match x:\n  case 1 | 2:\n    pass\n  case _ if y and z:\n    pass", 4),
        ("def g():\n  if x:\n    pass\nreturn lambda: 1 if y else 2", 2),
    ],
)
def test_what_counts(text, count):
    (function,) = ast.parse("def f():\n" + "\n".join("  " + line for line in text.split("\n"))).body
    assert branches.branches(function) == count


def test_a_function_that_decides_too_much_is_named_wherever_it_stands(tmp_path):
    (tmp_path / "tests").mkdir()
    choice = "".join(f"      if x == {n}:\n        return {n}\n" for n in range(branches.MOST))
    (tmp_path / "tests" / "one.py").write_text(f"class A:\n  if X:\n    def f(x):\n{choice}\n    def g(x):\n{choice[choice.index('return 0') + 8 :]}")
    assert branches.problems(tmp_path) == ["tests/one.py: A.f has 21 branches, 20 at most"]


def test_no_function_of_the_tree_decides_too_much():
    assert branches.problems() == []
