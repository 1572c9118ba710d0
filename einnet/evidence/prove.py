"""Lifted subprograms proven: equal to the model's expression, without the derivations; and computed as the derivation of each says."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from einnet.derivation.check import Proof, check_equal, check_exact
from einnet.derivation.steps import Derivation, replace_at
from einnet.errors import CertificateError
from einnet.evidence.lift import Lifted, Lifting, over
from einnet.evidence.normal import flat, with_unit_reads
from einnet.expr.inline import OutOfReach, inline
from einnet.expr.nodes import Read, Scope, Tensor, map_reads, nested, tensors
from einnet.graph.rewrite import exchange_in
from einnet.graph.split import anonymous

NORMAL, CHAIN, POINTS = "normal form", "derivation", "points"
"""How a subprogram is known to be the model's: by normal forms, by the derivation, proven step by step, that ends at it, or tested at points."""

BUNDLE = "bundle"
"""The rule of the step that says of a part of a bundle where in the joint tensor it stands."""


ELSEWHERE = "is computed otherwise than where its derivation ends"
UNTOLD = "is computed otherwise than in the model, and no derivation says how"


@dataclass(frozen=True)
class Known:
    """A derivation of the certificate that holds: all steps proven by normal forms, or some only tested at points."""

    derivation: Derivation
    proven: bool


@dataclass(frozen=True)
class Verdict:
    """What is known of one tensor: `method` how, empty where there is a `problem`. `derived`: a derivation says how it is computed."""

    output: str
    method: str = ""
    problem: str = ""
    derived: bool = False
    steps: int = 0
    details: str = ""


def prove(lifting: Lifting, known: Mapping[str, Known], until: float = inf) -> list[Verdict]:
    """A verdict for each lifted tensor, as far as time.monotonic() is `until` then.

    `known` are the derivations by the key of what they start from, its tensors named by occurrence.
    """
    return [verdict(lifted, known) for lifted in lifting.found.values() if time.monotonic() < until]


def verdict(lifted: Lifted, known: Mapping[str, Known]) -> Verdict:
    """What is known of one tensor."""
    if lifted.reason:
        return Verdict(lifted.output, problem=f"is not lifted: {lifted.reason}")
    end, used = ending(lifted.expression, known)
    methods, details = [], []
    for claim in lifted.claims:
        try:
            told = compared(claim.of(lifted.expression), claim.of(end), claim.plan, all(k.proven for k in used))
        except CertificateError as error:
            return Verdict(lifted.output, problem=f"is not what the model has: {shortened(error)}")
        try:
            alike(claim.of(end), claim.plan)
        except CertificateError as error:
            return Verdict(lifted.output, problem=f"{ELSEWHERE if used else UNTOLD}: {shortened(error)}")
        methods.append(told[0])
        details.append(told[1])
    method = max(methods, key=(NORMAL, CHAIN, POINTS).index, default=NORMAL)
    steps = sum(len(k.derivation.steps) for k in used)
    return Verdict(lifted.output, method, derived=bool(used), steps=steps, details="; ".join(dict.fromkeys(details)))


def compared(model: Scope, end: Scope, plan: Scope, proven: bool) -> tuple[str, str]:
    """How a plan's expression is known to be the model's, and details; `end` is where the derivation ends, all of whose steps are `proven` or not.

    Raises CertificateError where it is another one.
    """
    if same_normal_form(model, plan):
        return NORMAL, "equal normal forms"
    if all(same_normal_form(*pair) for pair in pairs(end, plan)):
        if end == model:
            return NORMAL, "equal normal forms, part by part"
        if proven:
            return CHAIN, "equal to where its derivation ends"
    proof = equal(model, plan)
    return (NORMAL if proof.method == "inline" else POINTS), proof.details


def ending(expression: Scope, known: Mapping[str, Known]) -> tuple[Scope, tuple[Known, ...]]:
    """Where the derivation of an expression ends, and which were used: none where there is no derivation of it.

    Of a part of a bundle it is the part of where the derivation of the joint tensor ends.
    """
    found = known.get(anonymous(expression).key)
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


def shortened(error: CertificateError) -> str:
    """The first line of a message."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def equal(model: Scope, plan: Scope) -> Proof:
    """A proof that two expressions are one tensor; names of tensors are no part of it. Raises CertificateError."""
    return _equal(*renamed((model, plan)))


def alike(end: Scope, plan: Scope) -> None:
    """Raise CertificateError unless two expressions, known to be one tensor, add and multiply the same numbers in the same groups."""
    for one, other in pairs(end, plan):
        _alike(*renamed((one, other)))


def same_normal_form(one: Scope, other: Scope) -> bool:
    """Two expressions are one tensor by their normal forms."""
    return one.box == other.box and _same_normal_form(*renamed((one, other)))


@lru_cache(maxsize=1 << 12)
def _same_normal_form(one: Scope, other: Scope) -> bool:
    one, other = with_unit_reads(one), with_unit_reads(other)
    try:
        return one.key == other.key or inline(one).key == inline(other).key
    except OutOfReach:
        return False


@lru_cache(maxsize=1 << 10)
def pairs(end: Scope, plan: Scope) -> tuple[tuple[Scope, Scope], ...]:
    """Two expressions taken apart: scopes inside both that are one tensor, and last the whole with these as tensors.

    Where all pairs are equal, the whole is.
    """
    cut: dict[Scope, Tensor] = {}
    found: list[tuple[Scope, Scope]] = []
    ends = inside(end)
    for scope in inside(plan):
        mine = replaced(scope, cut)
        for other in ends:
            theirs = replaced(other, cut)
            free = other not in cut and scope not in cut and scope.shape == other.shape
            if free and (scope == other or same_normal_form(theirs, over(theirs, mine))):
                tensor = Tensor(f"cut{len(found)}", scope.shape)
                found.append((theirs, over(theirs, mine)))
                cut[scope] = cut[other] = tensor
                break
    return (*found, (replaced(end, cut), replaced(plan, cut)))


def inside(scope: Scope) -> list[Scope]:
    """The distinct scopes inside, those first that others read."""
    found: dict[Scope, None] = {}
    for s in nested(scope):
        found.update(dict.fromkeys((*inside(s), s)))
    return list(found)


def replaced(scope: Scope, cut: Mapping[Scope, Tensor]) -> Scope:
    """The scope with some of those that it reads, at any depth, as tensors."""

    def swap(r: Read) -> Read:
        if isinstance(r.base, Tensor):
            return r
        if r.base in cut:
            return Read(cut[r.base], tuple(ix - lo for ix, (lo, _) in zip(r.index, r.base.box, strict=True)), r.fill)
        return Read(replaced(r.base, cut), r.index, r.fill)

    return replace(scope, body=map_reads(scope.body, swap))


@lru_cache(maxsize=1 << 12)
def _alike(end: Scope, plan: Scope) -> Proof:
    if with_unit_reads(end).key == with_unit_reads(plan).key:
        return Proof("inline", "equal but for names and order")
    return check_exact(flat(with_unit_reads(end)), flat(with_unit_reads(plan)), _equal(end, plan))


@lru_cache(maxsize=1 << 12)
def _equal(model: Scope, plan: Scope) -> Proof:
    return check_equal(with_unit_reads(model), with_unit_reads(plan))


def renamed(scopes: Iterable[Scope]) -> list[Scope]:
    """The scopes with tensors named alike, by first occurrence in all of them."""
    scopes = list(scopes)
    found = {name: t for s in scopes for name, t in tensors(s).items()}
    return [exchange_in(s, {name: replace(t, name=f"t{n}") for n, (name, t) in enumerate(found.items())}) for s in scopes]
