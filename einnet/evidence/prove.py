"""Lifted subprograms proven: equal to the model's expression, without the derivations; and computed as the derivation of each says."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from einnet.derivation.checker.check import check_equal
from einnet.derivation.steps import Derivation, replace_at
from einnet.errors import CertificateError
from einnet.evidence.comparison.refute import refuted
from einnet.evidence.lift import Lifted, Lifting
from einnet.evidence.normal import with_unit_reads
from einnet.evidence.report.told import Tell, each, silent
from einnet.evidence.sides import MOST_TERMS, equal_by_parts, grouped
from einnet.expr.nodes import Scope, exchange_in, nested, tensors
from einnet.expr.normal.limits import OutOfTime, at_most
from einnet.expr.normal.limits import until as ending_at
from einnet.graph.rewrite import anonymous

NORMAL, CHAIN, POINTS = "normal form", "derivation", "points"
"""How a subprogram is known to be the model's: by normal forms, by the derivation, proven step by step, that ends at it, or tested at points."""

BUNDLE = "bundle"
"""The rule of the step that says of a part of a bundle where in the joint tensor it stands."""


OTHER = "is not what the model has"
ELSEWHERE = "is computed otherwise than where its derivation ends"
UNTOLD = "is computed otherwise than in the model, and no derivation says how"


@dataclass(frozen=True)
class Known:
    """A derivation of the certificate that holds: all steps proven by normal forms, or some only tested at points."""

    derivation: Derivation
    proven: bool


def by_start(derivations: Iterable[Known]) -> dict[str, Known]:
    """Derivations by the keys of what they start from: as it is, and with its tensors named by occurrence. What layers have alike has one for all;
    parts of a bundle that are alike but for their tensors stand in different places of the joint one."""
    found: dict[str, Known] = {}
    for one in derivations:
        start = one.derivation.start
        found |= {anonymous(start).key: one, start.key: one}
    return found


@dataclass(frozen=True)
class Verdict:
    """What is known of one tensor: `method` how, empty where there is a `problem`. `derived`: a derivation says how it is computed."""

    output: str
    method: str = ""
    problem: str = ""
    derived: bool = False
    steps: int = 0
    details: str = ""


def prove(lifting: Lifting, known: Mapping[str, Known], until: float = inf, tell: Tell = silent) -> list[Verdict]:
    """A verdict for each lifted tensor, as far as it is told before time.monotonic() is `until`.

    `known` are the derivations as `by_start` has them.
    """
    found: list[Verdict] = []
    with suppress(OutOfTime), ending_at(until):
        for lifted in each([*lifting.found.values()], "subprogram", tell):
            if time.monotonic() >= until:
                break
            found.append(verdict(lifted, known))
    return found


def verdict(lifted: Lifted, known: Mapping[str, Known]) -> Verdict:
    """What is known of one tensor."""
    if lifted.reason:
        return Verdict(lifted.output, problem=f"is not lifted: {lifted.reason}")
    end, used = ending(lifted.expression, known)
    if lifted.inside and not used:
        end, used = ending_by_parts(lifted.output, lifted.parts, known)
    if lifted.series:
        found = claimed(replace(lifted, claims=lifted.series), end, used, lifted.aliases)
        if not found.problem:
            return found
    found = claimed(lifted, end, used, lifted.aliases)
    if found.problem and lifted.joined:
        found = claimed(lifted, end, used, {**lifted.joined, **lifted.aliases})
    return found


def claimed(lifted: Lifted, end: Scope, used: Sequence[Known], told: Mapping[str, Scope]) -> Verdict:
    """What is known of one tensor, its parts told by others."""
    methods, details = [], []
    model, end = (through(s, told) for s in (lifted.expression, end))
    for claim in lifted.claims:
        plan = through(claim.plan, told)
        method, told_how, problem = compared(*renamed((claim.of(model), claim.of(end), plan)), all(k.proven for k in used))
        if problem:
            return Verdict(lifted.output, problem=problem.replace(ELSEWHERE, ELSEWHERE if used else UNTOLD))
        methods.append(method)
        details.append(told_how)
    method = max(methods, key=(NORMAL, CHAIN, POINTS).index, default=NORMAL)
    steps = sum(len(k.derivation.steps) for k in used)
    return Verdict(lifted.output, method, derived=bool(used), steps=steps, details="; ".join(dict.fromkeys(details)))


