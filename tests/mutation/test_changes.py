"""The changes that mutation testing makes: each is one, each is told, and each takes effect wherever the function is known."""

from __future__ import annotations

import gc
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from einnet.derivation.checker import draws, events, exact, oracle
from einnet.expr.normal import lattice
from tests.mutation.__main__ import EXPLAINED, explained, modules_of
from tests.mutation.changes import changes, told
from tests.mutation.runner import Image, TooSlow, in_child, no_longer_than

SOURCE = '''
LIMIT = 3 * 4
WORD = "no number"

class Thing:
    """Statements outside of functions stay."""

    size: int = 5

    def larger(self, than: int) -> bool:
        """Text stays."""
        if not than:
            raise ValueError(f"than {than + 1}")
        return self.size > than and than != 7

TABLE = {"twice": lambda x: x + x}

def counted(values: list[int]) -> int:
    total = 0
    for v in values:
        if v:
            total += max(v, -1)
    return total
'''


def test_all_changes_are_listed() -> None:
    found = [(c.function, c.what) for c in changes(SOURCE, "thing.py")]
    assert found == [
        ("Thing.larger", "not than -> without not"),
        ("Thing.larger", "return self.size > than and than != 7 -> return None"),
        ("Thing.larger", "self.size > than and than != 7 -> or"),
        ("Thing.larger", "self.size > than: Gt -> GtE"),
        ("Thing.larger", "than != 7: NotEq -> Eq"),
        ("Thing.larger", "7 -> 8"),
        ("<lambda>", "x + x: Add -> Sub"),
        ("counted", "0 -> 1"),
        ("counted", "if v -> if not"),
        ("counted", "total += max(v, -1) -> pass"),
        ("counted", "max(v, -1) -> min"),
        ("counted", "-1 -> without sign"),
        ("counted", "1 -> 2"),
        ("counted", "return total -> return None"),
        ("LIMIT", "LIMIT = 3 * 4 -> 24"),
    ]


def test_each_change_is_one_and_has_an_effect() -> None:
    """Both codes run as the function's: one differs from the other for some input."""
    namespace: dict[str, object] = {}
    exec(compile(SOURCE, "thing.py", "exec"), namespace)
    counted = namespace["counted"]
    before = counted([0, 3, -2])  # type: ignore[operator]
    results = []
    for change in changes(SOURCE, "thing.py"):
        if change.function == "counted":
            assert change.codes is not None and change.codes[0] == counted.__code__  # type: ignore[attr-defined]
            try:
                counted.__code__ = change.codes[1]  # type: ignore[attr-defined]
                results.append(counted([0, 3, -2]))  # type: ignore[operator]
            finally:
                counted.__code__ = change.codes[0]  # type: ignore[attr-defined]
    assert before == 2 and results == [3, 0, 0, -3, 4, 1, None]


@pytest.mark.parametrize("module", [draws, events, oracle])
def test_what_is_changed_is_the_code_that_a_module_has(module: ModuleType) -> None:
    """Else a change would have no effect, and survive."""
    path = str(module.__file__)
    functions = {f.__code__ for f in vars(module).values() if isinstance(f, FunctionType)}
    found = {c.codes[0] for c in changes(Path(path).read_text(encoding="utf-8"), path) if c.codes is not None and "." not in c.function}
    assert found and found <= functions | {getattr(f, "__wrapped__", f).__code__ for f in vars(module).values() if hasattr(f, "__wrapped__")}


def test_functions_are_found_though_the_collection_of_tests_has_frozen_them() -> None:
    """Else every change is told to be one that no test enters."""
    gc.freeze()
    assert {draws.draws.__code__, events.points_of_events.__code__} <= Image().functions.keys()


def test_children_answer_or_are_ended() -> None:
    assert in_child(lambda: b"x" * 100_000, 20) == b"x" * 100_000
    assert in_child(lambda: 1 / 0, 20) == b""
    assert in_child(lambda: sum(range(1 << 40)), 0.2) is None


def test_what_works_for_too_long_is_stopped_and_nothing_after_it() -> None:
    with pytest.raises(TooSlow), no_longer_than(0.01):
        sum(sum(range(100)) for _ in range(1 << 40))
    with no_longer_than(0.01):
        pass
    assert sum(range(1 << 20)) > 0


@pytest.mark.skipif(not EXPLAINED.exists(), reason="nothing survives")
def test_what_is_explained_is_a_change_that_there_is() -> None:
    """A line for a change that no longer exists goes."""
    lines: dict[str, set[tuple[str, str]]] = {}
    for module, function, what in explained():
        lines.setdefault(module, set()).add((function, what))
    for module, said in lines.items():
        found = set(told(Path(f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")))
        assert said <= found, (module, said - found)


def test_functions_that_do_not_matter_are_passed_over() -> None:
    """What is left is told and changed as in the whole module."""
    whole = [c for c in changes(SOURCE, "thing.py") if not c.function.startswith("Thing")]
    assert list(changes(SOURCE, "thing.py", {"counted"})) == whole


@pytest.mark.parametrize("module", [exact, lattice])
def test_changes_are_told_without_making_them(module: ModuleType) -> None:
    """In functions, methods and lambdas, told apart by the same numbers."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert told(source) == [(c.function, c.what) for c in changes(source, str(module.__file__))]
    assert told(SOURCE) == [(c.function, c.what) for c in changes(SOURCE, "thing.py")]


def test_packages_stand_for_their_modules() -> None:
    found = list(modules_of(["einnet.derivation.checker.exact", "einnet.derivation"]))
    assert found[0] == "einnet.derivation.checker.exact" and {"einnet.derivation.checker.check", "einnet.derivation.rules.tile"} <= set(found)
