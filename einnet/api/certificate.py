"""The certificate: what the rule-free checker says about every derivation that is used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from einnet.api.bundling import window_derivations
from einnet.derivation.check import Proof, check
from einnet.derivation.steps import Derivation

if TYPE_CHECKING:
    from einnet.api.pipeline import Outcome


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
        return self.derivation.kind


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


@lru_cache(maxsize=1024)
def proofs(derivation: Derivation) -> tuple[Proof, ...]:
    """A proof for every step, by the checker. Raises CertificateError at the first step that does not hold."""
    return tuple(check(derivation))


def certify(outcome: Outcome) -> Certificate:
    """Replay every used derivation through the checker. Raises CertificateError at the first step that does not hold."""
    entries: dict[str, Entry] = {}
    for r in outcome.results:
        key, form = r.subprogram.key, r.candidate.form
        if key not in entries and form.steps:
            entries[key] = Entry(key, form.derivation, proofs(form.derivation), tuple(str(m) for _, m in form.matches))
    for derivation in (d for b in outcome.bundles for d in window_derivations(b)):
        key = derivation.start.key
        entries.setdefault(key, Entry(key, derivation, proofs(derivation)))
    return Certificate(tuple(entries.values()))
