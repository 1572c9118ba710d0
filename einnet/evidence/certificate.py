"""The certificate: what the rule-free checker says about every derivation that is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from einnet.derivation.checker.check import Proof, Untested, check, without_tests
from einnet.derivation.ranged import RangedFile, ranged
from einnet.derivation.steps import KINDS, Derivation, Step, worst
from einnet.errors import CertificateError, ParseError
from einnet.expr.nodes import exchange_in
from einnet.expr.resize import Resize
from einnet.graph.bundle import Bundle, bundles
from einnet.graph.program import Program
from einnet.graph.split import Subprogram

if TYPE_CHECKING:
    from einnet.search.outcome import Outcome


@dataclass(frozen=True)
class Entry:
    """One checked derivation, with a proof for every step. `matches` names the vendor operators that its end holds."""

    key: str
    derivation: Derivation
    proofs: tuple[Proof, ...]
    matches: tuple[str, ...] = ()

    @property
    def methods(self) -> dict[str, int]:
        """Steps by how they were proven: "inline" (symbolic) or "random" (exact values mod p)."""
        return dict(Counter(proof.method for proof in self.proofs))

    @property
    def kind(self) -> str:
        """The worst class of a step: as it says itself, or as the checker found where that is worse."""
        return worst((self.derivation.kind, *(p.kind for p in self.proofs)))


@dataclass(frozen=True)
class Certificate:
    """All derivations that a program uses, checked."""

    entries: tuple[Entry, ...]

    @property
    def steps(self) -> int:
        return sum(len(e.derivation.steps) for e in self.entries)

    def methods(self) -> dict[str, int]:
        """Steps by method of proof, over all entries."""
        return dict(sum((Counter(e.methods) for e in self.entries), Counter[str]()))


    def classes(self) -> dict[str, int]:
        """Steps by the numerical class that the checker found, from exact to precision; classes of which there are none are left out."""
        count = Counter(worst((s.kind, p.kind)) for e in self.entries for s, p in zip(e.derivation.steps, e.proofs, strict=True))
        return {kind: count[kind] for kind in KINDS if count[kind]}


def proofs(derivation: Derivation) -> tuple[Proof, ...]:
    """A proof for every step, by the checker; where no normal form tells, both sides are compared at points. Raises CertificateError at the first
    step that does not hold."""
    found = by_forms(derivation)
    return tested(derivation) if isinstance(found, Untested) else found


@lru_cache(maxsize=1024)
def by_forms(derivation: Derivation) -> tuple[Proof, ...] | Untested:
    """A proof for every step by normal forms, or which step is the first that has none. Raises CertificateError at one that does not hold."""
    try:
        with without_tests():
            return tuple(check(derivation))
    except Untested as error:
        return Untested(str(error), error.step)  # as it was raised it would keep all that it came through


@lru_cache(maxsize=1024)
def tested(derivation: Derivation) -> tuple[Proof, ...]:
    """A proof for every step, some of them of values at points."""
    return tuple(check(derivation))


@lru_cache(maxsize=1024)
def everywhere(derivation: Derivation, size: int) -> tuple[RangedFile, tuple[Proof, ...]] | None:
    """A derivation at a size, with a name for the size, and its one proof for every size; None where it has none."""
    try:
        text = ranged(derivation, (), size, "N", (1, 1), (1,))
    except ValueError:
        return None
    found = text.for_every_size()
    return None if isinstance(found, str) else (text, tuple(found))


def proofs_by(source: Derivation, resize: Resize, derivation: Derivation) -> tuple[Proof, ...] | None:
    """The proof for every size of `source`, a derivation at the old size, if it says just `derivation` at the new one; None where it does not."""
    found = everywhere(source, resize.old)
    if found is None:
        return None
    text, proven = found
    try:
        said = replace(text, sizes=(resize.new,)).at(resize.new).derivation
    except (CertificateError, ParseError):
        return None
    return proven if said == derivation else None


def certify(outcome: Outcome, known: Mapping[Derivation, tuple[Proof, ...]] = MappingProxyType({})) -> Certificate:
    """Replay every used derivation through the checker, but for those of `known` proofs.

    Raises CertificateError at the first step that does not hold.
    """
    entries: dict[str, Entry] = {}
    for r in outcome.results:
        key, form = r.subprogram.key, r.candidate.form
        if key not in entries and form.steps:
            proven = known.get(form.derivation) or proofs(form.derivation)
            entries[key] = Entry(key, form.derivation, proven, tuple(str(m) for _, m in form.matches))
    for derivation in (d for b in outcome.bundles for d in window_derivations(b)):
        key = derivation.start.key
        entries.setdefault(key, Entry(key, derivation, proofs(derivation)))
    return Certificate(tuple(entries.values()))


def window_derivations(bundle: Bundle) -> list[Derivation]:
    """For each part of a bundle with windows, that its expression is the window of the joint one: what the checker is to prove."""
    found = []
    for part, window in zip(bundle.parts, bundle.windows):
        after = exchange_in(window.scope, {bundle.joint.output.name: bundle.joint.expression})
        found.append(Derivation(part.expression, (Step("bundle", f"parts={len(bundle.parts)}", part.expression, after),)))
    return found


def bundle_keys(program: Program, parts: list[Subprogram]) -> set[str]:
    """Keys of the expressions of all bundles that a program of these subprograms has."""
    return {b.joint.key for b in bundles(program, parts)}
