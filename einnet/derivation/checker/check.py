"""The checker of derivations. It knows no rule: it compares what two expressions mean.

First the keys of the inlining normal forms, of the whole or of parts that cover it; where these differ, both sides are evaluated at the same
points modulo 2^61 - 1 with pseudo-random tensors at the real extents. A difference there is a proof of inequality (up to identities of
transcendental functions); none is evidence only, and the proof says so. See derivation.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from einnet.derivation.checker.arguments import asked
from einnet.derivation.checker.cases import equal_by_cases
from einnet.derivation.checker.exact import marked
from einnet.derivation.checker.index_limits import overflow
from einnet.derivation.checker.oracle import ORDERED, POLYNOMIAL, Points, Witness, nature, reproduced, witness
from einnet.derivation.checker.point_sets import equal_as_sets
from einnet.derivation.checker.suspects import every_point, points_to_compare
from einnet.derivation.steps import KINDS, Derivation, Step, replace_at, subscope
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope, nested, tensors, walk
from einnet.expr.normal.alike import bend_alike, same_form
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach, at_most
from einnet.expr.partings import apart, name_apart, partings
from einnet.expr.values.cancellation import EVALUATIONS, FACTOR, MOST_EVALUATIONS, SPREAD_EVALUATIONS, adds_up, lost, only_adds, subtracts
from einnet.expr.values.points import effort, evaluate_at, magnitudes_at, work

LEAST_SEEDS = 2
SHOWN = 16
"""Of n elements that a maximum or minimum is taken of, one shows in one of n evaluations: so many times n are made where the budget allows."""

BY_CHANCE = 64
"""Evaluations modulo a prime of what has an order in it. Such a function has few values: two groupings agree by chance in one of two."""

MOST_POINTS = 256
FEWEST_POINTS = 4
MARKED_POINTS = 8
MARKED_TERMS = 1024
"""Canonical terms in which it is asked how operations are grouped: these take a second, and the answer decides a class, not what is proven."""
MARKED_CASES = 4 * MARKED_TERMS
"""The same for all cases together."""
BOUND_POINTS = 64
FEWEST_BOUND_POINTS = 8
_BUDGET = 3_000_000
"""Body evaluations per side and seed."""
_BOUND_BUDGET = 1_000_000
"""Body evaluations per side to see how much is added up."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Why two scopes are the same tensor: "inline" (equal normal forms) or "random" (equal wherever both were evaluated, at `points` points).

    `kind` is the numerical class that the checker found for itself; what it could not tell is of the worst.
    """

    method: str
    details: str
    points: int = 0
    kind: str = KINDS[-1]
    cases: int = 1
    """Parts of the box on each of which normal forms are equal."""


class Difference(CertificateError):
    """Two sides that differ at a point of the output; `witness` has values of the tensors that show it, where there are any."""

    def __init__(self, message: str, point: tuple[int, ...] = (), witness: Witness | None = None) -> None:
        super().__init__(message)
        self.point = point
        self.witness = witness


class Untested(CertificateError):
    """A step whose sides no normal form shows to be equal, of which no values were compared; `step` is its number in a derivation."""

    def __init__(self, message: str, step: int = 0) -> None:
        super().__init__(message)
        self.step = step


_TESTS: ContextVar[bool] = ContextVar("tests", default=True)


@contextmanager
def without_tests() -> Iterator[None]:
    """Within, values are not compared where no normal form tells: that takes long for large expressions, and proves nothing. Untested is raised."""
    token = _TESTS.set(False)
    try:
        yield
    finally:
        _TESTS.reset(token)


def check_equal(before: Scope, after: Scope) -> Proof:
    """The two scopes are the same tensor over the same box.

    Raises CertificateError where the boxes differ, two iterators of a scope have one name, a tensor is declared in two ways, or an index leaves 64
    bits, Difference (with the point) where values differ.
    """
    _named_apart(before, after)
    if before.box != after.box:
        raise CertificateError(f"the boxes differ: {_box(before)} before, {_box(after)} after")
    _same_tensors(before, after)
    beyond = overflow(before) or overflow(after)
    if beyond:
        raise CertificateError(beyond)
    if before.key == after.key:
        return Proof("inline", "equal but for names and order")
    *cut, _ = partings(before, after, numbers=True)
    if any(same_form(*parts) for parts in cut):
        return Proof("inline", "equal normal forms")
    try:
        forms = (inline(before), inline(after))
    except OutOfReach as error:
        return _test(before, after, (), f"no normal form: {error}")
    if forms[0].key == forms[1].key:
        return Proof("inline", "equal normal forms")
    cases = equal_by_cases(before, after, forms)
    if cases:
        return Proof("inline", f"equal normal forms in each of {cases} cases", cases=cases)
    if any(equal_as_sets(*parts) for parts in ((before, after), *cut)):
        return Proof("inline", "the same products, added up over the same places")
    if max(nature(before), nature(after)) == ORDERED and bend_alike(before, after):
        return Proof("inline", "equal normal forms by where they bend")
    return _test(before, after, forms, "normal forms differ")


def check(derivation: Derivation) -> list[Proof]:
    """A proof for every step, replayed on the whole expression.

    Raises CertificateError, with the step's number and rule, at the first step that is not proven.
    """
    proofs: list[Proof] = []
    state = derivation.start
    for number, step in enumerate(derivation.steps, 1):
        try:
            proofs.append(_check_step(state, step))
        except Untested as error:
            raise Untested(f"step {number} ({step.rule}): {error}", number) from error
        except CertificateError as error:
            message = f"step {number} ({step.rule} {step.parameters}".rstrip() + f"): {error}"
            raise Difference(message, getattr(error, "point", ()), getattr(error, "witness", None)) from error
        state = replace_at(state, step.path, step.after)
    return proofs


def _check_step(state: Scope, step: Step) -> Proof:
    """A step on a nested scope may change its box: then the scope that reads it must stay what it is."""
    try:
        found = subscope(state, step.path)
    except IndexError:
        raise CertificateError(f"there is no scope at {'.'.join(map(str, step.path))} in {state.text()}") from None
    if found.key != step.before.key:
        raise CertificateError(f"the step starts from\n    {step.before.text()}\nbut there stands\n    {found.text()}")
    if step.kind not in KINDS:
        raise CertificateError(f"{step.kind!r} is no numerical class: expected one of {', '.join(KINDS)}")
    if step.kind == "precision" and step.bound is None:
        raise CertificateError("a step of class precision needs an error bound")
    before, after = step.before, step.after
    if step.path and before.box != after.box:
        before = subscope(state, step.path[:-1])
        after = replace_at(before, step.path[-1:], step.after)
    proof = check_equal(before, after)
    if step.kind == "exact":
        proof = check_exact(before, after, proof)
        if proof.kind == "exact":
            return proof
    worst = step.kind == KINDS[-1]
    bounded = check_bound(before, after, step.bound or 1.0 if worst else 1.0, proof)
    return check_cancellation(before, after, bounded, refuse=not worst) if bounded.kind == "reassociation" else bounded


def check_exact(before: Scope, after: Scope, proof: Proof) -> Proof:
    """The two scopes, known to be equal, add and multiply the same numbers in the same groups; `proof` says how that is known.

    What both read unchanged is cut away first: that less is grouped alike suffices, that it is not refutes nothing.
    Raises Difference where they do not.
    """
    if before.key == after.key:
        return replace(proof, kind="exact")
    ways = partings(before, after)
    for one, other in ways:
        if (proof.cases > 1 and _grouped_alike_by_cases(one, other)) or _grouped_alike(marked(one), marked(other)):
            return replace(proof, details=f"{proof.details}; operations grouped alike", kind="exact")
    for one, other in ways:
        left, right = marked(one, True), marked(other, True)
        least = BY_CHANCE if max(nature(one), nature(other)) == ORDERED else FEWEST_POINTS
        if max(work(left, least), work(right, least)) > _BUDGET:
            continue
        try:
            found = _compare(left, right, points_to_compare(left, right, (), MARKED_POINTS), "", reals=False, least=least)
        except Difference as error:
            if one is not before:
                continue
            raise Difference(f"it is of class exact, but adds or multiplies in other groups; marked by them {error}", error.point) from error
        return replace(proof, details=f"{proof.details}; operations grouped alike at {found.points} points", kind="exact")
    return replace(proof, details=f"{proof.details}; whether operations are grouped alike is not told: too many to evaluate")


def _grouped_alike(left: Scope, right: Scope) -> bool:
    """Two marked sides have one normal form, which is not out of reach."""
    try:
        with at_most(MARKED_TERMS):
            return left.key == right.key or inline(left).key == inline(right).key
    except OutOfReach:
        return False


def _grouped_alike_by_cases(one: Scope, other: Scope) -> bool:
    """Two sides have one normal form in each of some cases when they are marked there: what nothing is added to is no sum."""
    try:
        forms = inline(one), inline(other)
    except OutOfReach:
        return False
    with at_most(MARKED_CASES):
        return bool(equal_by_cases(one, other, forms, lambda s: inline(marked(s)).key))


def check_bound(before: Scope, after: Scope, bound: float, proof: Proof) -> Proof:
    """What is added up in absolute value is at most `bound` times as much after as before, at some points; `proof` is of equality.

    That factor is by how much rounding errors may grow (`derivation.bounds`); of a bound of 1 the class is reassociation. Arguments of functions
    and divisors are compared likewise. Raises Difference where it is greater.
    """
    kind = "reassociation" if bound == 1 else "precision"
    if before.key == after.key:
        return replace(proof, kind=kind)
    refusal: Difference | None = None
    for one, other in dict.fromkeys((apart(before, after), (before, after))):
        try:
            return _bounded(before, (one, other), bound, proof)
        except Difference as error:  # one side may read what the other has only in part, which is then no number of both
            refusal = error
    assert refusal is not None
    raise refusal


def _bounded(before: Scope, sides: tuple[Scope, Scope], bound: float, proof: Proof) -> Proof:
    """`check_bound` of the sides, which are `before` and what it becomes, as far as they differ."""
    one, other = sides
    kind = "reassociation" if bound == 1 else "precision"
    most, budget = (BOUND_POINTS, _BOUND_BUDGET) if bound != 1 else (FEWEST_BOUND_POINTS, _BOUND_BUDGET // 4)
    points = points_to_compare(one, other, (), _affordable(one, other, most, 1, budget))
    (least, arguments), (found, others) = magnitudes_at(asked(one), points, whole=True), magnitudes_at(asked(other), points)
    new = sorted(others.keys() - arguments.keys())
    if new:
        return replace(proof, details=f"{proof.details}; how errors grow is not told: {', '.join(new)} is new", kind=KINDS[-1])
    ratios = {f"the argument of {n}" if n != "/" else "what is divided by": _ratio(x, arguments[n]) for n, x in others.items()}
    at = tuple(int(x) for x in points[found.argmax()]) if found.size else ()
    ratios["what is added up"] = _ratio(float(found.max(initial=0.0)), float(least.max(initial=0.0)))
    what = max(ratios, key=lambda n: ratios[n])
    if ratios[what] > bound * (1 + 1e-9):
        grown = f"but at {_place(before, at)} {what} grows {ratios[what]:.4g} times"
        raise Difference(f"errors are said to grow {bound:.4g} times at most, {grown}", at)
    told = f"; errors grow {ratios[what]:.3g} times at {len(points)} points, {bound:.3g} are allowed for" if bound != 1 else ""
    return replace(proof, details=f"{proof.details}{told}", kind=kind)


def check_cancellation(before: Scope, after: Scope, proof: Proof, *, refuse: bool) -> Proof:
    """Of nearly equal elements, and of large ones, no more is lost after than before; `proof` is of class reassociation but for that.

    Sums and products that both read are cut away first: that nothing is lost of less suffices, that more is lost refutes nothing. Nothing is lost
    where both only add up what is cut away from them: those are the same terms, in another order. Where more is lost the class is precision, or where
    that is not claimed Difference is raised; where it takes too long to tell it is precision.
    """
    if before.key == after.key or not subtracts(before) or all(map(only_adds, apart(before, after))):
        return proof
    grown: float | None = None
    sums = {name_apart(s): s for s in walk(before) if adds_up(s)}
    for one, other in dict.fromkeys((apart(before, after, only=adds_up), (before, after))):
        grown = None
        if max(effort(one, 1), effort(other, 1)) <= MOST_EVALUATIONS:
            points = points_to_compare(one, other, (), _affordable(one, other, FEWEST_POINTS, 1, EVALUATIONS))
            grown = lost(one, other, _thinned(one, other, points), sums)
            if grown <= FACTOR:
                return proof
    if grown is None:
        told = "whether more is lost where elements are nearly equal is not told: too many to evaluate"
        return replace(proof, details=f"{proof.details}; {told}", kind=KINDS[-1])
    told = f"where elements are nearly equal, or large, errors grow {grown:.2g} times"
    if refuse:
        raise Difference(f"it is no reassociation: {told}", ())
    return replace(proof, details=f"{proof.details}; {told}", kind=KINDS[-1])


def _thinned(before: Scope, after: Scope, points: Points) -> Points:
    """Every point, or every second, fourth, .. where a side costs too much at all of them: points where something changes come on top of those
    that are asked for, however many there are."""
    while len(points) > FEWEST_POINTS and max(effort(before, len(points)), effort(after, len(points))) > SPREAD_EVALUATIONS:
        points = points[::2]
    return points


def _ratio(after: float, before: float) -> float:
    return after / before if before else 0.0 if not after else float("inf")


def _box(scope: Scope) -> str:
    return "×".join(f"{lo}..{hi - 1}" for lo, hi in scope.box)


def _named_apart(*sides: Scope) -> None:
    for scope in (s for side in sides for s in walk(side)):
        names = [i.name for i in (*scope.loops, *scope.sums)]
        if len(set(names)) < len(names):
            raise CertificateError(f"two iterators have one name in {scope.text()}")


def _same_tensors(before: Scope, after: Scope) -> None:
    try:
        left, right = tensors(before), tensors(after)
    except ValueError as error:
        raise CertificateError(str(error)) from None
    for name in left.keys() & right.keys():
        if left[name] != right[name]:
            raise CertificateError(f"tensor {name} is {left[name]} before and {right[name]} after")


def _affordable(before: Scope, after: Scope, most: int, fewest: int, budget: int) -> int:
    """How many points are evaluated: `most`, halved until both sides cost no more than the budget or no more than `fewest` are left."""
    count = most
    while count > fewest and max(work(before, count), work(after, count)) > budget:
        count //= 2
    return count


def _place(scope: Scope, point: tuple[int, ...]) -> str:
    """A point of the output by the names of the iterators."""
    return f"[{', '.join(f'{i.name}={x}' for i, x in zip(scope.loops, point, strict=True))}]"


def _seeds(before: Scope, after: Scope, points: int, least: int = 0) -> int:
    """How many random values of the tensors are tried: for `least` evaluations at the points, more where maxima and minima hide single elements."""
    wanted = -(-max(least, SHOWN * max(_compared(before), _compared(after))) // points)
    return max(LEAST_SEEDS, min(wanted, _BUDGET // max(work(before, points), work(after, points), 1)))


@lru_cache(maxsize=1 << 12)
def _compared(scope: Scope) -> int:
    """Elements that maxima and minima are taken of, nested ones together; 0 without any."""
    inner = max((_compared(s) for s in nested(scope)), default=0)
    return inner if scope.reduce == "sum" else prod(i.extent for i in scope.sums) * max(inner, 1)


def _test(before: Scope, after: Scope, forms: tuple[Scope, ...], reason: str) -> Proof:
    """Evaluate both sides: sums and products modulo a prime, what has an order or a quotient in it over the reals.

    Raises Difference, CertificateError where no value could be compared, and Untested where none is to be.
    """
    total = prod(before.shape)
    if total == 0:
        return Proof("inline", "no elements")
    if not _TESTS.get():
        raise Untested(reason)
    what = max(nature(before), nature(after))
    chosen = points_to_compare(before, after, forms, _affordable(before, after, MOST_POINTS, FEWEST_POINTS, _BUDGET))
    whole = max(work(before, total), work(after, total)) <= _BUDGET and total <= _BUDGET
    every = every_point(before) if whole and len(chosen) < total else chosen
    if what < ORDERED:
        proof = _compare(before, after, every, reason)
    if what == POLYNOMIAL:
        return proof
    found = witness(before, after, chosen, every)
    if isinstance(found, Witness):
        raise Difference(_differing(before, after, found.point, str(found)), found.point, found)
    if not found:
        raise CertificateError(f"{reason}, and no value that both sides have could be computed exactly enough to compare")
    return Proof("random", f"{reason}; equal at {found} values, zeros, ties and constants among them", len(chosen))


def _differing(before: Scope, after: Scope, at: tuple[int, ...], values: str) -> str:
    return f"the two sides differ at {_place(before, at)}: {values}\n    before: {before.text()}\n    after:  {after.text()}"


def _compare(before: Scope, after: Scope, points: Points, reason: str, reals: bool = True, least: int = 0) -> Proof:
    """Evaluate both sides at points modulo 2^61-1, `least` times in all or more; see the module's docstring.

    A difference is told by `reals`, too, where they mean something.
    """
    seeds = _seeds(before, after, len(points), least)
    for seed in range(1, seeds + 1):
        left, right = evaluate_at(before, points, seed), evaluate_at(after, points, seed)
        differ = np.flatnonzero(left != right)
        if differ.size:
            at = tuple(int(x) for x in points[differ[0]])
            real = reproduced(before, after, at) if reals else None
            values = f"{int(left[differ[0]])} before, {int(right[differ[0]])} after (modulo 2^61-1, seed {seed})"
            raise Difference(_differing(before, after, at, f"{real}; {values}" if real else values), at, real)
    size = prod(before.shape)
    share = "all" if len(points) == size else f"{len(points)} of {size}"
    return Proof("random", f"{reason}; equal at {share} points modulo 2^61-1 for {seeds} seeds", len(points))
