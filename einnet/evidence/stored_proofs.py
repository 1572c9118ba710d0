"""What a stored program tells of derivations: every one that it stands on as `.ein` text, and how each step was proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from einnet.derivation import einfile
from einnet.derivation.checker.check import Proof
from einnet.evidence.certificate import Certificate, Entry
from einnet.evidence.report.assemble import reported
from einnet.runtime.sealed import reading

if TYPE_CHECKING:
    from einnet.derivation.steps import Derivation
    from einnet.evidence.certificate import Certificate
    from einnet.evidence.exercise import Runner
    from einnet.evidence.lift import Lifting
    from einnet.evidence.numbers import Observed
    from einnet.instantiate.kernels import Plan
    from einnet.search.outcome import Outcome

Array = np.ndarray[Any, np.dtype[Any]]


class Stored(Protocol):
    """A program for one size from disk, for whatever device."""

    path: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report of the optimization, as `--json` writes it."""

    @property
    def certificate(self) -> Certificate:
        """The derivations, and how each step was proven when the program was made."""

    @property
    def considered(self) -> list[Considered]:
        """The derivations of the candidates that the report tells of and that do not run. They have not been checked."""

    @property
    def plan(self) -> Plan:
        """What runs."""

    @property
    def written(self) -> dict[str, Any] | None:
        """What it tells of the kernels of which a model was written that runs in their place; None where there is none."""

    @property
    def card(self) -> dict[str, Any]:
        """What is told of it beside its subprograms, where it is for a card: its device and its steps."""

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of every input, by name, in the model's order."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs, in the model's order."""

    @property
    def threads(self) -> int:
        """What ONNX Runtime uses beside it."""

    @property
    def vendor(self) -> str:
        """What is trusted to compute what it says."""

    @property
    def runner(self) -> Runner:
        """Runs its kernels one by one."""

    def observing(self, lifting: Lifting) -> Observed:
        """Runs it and tells what it held of the tensors of the model that were lifted."""

    def overlaps(self) -> list[str]:
        """What lies in one place of memory while both are needed."""

    def tried(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
        """Outputs by name, and in words what ran the program."""

    def execute(self, plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run another plan once, where this program runs."""


@dataclass(frozen=True)
class Considered:
    """A derivation that does not run: `candidate` is its place among the candidates that the report lists for the subprogram `key`."""

    key: str
    candidate: int
    derivation: Derivation
    matches: tuple[str, ...]


def derivations_told(outcome: Outcome, certificate: Certificate) -> tuple[dict[str, object], list[str]]:
    """What a stored program tells of derivations, `certificate` and `considered`, and their texts: first those that it stands on."""
    texts = [einfile.write(e.derivation, e.matches) for e in certificate.entries]
    considered: list[dict[str, object]] = []
    for r in {r.subprogram.key: r for r in outcome.results}.values():
        for n, c in enumerate(reported(r.choice)):
            if c is not r.candidate and c.form.steps:
                considered.append({"key": r.subprogram.key, "candidate": n})
                texts.append(einfile.write(c.form.derivation, c.form.operators()))
    return {"certificate": certificate_json(certificate), "considered": considered}, texts


def considered_of(path: Path, texts: Sequence[str], metadata: Mapping[str, Any]) -> list[Considered]:
    """The derivations in a file of candidates that do not run, of what `derivations_told` gave. Raises ArtifactError."""
    with reading(path):
        files = map(einfile.parse, texts[len(metadata["certificate"]) :])
        recorded = metadata["considered"]
        return [Considered(str(r["key"]), int(r["candidate"]), file.derivation, file.matches) for r, file in zip(recorded, files)]


def certificate_json(certificate: Certificate) -> list[dict[str, object]]:
    """How each step was proven; the derivations themselves are stored as text."""
    return [{"key": e.key, "proofs": [[p.method, p.details, p.points, p.kind] for p in e.proofs]} for e in certificate.entries]


def recorded_certificate(path: Path, texts: Sequence[str], recorded: Sequence[Mapping[str, Any]]) -> Certificate:
    """The derivations in a file, one for each record, and how their steps were proven when the program was made. Raises ArtifactError."""
    entries = []
    with reading(path):
        for text, record in zip(texts, recorded):
            file = einfile.parse(text)
            entries.append(Entry(str(record["key"]), file.derivation, tuple(Proof(*p) for p in record["proofs"]), file.matches))
    return Certificate(tuple(entries))
