"""What the checker says of the corpus: python -m tests.corpus.verdicts [suite ...] [--accept], or `make corpus`.

A corpus file holds derivations of one step, each under a line `# rules setting`; rules that are one up to the names of their inputs stand together.
Of every rule it is told whether the checker proves it at all settings, refutes it (with a point) at all or at some (then with the condition under
which it holds), or finds no difference and no proof. `expected.tsv` holds that; any difference fails. --accept writes it anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from einnet.derivation.checker.check import Difference, check_equal
from einnet.derivation.einfile import parse

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.tsv"
SUITES = ("taso", "tensat", "tensorright")
KINDS = ("proven", "conditional", "refuted", "tested", "conditional, tested", "without shapes")
_LETTERS = {"proven": "p", "refuted": "r", "tested": "t"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Names of the rules, words of the setting such as `stride=2`, and a derivation; one without text has no shapes."""

    suite: str
    rules: str
    setting: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`proven`, `refuted` (with the point), or `tested`: equal wherever it was evaluated, without a proof."""

    word: str
    point: tuple[int, ...] = ()
    details: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """What is known of some rules: a kind, the condition under which they hold, and a letter for each setting in the file's order."""

    suite: str
    rules: str
    kind: str
    condition: str
    letters: str

    @property
    def count(self) -> int:
        return len(self.rules.split(","))

    def text(self) -> str:
        return "\t".join((self.suite, self.rules, self.kind, self.condition, self.letters))


def entries(suite: str) -> list[Entry]:
    """The entries of a file."""
    found: list[Entry] = []
    for block in (HERE / f"{suite}.ein").read_text(encoding="utf-8").split("\n\n"):
        head, _, text = block.partition("\n")
        rules, _, setting = head.removeprefix("# ").partition(" ")
        found.append(Entry(suite, rules, setting, text))
    return found


def verdict(entry: Entry) -> Verdict:
    """What the checker says of the only step."""
    (step,) = parse(entry.text).derivation.steps
    try:
        proof = check_equal(step.before, step.after)
    except Difference as difference:
        return Verdict("refuted", difference.point)
    return Verdict("proven" if proof.method == "inline" else "tested", details=proof.details)


def verdicts(found: Sequence[Entry], workers: int = 1) -> list[Verdict]:
    """In the order of the entries, all of which have a text."""
    if workers == 1:
        return list(map(verdict, found))
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(verdict, found, chunksize=8))


def lines(found: Iterable[tuple[Entry, Verdict]]) -> Iterator[Line]:
    """One for each entry's rules."""
    together: dict[tuple[str, str], list[tuple[Entry, Verdict]]] = {}
    for entry, v in found:
        together.setdefault((entry.suite, entry.rules), []).append((entry, v))
    for (suite, rules), those in together.items():
        words = {v.word for _, v in those}
        held = "tested" if "tested" in words else "proven"
        kind = held if "refuted" not in words else "refuted" if words == {"refuted"} else "conditional" if held == "proven" else "conditional, tested"
        letters = "".join(_LETTERS[v.word] for _, v in those)
        yield Line(suite, rules, kind, condition(those) if kind.startswith("conditional") else "", letters)


def condition(those: Sequence[tuple[Entry, Verdict]]) -> str:
    """One or two words of settings under which nothing is refuted and that cover most of what is not; empty where there are none."""
    held = [set(e.setting.split()) for e, v in those if v.word != "refuted"]
    refuted = [set(e.setting.split()) for e, v in those if v.word == "refuted"]
    words = sorted(set().union(*held))
    best: tuple[int, str] = (0, "")
    for chosen in (*combinations(words, 1), *combinations(words, 2)):
        if not any(r.issuperset(chosen) for r in refuted):
            count = sum(h.issuperset(chosen) for h in held)
            if count > best[0]:
                best = count, " and ".join(chosen)
    return best[1]


def expected() -> list[Line]:
    """The stored lines."""
    return [Line(*line.split("\t")) for line in EXPECTED.read_text(encoding="utf-8").splitlines()]


def differences(before: Iterable[Line], after: Iterable[Line]) -> list[str]:
    """What is another than stored, in words."""
    old = {(line.suite, line.rules): line for line in before}
    new = {(line.suite, line.rules): line for line in after}
    return [f"{key[0]} {key[1]}:\n  expected {old.get(key)}\n  found    {new.get(key)}" for key in {**old, **new} if old.get(key) != new.get(key)]


def table(found: Sequence[Line]) -> str:
    """Rules by suite and kind, and how many expressions were compared."""
    rows = [f"{'':<12}{'rules':>7}" + "".join(f"{k:>{max(len(k) + 2, 10)}}" for k in KINDS) + f"{'pairs':>8}"]
    for suite in SUITES:
        those = [line for line in found if line.suite == suite]
        counts = Counter[str]()
        for line in those:
            counts[line.kind] += line.count
        numbers = "".join(f"{counts[k]:>{max(len(k) + 2, 10)}}" for k in KINDS)
        rows.append(f"{suite:<12}{sum(counts.values()):>7}{numbers}{sum(len(line.letters) for line in those):>8}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--accept", action="store_true", help="write the verdicts down as those that are expected")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    suites = [s for s in SUITES if s in options.suites] if options.suites else list(SUITES)
    found: list[Line] = []
    for suite in suites:
        began = time.monotonic()
        whole = entries(suite)
        compared = [e for e in whole if e.text]
        given = verdicts(compared, options.workers)
        found += lines(zip(compared, given, strict=True))
        found += [Line(suite, e.rules, "without shapes", "", "") for e in whole if not e.text]
        print(f"{suite}: {len(compared)} pairs in {time.monotonic() - began:.1f} s")
    print(table(found))
    if options.accept:
        kept = [line for line in expected() if line.suite not in suites] if EXPECTED.exists() else []
        EXPECTED.write_text("".join(f"{line.text()}\n" for line in (*kept, *found)), encoding="utf-8")
        return 0
    wrong = differences([line for line in expected() if line.suite in suites], found)
    print("\n".join(wrong) or "all as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
