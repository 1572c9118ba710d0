"""The golden derivations: found by search from the canonical expression for three shapes each, and stored as certificates."""

from __future__ import annotations

import pytest

from einnet.derivation.checker.check import check
from einnet.derivation.einfile import parse, write
from einnet.search.space import Options, Space
from tests.search.goldens import FILES, GOLDENS, LIMIT, ROOM, Golden, file_of, search

CASES = [
    pytest.param(g, n, id=f"{g.name}, shape {n}", marks=[pytest.mark.slow] if g.slow and n else [])
    for g in GOLDENS
    for n in range(len(g.sizes))
]


@pytest.mark.parametrize(("golden", "shape"), CASES)
def test_search_finds_it(golden: Golden, shape: int) -> None:
    result = search(golden, golden.sizes[shape])
    assert result.form is not None, f"{golden.title} was not found in {result.states} states"
    assert result.states <= LIMIT
    assert len(check(result.form.derivation)) == len(result.form.steps)




def test_three_shapes_each_one_of_which_divides_nothing() -> None:
    assert all(len(g.sizes) == 3 for g in GOLDENS)
    assert all(57 in g.sizes[0].values() and 43 in g.sizes[0].values() and 5 in g.sizes[0].values() for g in GOLDENS)


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda g: g.name)
def test_its_file_is_a_certificate(golden: Golden) -> None:
    """`python -m tests.search.goldens --store` writes the files."""
    stored = parse(file_of(golden).read_text(encoding="utf-8"))
    check(stored.derivation)
    assert stored.derivation.start == golden.source(golden.sizes[0])
    found = Space(Options(max_depth=golden.depth, states=LIMIT - ROOM)).forms(stored.derivation.start)
    same = [f for f in found if f.tree.key == stored.derivation.end.key]
    assert any(golden.wanted(f, golden.sizes[0]) and len(f.matches) == len(stored.matches) for f in same)


@pytest.mark.parametrize("path", sorted(FILES.glob("*.ein")), ids=lambda p: p.stem)
def test_a_file_reads_back_as_it_was_written(path) -> None:  # type: ignore[no-untyped-def]
    text = path.read_text(encoding="utf-8")
    file = parse(text)
    assert write(file.derivation, file.matches) == text.partition("\n")[2]


def test_no_file_is_left_over() -> None:
    assert {p.name for p in FILES.glob("g*.ein")} == {file_of(g).name for g in GOLDENS}
