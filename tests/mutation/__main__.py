"""Mutation testing: python -m tests.mutation MODULE ... [--sample N], for modules such as einnet.derivation.checker, or `make mutants`.

Every change of `changes.py` is made in a forked child (`runner.py`). What survives is compared with `explained.tsv`, changes that make no difference
to what is computed, with the reason; and with what the checker says of many pairs (`verdicts.py`): a change under which no verdict becomes wrong
only makes it slower or more cautious. What is left is open.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.mutation import verdicts
from tests.mutation.changes import told
from tests.mutation.runner import ALIVE, MOST, TESTS, Found, Plugin

HERE = Path(__file__).parent
EXPLAINED = HERE / "explained.tsv"
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "mutants"
HARMLESS = ("alike", "cautious", "slower")
"""Classes of `verdicts.py` under which nothing wrong passes."""
STATUS = ("found", "explained", *HARMLESS, "open")
PAGE = """# What the tests notice

`python -m tests.mutation` makes one change at a time (comparisons, operators, constants, statements, results) and runs the tests that execute the
changed line, for at most {most:.0f} s of processor time as they take unchanged; some were tried with more or less. `found`: a test fails, or
takes four times as long. The others survive: `explained` ones make no difference to what is computed (`tests/mutation/explained.tsv`); the rest was
judged by the verdicts of the changed checker on {pairs} pairs, random ones that no test has among them: `alike`, all as before; `cautious`, some that
were proven are only tested or not told, and nothing else changed; `slower`, they take more than four times as long; `open`, a verdict became wrong,
a class stricter, the checker broke, or nobody looked (`--unweighed`: outside of the checker). Rows are as they were measured: a survivor may
have a test since. Where fewer were tried than there are, these were drawn at random (`--sample`, seed 0; `derivation` and `expr` again with seed 1),
and tests had seconds, of few files: an open change there may be found by another test. Modules that are not here: `mutants-earlier.md`.
"""

NAMED = """
## Changes that once went unnoticed

Made by hand; the test that fails.

| change | found by |
|---|---|
| what is derived is taken for any gain (`search.choosing.choose`) | \
`tests/search/test_candidates.py::test_what_is_derived_must_gain_more_than_noise` |
| copies are left out for any gain (`search.copy_elimination`) | `tests/search/test_inplace.py::test_a_gain_is_more_than_three_hundredths` |
| subprograms are bundled for any gain (`compile.bundling`) | `tests/compile/test_bundling.py::test_a_bundle_pays_by_more_than_three_hundredths` |
| a card's other layout is taken for any gain (`targets.cuda.layout`) | \
`tests/compile/cuda/test_layout.py::test_the_faster_order_is_taken_and_the_wanted_one_where_they_are_alike` |
| products are joined for any gain (`search.joint_products.gains`) | `tests/search/test_joint_products.py::test_a_gain_is_more_than_a_hundredth` |
| padding behind the data is one more, or data that no window reads are kept (`matching.convolution.Window.fitted`) | \
`tests/instantiate/test_matched_values.py::test_windows_of_all_kinds` |
| matrices of a batch lie two rows apart where their buffer has one more, or the other way round (`padding`) | \
`tests/instantiate/test_padding.py::test_a_row_is_added_to_both_sides` |
| tiles may be as long as the loop, not as long as the window, no shorter than 8, or of five sizes (`rules.tile.sizes`) | \
`tests/derivation/test_bands_and_tiles.py::test_sizes_of_tiles` |
| a band has one element less, or one more (`rules.band.band_of`) | `tests/derivation/test_rules.py::test_golden[band-...]` |
| a step starts from another scope of the same shape (`checker.check._check_step`) | \
`tests/derivation/test_check.py::test_a_step_that_starts_from_something_else_of_one_shape_is_refused` |
"""


def explained() -> dict[tuple[str, str, str], str]:
    """Reasons by module, function and change."""
    rows = (line.split("\t") for line in EXPLAINED.read_text(encoding="utf-8").splitlines()) if EXPLAINED.exists() else ()
    return {(module, function, what): why for module, function, what, why in rows}


def modules_of(names: Iterable[str]) -> Iterator[str]:
    """A package stands for its modules."""
    for name in names:
        module = importlib.import_module(name)
        if not hasattr(module, "__path__"):
            yield name
            continue
        root = Path(module.__path__[0])
        for path in sorted(root.rglob("*.py")):
            if path.name != "__init__.py":
                yield ".".join((name, *path.relative_to(root).with_suffix("").parts))


def row(found: Found) -> dict[str, str | int]:
    """What is kept of a change."""
    return {
        "module": found.module, "line": found.change.line, "function": found.change.function, "change": found.change.what, "found by": found.by,
        "verdicts": found.verdicts, "shown": found.shown,
    }  # fmt: skip


def key(told: dict[str, str | int]) -> tuple[str, str, str]:
    return str(told["module"]), str(told["function"]), str(told["change"])


def rows_of(path: Path | None, asked: Container[str] | None = None) -> list[dict[str, str | int]]:
    """Changes that were judged before, one in a line, as far as there still are such; of one that was judged again the last.

    Where only some modules are asked for, the others are not looked at.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    last = {key(told): told for told in map(json.loads, lines) if asked is None or told["module"] in asked}
    there = {(name, *change) for name in {module for module, _, _ in last} for change in named(name)}
    return [told for which, told in last.items() if which in there]


