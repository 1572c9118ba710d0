"""What an optimization for a range of sizes tells: its derivations with the size as a name, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from einnet.compile.budget import exceeded
from einnet.derivation import einfile
from einnet.derivation.ranged import RangedFile, ranged, spans
from einnet.evidence.report.assemble import asked
from einnet.evidence.report.ranged_schema import GuardRow, Guards, Range, RangedDerivation, RangedReport, SizeRow
from einnet.evidence.report.versions import versions
from einnet.graph.dimension import Dimension

if TYPE_CHECKING:
    from einnet.compile.ranges.family import Family
    from einnet.compile.ranges.follow import Guard
    from einnet.compile.ranges.found import AtOneSize, Used
    from einnet.search.settings import Settings

TOLD = 20
"""Guards that a report tells of at most; all are counted."""


def symbols(name: str) -> list[str]:
    """Names that a dimension may have in a derivation: its own if it is an identifier, others where that is taken."""
    own = name if name.isidentifier() and name.isascii() else "N"
    return [own, own.upper(), *(f"{own}_{n}" for n in range(1, 9))]


def certificate_text(used: Used, representative: int, dimension: Dimension) -> RangedFile:
    """The derivation of a form with the size as a name; one of a single size as it is. Raises ValueError where no name is free."""
    matches = [str(m) for _, m in used.form.matches]
    if used.own:
        text = einfile.write(used.form.derivation, matches)
        return RangedFile(symbols(dimension.name)[0], dimension.lowest, dimension.highest, tuple(used.sizes), text)
    for name in symbols(dimension.name):
        try:
            return ranged(used.form.derivation, matches, representative, name, (dimension.lowest, dimension.highest), used.sizes)
        except ValueError:
            continue
    raise ValueError(f"no name is free for {dimension.name}")


def build(
    title: str, dimension: Dimension, settings: Settings, family: Family, sizes: Mapping[int, AtOneSize], texts: Sequence[RangedFile],
    guards: Sequence[Guard], seconds: Mapping[str, float],
) -> RangedReport:  # fmt: skip
    """The report: what every size runs and how it compares, the derivations and where they hold, and what does not come over and why.

    `seconds` are those of each part of the run.
    """
    total = sum(seconds.values())
    late = exceeded(total, settings)
    parts = ", ".join(f"{part} {took:.1f} s" for part, took in seconds.items())
    shapes = {name: list(shape) for name, shape in settings.shapes.items()}
    return RangedReport(
        model=title,
        backend=settings.backend,
        threads=settings.threads,
        versions=versions(),
        settings=asked(settings),
        dynamic=Range(**dimension._asdict(), representative=family.representative, problem=family.problem, shapes=shapes),
        sizes={str(size): size_report(found) for size, found in sizes.items()},
        derivations=[derivation_report(d) for d in texts],
        guards=guard_report(guards),
        seconds=dict(seconds),
        total_s=total,
        notes=[f"{note} ({parts})" for note in late],
    )


def size_report(found: AtOneSize) -> SizeRow:
    """One size: measured, or as which measured size."""
    return SizeRow(
        follows=found.follows, verification=found.verification, proven_nodes=found.proven, problem=found.problem,
        kernels=len(found.stored.plan.kernels), report=found.report,
    )  # fmt: skip


def derivation_report(text: RangedFile) -> RangedDerivation:
    """A derivation: its start, how many steps, their worst class, the sizes at which it runs, and by what proof it holds there."""
    derivation = text.at(text.sizes[0]).derivation
    start = next(line for line in text.body.splitlines() if line.startswith("from "))
    holds = text.holds(text.for_every_size())
    return RangedDerivation(start=start[5:], steps=len(derivation.steps), kind=derivation.kind, sizes=spans(text.sizes), holds=holds)


def guard_report(guards: Sequence[Guard]) -> Guards:
    """How many forms did not come over to a size, and the first reasons."""
    reasons = Counter((g.size, g.why.splitlines()[0] if g.why else "", g.rules) for g in guards)
    told = [GuardRow(size=size, why=why, rules=list(rules), times=n) for (size, why, rules), n in reasons.items()][:TOLD]
    return Guards(count=len(guards), told=told)


def passed(report: RangedReport) -> bool:
    """Every size agrees with ONNX Runtime."""
    return all(size.verification.passed for size in report.sizes.values())


def worst(report: RangedReport) -> float:
    """The greatest error of all sizes, relative to max|y|."""
    return max(size.verification.max_rel for size in report.sizes.values())
