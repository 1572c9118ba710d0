"""What the checker says of many pairs, before a change of it and after: whether a change that no test notices could let something wrong pass.

The pairs are those of the tests, and random ones that the tests do not have. A change is

- `unsound` where it accepts a pair that is refuted by values, refutes one that is proven, tells a stricter class, or proves what was only tested;
- `broken` where the checker ends otherwise than with a verdict;
- `cautious` where it only proves or tells less of some pairs;
- `alike` where all verdicts are the same.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random

from einnet.derivation.checker.check import Difference, check_bound, check_equal, check_exact
from einnet.derivation.rules import RULES
from einnet.errors import CertificateError, UsageError
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from tests.derivation import test_check, test_exact, test_oracle, test_rules
from tests.derivation.pairs import false_pairs, proven_pairs, true_pairs
from tests.search.mutations import mutants
from tests.strategies import random_scope

RANDOM = range(7_000, 7_060)
"""Seeds of random pairs; those of the tests are others."""

SLOWEST = 0.05
"""Processor seconds of a verdict, as it takes unchanged; what takes longer is left out."""

Verdict = tuple[str, str]
"""`refuted`, `not told`, `tested`, `proven` or an error's name; and the class of what is accepted."""

STRICT = ("exact", "reassociation", "precision")
ACCEPTED = ("tested", "proven")


@dataclass(frozen=True)
class Judged:
    """A pair and what the unchanged checker says of it."""

    title: str
    before: Scope
    after: Scope
    verdict: Verdict
    seconds: float


def verdict(before: Scope, after: Scope) -> Verdict:
    """What the checker says; a class is asked for from the strictest on."""
    try:
        proof = check_equal(before, after)
        method = "proven" if proof.method == "inline" else "tested"
        for ask in (check_exact, lambda *given: check_bound(*given[:2], 1.0, given[2])):
            try:
                found = ask(before, after, proof)
            except Difference:
                continue
            if found.kind != STRICT[-1]:
                return method, found.kind
        return method, STRICT[-1]
    except Difference:
        return "refuted", ""
    except (CertificateError, UsageError):
        return "not told", ""
    except Exception as error:
        return type(error).__name__, ""


def pairs() -> Iterator[tuple[str, Scope, Scope]]:
    """The pairs of the tests, then random ones: expressions of every kind with one change each, and true rewrites."""
    for family in (false_pairs, true_pairs, proven_pairs):
        for title, (declared, before, after) in family():
            yield title, parse(declared + before), parse(declared + after)
    for title, (before, after) in (*test_exact.REGROUPED.items(), *test_exact.ALIKE.items()):
        yield title, parse(test_exact.DECLARED + before), parse(test_exact.DECLARED + after)
    for title, (declared, whole, pieces, old, new) in test_check.PIECES.items():
        for text in (pieces, pieces.replace(old, new, 1)):
            yield title, parse(declared + whole), parse(declared + text)
    for title, number, old, new in test_check.MUTANTS:
        states = list(test_check.chain(test_check.CHAINS[title]).states())
        declared = str(states[0]).rpartition("\n")[0]
        yield f"{title}: {old}", states[number - 1], states[number]
        yield f"{title}: {old} -> {new}", states[number - 1], parse(f"{declared}\n{states[number].text().replace(old, new, 1)}")
    yield from drawn(RANDOM)


def drawn(seeds: Sequence[int]) -> Iterator[tuple[str, Scope, Scope]]:
    """Pairs of random expressions."""
    sources = test_rules.sources(400)
    for seed in seeds:
        rng = Random(seed)
        scope = test_oracle.random_scope(rng)
        yield f"rewritten {seed}", scope, replace(scope, body=test_oracle.rewritten(rng, scope.body))
        yield f"changed {seed}", scope, replace(scope, body=test_oracle.mutated(rng, scope.body))
        general = random_scope(rng, 2)
        for kind, after in rng.sample(all_ := list(mutants(general)), min(len(all_), 4)):
            yield f"{kind} {seed}", general, after
        source, rule = rng.choice(sources), rng.choice(RULES)
        for result in islice(rule.rewrites(source), 2):
            yield f"{rule.name} {seed}", source, result.scope
            for kind, after in rng.sample(all_ := list(mutants(result.scope)), min(len(all_), 2)):
                yield f"{rule.name} {seed}, {kind}", source, after


def judged(cache: Path | None = None) -> list[Judged]:
    """The pairs with their verdicts, as a former run has stored them where there was one."""
    if cache is not None and cache.exists():
        return list(pickle.loads(cache.read_bytes()))
    found: list[Judged] = []
    for title, before, after in pairs():
        if before.box != after.box:
            continue
        began = time.process_time()
        said = verdict(before, after)
        seconds = time.process_time() - began
        if seconds <= SLOWEST and said[0] in ("refuted", "not told", *ACCEPTED):
            found.append(Judged(title, before, after, said, seconds))
    if cache is not None:
        cache.write_bytes(pickle.dumps(found))
    return found


def compared(known: Sequence[Judged]) -> tuple[str, str]:
    """The class of the change that the checker has now, and the first pair that shows it."""
    worst = ("alike", "")
    for pair in known:
        now = verdict(pair.before, pair.after)
        if now == pair.verdict:
            continue
        shown = f"{pair.title}: {' '.join(pair.verdict).strip()} -> {' '.join(now).strip()}"
        if now[0] not in ("refuted", "not told", *ACCEPTED):
            return "broken", shown
        if dangerous(pair.verdict, now):
            return "unsound", shown
        worst = ("cautious", worst[1] or shown)
    return worst


def dangerous(before: Verdict, now: Verdict) -> bool:
    """More is accepted than was, or a proven pair refuted."""
    if now[0] == "refuted":
        return before[0] == "proven"
    if now[0] not in ACCEPTED:
        return False
    if before[0] not in ACCEPTED:
        return True
    return ACCEPTED.index(now[0]) > ACCEPTED.index(before[0]) or STRICT.index(now[1]) < STRICT.index(before[1])