@functools.lru_cache
def named(module: str) -> tuple[tuple[str, str], ...]:
    """The function and the words of each change of a module."""
    path = f"{module.replace('.', '/')}.py"
    return tuple(told(Path(path).read_text(encoding="utf-8")))


def status(told: dict[str, str | int], reasons: dict[tuple[str, str, str], str]) -> str:
    """`found`, `explained`, a harmless class of verdicts, or `open`."""
    if told["found by"] not in ALIVE:
        return "found"
    if key(told) in reasons:
        return "explained"
    return str(told["verdicts"]) if told["verdicts"] in HARMLESS else "open"


def summary(rows: Sequence[dict[str, str | int]]) -> dict[str, dict[str, int]]:
    """For each module how many changes there are, how many were tried, and what became of them."""
    reasons = explained()
    told: dict[str, dict[str, int]] = {}
    for name in dict.fromkeys(str(r["module"]) for r in rows):
        counts = Counter(status(r, reasons) for r in rows if r["module"] == name)
        told[name] = {"changes": len(named(name)), "tried": counts.total(), **{s: counts[s] for s in STATUS}}
    return told


def tell(rows: Sequence[dict[str, str | int]], pairs: int) -> None:
    """Writes the table and the survivors, as data and as a page."""
    reasons = explained()
    alive = [{**r, "status": s} for r in rows if (s := status(r, reasons)) != "found"]
    told = summary(rows)
    data = {"pairs": pairs, "modules": told, "survivors": [{k: v for k, v in r.items() if v != ""} for r in alive]}
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = [PAGE.format(pairs=pairs, most=MOST)]
    lines += ["| module | changes | tried | " + " | ".join(STATUS) + " |", "|---" + "|---:" * (2 + len(STATUS)) + "|"]
    lines += [f"| {name.removeprefix('einnet.')} | " + " | ".join(str(n) for n in counts.values()) + " |" for name, counts in told.items()]
    lines.append(NAMED.rstrip())
    for s in ("open", "cautious", "slower", "alike"):
        those = [r for r in alive if r["status"] == s]
        lines += [f"\n## {s.capitalize()}\n"] if those else []
        lines += [f"- {str(r['module']).removeprefix('einnet.')} `{r['function']}`: `{r['change']}` {r['shown']}".rstrip() for r in those]
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--sample", type=int, default=0, help="changes of each module, drawn at random; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", default=TESTS)
    parser.add_argument("--cache", type=Path, help="keeps what tests enter from one run to the next")
    parser.add_argument("--rows", type=Path, help="what was found, one change in a line; what stands there is not tried again")
    parser.add_argument("--again", action="store_true", help="tries what survives there once more")
    parser.add_argument("--most", type=float, default=MOST, help="processor seconds of the tests of one change, as they take unchanged")
    parser.add_argument("--unweighed", action="store_true", help="does not look at what survivors do to verdicts: quicker, and they are open")
    parser.add_argument("--tell", action="store_true", help="writes benchmarks/results/mutants.json and .md from --rows")
    parser.add_argument("--shard", default="0/1", help="such as 0/2 and 1/2 for two processes")
    options = parser.parse_args()
    part, _, parts = options.shard.partition("/")
    asked = list(modules_of(options.modules))
    rows = rows_of(options.rows, asked if asked and not options.tell else None)
    before = [r for r in rows if not options.again or r["found by"] not in ALIVE or key(r) in explained()]
    plugin = Plugin(
        asked, options.sample, options.seed, options.cache, (int(part), int(parts)),
        () if options.unweighed else verdicts.judged(options.cache.with_suffix(".verdicts") if options.cache else None),
        done=lambda found: keep(options.rows, found), before=set(map(key, before)), most=options.most,
        weighed={key(r): (str(r["verdicts"]), str(r["shown"])) for r in rows if r["verdicts"]},
    )  # fmt: skip
    if plugin.modules:
        pytest.main(["-p", "no:cacheprovider", "-p", "no:terminal", *options.tests], plugins=[plugin])
    rows = list({key(r): r for r in (*rows, *map(row, plugin.found))}.values())
    told = summary(rows)
    for name, counts in told.items():
        print(f"{name}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    if options.tell:
        tell(rows, len(plugin.known))
    return 1 if any(counts["open"] for counts in told.values()) else 0


def keep(path: Path | None, found: Found) -> None:
    """Appends what became of a change, so that nothing is lost where a run is stopped."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row(found), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
