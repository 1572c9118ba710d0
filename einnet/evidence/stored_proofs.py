"""What a stored program tells of derivations: every one that it stands on as `.ein` text, and how each step was proven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from einnet.derivation import einfile
from einnet.derivation.checker.check import Proof
from einnet.errors import ArtifactError
from einnet.evidence.certificate import Certificate, Entry
from einnet.evidence.report.assemble import reported
from einnet.evidence.report.plain import plain
from einnet.records import Record, as_json, read
from einnet.runtime.sealed import reading
from einnet.search.outcome import taking

if TYPE_CHECKING:
    from einnet.derivation.steps import Derivation
    from einnet.evidence.certificate import Certificate
    from einnet.evidence.exercise import Runner
    from einnet.evidence.lift import Lifting
    from einnet.evidence.numbers import Observed
    from einnet.evidence.pages.story import Proven as Told
    from einnet.evidence.pages.story import Reasons
    from einnet.evidence.pages.story_schema import Base
    from einnet.evidence.report.card_schema import AnyReport
    from einnet.instantiate.kernels import Plan
    from einnet.search.outcome import Outcome, Result

Array = np.ndarray[Any, np.dtype[Any]]


class Stored(Protocol):
    """A program for one size from disk, for whatever device."""

    path: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report of the optimization, as `--json` writes it."""

    @property
    def record(self) -> AnyReport:
        """The same with its types. Raises ArtifactError for one that is none."""

    def story(self, considered: Iterable[tuple[int, Told]] = (), reasons: Reasons | None = None) -> Base:
        """The report, joined with the derivations."""

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
    def written(self) -> Written | None:
        """What it tells of the kernels of which a model was written that runs in their place; None where there is none."""

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


MOST_CONSIDERED = 256
"""Derivations that are stored of candidates that do not run: they are most of what is written, and nobody reads thousands of them."""

MOST_TEXT = 1 << 24
"""Characters of these: no more is begun beyond. Those of a large part have up to millions each, and writing ten times as many takes seconds."""


@dataclass(frozen=True)
class Considered:
    """A derivation that does not run: `candidate` is its place among the candidates that the report lists for the subprogram `key`."""

    key: str
    candidate: int
    derivation: Derivation
    matches: tuple[str, ...]


class Written(Record):
    """The kernels of which a model was written: a plan without the values of its constants, models of opaque nodes in base 85, inputs' shapes."""

    plan: Any
    models: list[str]
    shapes: dict[str, list[int]]


class Recorded(Record):
    """How the steps of a derivation were proven, each as a `Proof`; the derivation itself is stored as text."""

    key: str
    proofs: list[list[str | int]]


class ConsideredRow(Record):
    """A candidate of which a derivation is stored, though it does not run."""

    key: str
    candidate: int


class Metadata(Record):
    """What a stored program tells of its making; a program for a card may tell nothing.

    `written` are the kernels of which a model was written that runs in their place.
    """

    report: dict[str, Any] | None = None
    certificate: list[Recorded] | None = None
    considered: list[ConsideredRow] | None = None
    written: Written | None = None


def metadata_of(path: Path, stored: Mapping[str, Any]) -> Metadata:
    """What a program tells of its making. Raises ArtifactError for what is none of it."""
    try:
        return read(Metadata, stored)
    except ValueError as error:
        raise ArtifactError(f"{path} holds a program but no report of an optimization: {error}") from error


def metadata_json(report: AnyReport, outcome: Outcome, certificate: Certificate, written: Written | None = None) -> tuple[dict[str, Any], list[str]]:
    """What a stored program tells of its making, and the texts of derivations: first those that it stands on."""
    considered, more = considered_told(outcome)
    told = Metadata(report=as_json(report), certificate=certificate_rows(certificate), considered=considered, written=written)
    found: dict[str, Any] = plain(told)
    return found, [*(einfile.write(e.derivation, e.matches) for e in certificate.entries), *more]


def considered_told(outcome: Outcome) -> tuple[list[ConsideredRow], list[str]]:
    """Candidates that do not run and were derived, of what takes longest first, and their derivations as text: at most `MOST_CONSIDERED`, and
    `MOST_TEXT` of it but for the last."""
    alike: dict[str, list[Result]] = {}
    for r in outcome.results:
        alike.setdefault(r.key, []).append(r)
    rest = ((r[0], n, c) for r in sorted(alike.values(), key=longest) for n, c in enumerate(reported(r[0].choice)) if c is not r[0].candidate)
    rows: list[ConsideredRow] = []
    texts: list[str] = []
    left = MOST_TEXT
    for r, n, c in islice((told for told in rest if told[2].form.steps), MOST_CONSIDERED):
        if left <= 0:
            break
        rows.append(ConsideredRow(key=r.key, candidate=n))
        texts.append(einfile.write(c.form.derivation, c.form.operators()))
        left -= len(texts[-1])
    return rows, texts


def longest(alike: Sequence[Result]) -> float:
    """Least of equal subprograms that take longest together; those of which no time is known come last."""
    seconds = len(alike) * taking(alike[0].choice.original)
    return -seconds if seconds < inf else 0.0


def considered_of(path: Path, texts: Sequence[str], metadata: Metadata) -> list[Considered]:
    """The derivations in a file of candidates that do not run. Raises ArtifactError."""
    with reading(path):
        files = map(einfile.parse, texts[len(metadata.certificate or ()) :])
        return [Considered(r.key, r.candidate, file.derivation, file.matches) for r, file in zip(metadata.considered or (), files)]


def certificate_rows(certificate: Certificate) -> list[Recorded]:
    """How each step was proven; the derivations themselves are stored as text."""
    return [Recorded(key=e.key, proofs=[[p.method, p.details, p.points, p.kind] for p in e.proofs]) for e in certificate.entries]


def recorded_certificate(path: Path, texts: Sequence[str], recorded: Sequence[Recorded]) -> Certificate:
    """The derivations in a file, one for each record, and how their steps were proven when the program was made. Raises ArtifactError."""
    entries = []
    with reading(path):
        for text, record in zip(texts, recorded):
            file = einfile.parse(text)
            entries.append(Entry(record.key, file.derivation, tuple(map(proof_of, record.proofs)), file.matches))
    return Certificate(tuple(entries))


def proof_of(stored: Sequence[str | int]) -> Proof:
    """A proof as it is stored: its method, details, points and, since there are classes, what the checker found."""
    return read(Proof, dict(zip(Proof.__dataclass_fields__, stored)))