def through(scope: Scope, told: Mapping[str, Scope]) -> Scope:
    """The scope with tensors told by others, and these by others again."""
    while told and not tensors(scope).keys().isdisjoint(told):
        scope = exchange_in(scope, told)
    return scope


@lru_cache(maxsize=1 << 12)
def compared(model: Scope, end: Scope, plan: Scope, proven: bool) -> tuple[str, str, str]:
    """How a plan's expression is known to be the model's, and details; `end` is where the derivation ends, all of whose steps are `proven` or not.

    Else a problem, the third: it is another tensor, or it is computed otherwise than where its derivation ends.
    """
    model, end, plan = map(with_unit_reads, (model, end, plan))
    differing = refuted(model, plan)
    if differing:
        return "", "", f"{OTHER}: {differing}"
    try:
        alike = grouped(end, plan).method == "inline"
        problem = ""
    except CertificateError as error:
        alike, problem = False, f"{ELSEWHERE}: {shortened(error)}"
    if equal_by_parts(model, plan):
        return NORMAL, "equal normal forms", problem
    if end.key == model.key and (alike or equal_by_parts(end, plan)):
        return NORMAL, "equal normal forms, part by part", problem
    if proven and (alike or equal_by_parts(end, plan)):
        return CHAIN, "equal to where its derivation ends", problem
    try:
        with at_most(MOST_TERMS):
            proof = check_equal(model, plan)
    except CertificateError as error:
        return "", "", f"{OTHER}: {shortened(error)}"
    return NORMAL if proof.method == "inline" else POINTS, proof.details, problem


def ending(expression: Scope, known: Mapping[str, Known]) -> tuple[Scope, tuple[Known, ...]]:
    """Where the derivation of an expression ends, and which were used: none where there is no derivation of it.

    Of a part of a bundle it is the part of where the derivation of the joint tensor ends.
    """
    found = known.get(expression.key) or known.get(anonymous(expression).key)
    if found is None:
        return expression, ()
    names = dict(zip(tensors(found.derivation.start), tensors(expression).values(), strict=True))
    end = exchange_in(found.derivation.end, names)
    if not any(s.rule == BUNDLE for s in found.derivation.steps):
        return end, (found,)
    used = [found]
    for n, joint in enumerate(nested(end)):
        inner, more = ending(joint, known)
        end, used = replace_at(end, (n,), inner), [*used, *more]
    return end, tuple(used)


def ending_by_parts(output: str, parts: Mapping[str, Scope], known: Mapping[str, Known]) -> tuple[Scope, tuple[Known, ...]]:
    """Where the derivations of a tensor and of those inside it end, each written into what reads it; and which were used."""
    end, used = ending(parts[output], known)
    inner = {t: ending_by_parts(t, parts, known) for t in tensors(end) if t in parts}
    return exchange_in(end, {t: e for t, (e, _) in inner.items()}), (*used, *(k for _, more in inner.values() for k in more))


def shortened(error: CertificateError) -> str:
    """The first line of a message."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def renamed(scopes: Iterable[Scope]) -> list[Scope]:
    """The scopes with tensors named alike, by first occurrence in all of them; those that carry their values are one where these are equal."""
    scopes = list(scopes)
    found = {name: t for s in scopes for name, t in tensors(s).items()}
    known: dict[object, str] = {}
    names = {name: known.setdefault((t.shape, t.values) if t.values is not None else name, f"t{n}") for n, (name, t) in enumerate(found.items())}
    return [exchange_in(s, {name: replace(t, name=names[name]) for name, t in found.items()}) for s in scopes]
