"""Converging derivation: the forced steps from an expression to a vendor operator (paper section 6.1).

The distance to a row of the table counts the mismatches by kind, and then the operands and the result that are not yet laid out as the row wants
them; it is compared in that order, and falls with every step, so that a converging derivation ends (`matching.mismatches` says why).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from einnet.derivation.facts import product_reads
from einnet.derivation.normalise import normalise
from einnet.derivation.rules import FORCED
from einnet.derivation.rules.forced.tighten import tightened
from einnet.derivation.steps import Path, Step, replace_at, rules_of, subscope
from einnet.expr.nodes import Read, Scope, indices
from einnet.instantiate.matching.contraction import form_problems
from einnet.instantiate.matching.mismatches import Relayout, Split, counts
from einnet.instantiate.matching.types import Match, Mismatch, NoFix, Table

Distance = tuple[int, ...]
LIMIT = 24


@dataclass(frozen=True, slots=True)
class Converged:
    """`tree` equals the scope it was derived from; the scope at `path` in it is the vendor operator `match`."""

    tree: Scope
    path: Path
    match: Match
    steps: tuple[Step, ...]

    @property
    def core(self) -> Scope:
        return subscope(self.tree, self.path)


def distance(core: Scope, mismatches: list[Mismatch], permuted: bool) -> Distance:
    """How far an expression with fixable mismatches is from its table; `permuted`: its loops are in the table's order already."""
    return *counts(mismatches), 3 - permuted - _canonical(core)


def _canonical(core: Scope) -> int:
    """How many of the operands are copies in the iterators' order already."""
    operands = product_reads(core.body) or ()
    return sum(isinstance(r.base, Scope) and r.index == indices(r.base.loops) for r in operands)


def converge(scope: Scope, table: Table, derive: bool = True) -> Converged | list[Mismatch]:
    """Derive `scope` to one that contains the table's operator, or what cannot be mended.

    Without `derive` only loops are numbered otherwise, and what is read by digits of a loop is stored as the model has it.
    """
    tree, path, steps = scope, (), []  # type: Scope, Path, list[Step]
    earlier: list[Mismatch] = []
    for _ in range(LIMIT):
        core = subscope(tree, path)
        result = table.match(core)
        if isinstance(result, Match):
            return Converged(tree, path, result, tuple(steps))
        if any(isinstance(m, NoFix) for m in result):
            return result
        first = result[0]
        if not (derive or first.renumbers or _restores(core, first)):
            return result
        if first.vain(earlier):
            return [NoFix(f"{m.why} (after a {m.name} already)") for m in result]
        step = _mended(core, first)
        if step is None:
            return [NoFix(f"{first.why}, and no {first.name} applies")]
        earlier.append(first)
        steps.append(step.below(path))
        tree = replace_at(tree, path, step.after)
        if first.widens:
            tree = _tight(tree, path, steps)
        elif first.wraps:
            tree, path, more = _inside(tree, path)
            steps += more
    return [NoFix("the converging derivation did not end")]


def unchanged(steps: Iterable[Step]) -> bool:
    """Nothing is derived by the steps: they are those of normalisation, such as number the loops as an operator of the model does, and such as store
    what normalisation has merged into it.

    Groups of channels are a division of the channels' number in an expression and a loop of its own in a library. What a model flattens before it
    multiplies it with a matrix is read by digits of one loop, and a library wants it flat.
    """
    chosen = rules_of(steps) - set(FORCED)
    return chosen <= {Split.rule, Relayout.rule} and all(s.rule in FORCED or _renumbers(s) or _stores_digits(s) for s in steps)


def _restores(core: Scope, difference: Mismatch) -> bool:
    """To mend the difference is to store an operand as a model's own operator has left it, in other dimensions than it is read in."""
    operands = product_reads(core.body) or ()
    return isinstance(difference, Relayout) and difference.operand < len(operands) and _by_digits(operands[difference.operand], core)


def _stores_digits(step: Step) -> bool:
    """The step stores what is read by digits, and nothing else."""
    if step.rule != Relayout.rule:
        return False
    before, after = product_reads(step.before.body) or (), product_reads(step.after.body) or ()
    stored = [one for one, other in zip(before, after) if one != other]
    return len(before) == len(after) and bool(stored) and all(_by_digits(read, step.before) for read in stored)


def _by_digits(read: Read, core: Scope) -> bool:
    """Iterators are divided where something is read, all of them summed: a model's own operators read so only what a Reshape or Flatten has changed.
    Loops of a result are divided by transposed convolutions, too."""
    divided = {name for ix in read.index for atom, _ in ix.terms if not isinstance(atom, str) for name in atom.num.names()}
    return bool(divided) and divided <= {i.name for i in core.sums}


def _renumbers(step: Step) -> bool:
    """The step is a substitution that a division of a loop asks for."""
    asked = (m for m in form_problems(step.before) if m.renumbers and m.led_to(step)) if step.rule == Split.rule else iter(())
    return any((found := m.rewrite(step.before)) is not None and found.scope == step.after for m in asked)


@lru_cache(maxsize=1 << 13)
def _mended(core: Scope, difference: Mismatch) -> Step | None:
    """The step that removes a difference: several rows ask for the same."""
    return difference.mend(core)


@lru_cache(maxsize=1 << 13)
def _inside(tree: Scope, path: Path) -> tuple[Scope, Path, tuple[Step, ...]]:
    """After a substitution the core is one scope deeper: tighten it, and merge the wrapper into the one around it."""
    steps: list[Step] = []
    tree = _tight(tree, path, steps)
    if not path:
        return tree, (0,), tuple(steps)
    merged, more = normalise(tree)
    return merged, (0,), (*steps, *more)


def _tight(tree: Scope, path: Path, steps: list[Step]) -> Scope:
    """The scope at the path, and what it reads, over no larger ranges than needed."""
    wide = subscope(tree, path)
    tight = tightened(wide)
    if tight == wide:
        return tree
    steps.append(Step("tighten", "all", wide, tight, path))
    return replace_at(tree, path, tight)
