"""Converging derivation: the forced steps from an expression to a vendor operator (paper section 6.1).

The distance to a table is (loops to split, taps to reflect, sets of taps too long for it, sets of taps beside others, loops to skew, operands
with dimensions that mix roles, operands that are not yet laid out as the table wants), compared in that order. A split, reflection or skew
lowers its own count; taps are cut once, into as few as the table has, and all but the finest are summed outside once; a copy by digits
gives every dimension of an operand one role, which none of the steps after it takes away; a relayout or permutation puts one operand or
the result into the canonical order, where it stays. So the distance falls with every step and a converging derivation ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from einnet.derivation.facts import product_reads
from einnet.derivation.normalise import normalise
from einnet.derivation.rule import Rewrite
from einnet.derivation.rules.relayout import relayout_read
from einnet.derivation.rules.substitute import alignment, permute, reflect, skew, split, split_all_sums
from einnet.derivation.rules.sum_split import split_sum
from einnet.derivation.rules.tighten import tightened
from einnet.derivation.steps import Path, Step, replace_at, subscope
from einnet.expr.nodes import Scope, indices
from einnet.instantiate.match import Match, Mismatch, match
from einnet.instantiate.tables import Table

Distance = tuple[int, ...]
COUNTED = ("split", "reflect", "taps", "sum-split", "skew", "digits")
RULE_OF = {
    "taps": "substitute-sum", "sum-split": "sum-split", "split": "substitute", "skew": "substitute", "reflect": "substitute-sum",
    "digits": "relayout", "permute": "reorder", "relayout": "relayout",
}  # fmt: skip
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
    kinds = [m.fix for m in mismatches]
    return *(kinds.count(kind) for kind in COUNTED), 3 - permuted - _canonical(core)


def _canonical(core: Scope) -> int:
    """How many of the operands are copies in the iterators' order already."""
    operands = product_reads(core.body) or ()
    return sum(isinstance(r.base, Scope) and r.index == indices(r.base.loops) for r in operands)


def converge(scope: Scope, table: Table) -> Converged | list[Mismatch]:
    """Derive `scope` to one that contains the table's operator, or what cannot be mended."""
    tree, path, steps = scope, (), []  # type: Scope, Path, list[Step]
    permuted = False
    tried: set[tuple[str, int, tuple[str, ...]]] = set()
    for _ in range(LIMIT):
        core = subscope(tree, path)
        result = match(core, table)
        if isinstance(result, Match):
            return Converged(tree, path, result, tuple(steps))
        fix = next((m for m in result if m.fix != "none"), None)
        if fix is None or any(m.fix == "none" for m in result):
            return result
        mark = (fix.fix, fix.operand, fix.order)
        if fix.fix in ("relayout", "permute") and (mark in tried or (fix.fix == "permute" and permuted)):
            return [Mismatch(f"{m.why} (after a {m.fix} already)") for m in result]
        tried.add(mark)
        rewrite = apply_fix(core, fix)
        if rewrite is None:
            return [Mismatch(f"{fix.why}, and no {fix.fix} applies")]
        permuted = permuted or fix.fix == "permute"
        steps.append(Step(RULE_OF[fix.fix], rewrite.parameters, core, rewrite.scope, path, rewrite.kind))
        tree = replace_at(tree, path, rewrite.scope)
        if fix.fix == "digits":
            tree = _tight(tree, path, steps)
        elif fix.fix not in ("relayout", "reflect", "taps"):
            tree, path = _inside(tree, path, steps)
    return [Mismatch("the converging derivation did not end")]


def apply_fix(core: Scope, m: Mismatch) -> Rewrite | None:
    """The rule application that removes a mismatch."""
    by_name = {i.name: i for i in (*core.loops, *core.sums)}
    match m.fix:
        case "taps":
            outcome = split_all_sums(core, [by_name[x] for x in m.order], m.divisor)
            return outcome if isinstance(outcome, Rewrite) else None
        case "sum-split":
            outside = tuple(by_name[x] for x in m.order)
            return Rewrite(split_sum(core, outside), "outside=" + ",".join(m.order), "reassociation")
        case "split":
            return split(core, by_name[m.iterator], m.divisor, alignment(core, m.iterator, m.divisor))
        case "skew":
            return skew(core, m.iterator, m.index) if m.index is not None else None
        case "reflect":
            return reflect(core, by_name[m.iterator])
        case "permute":
            return permute(core, tuple(by_name[x] for x in m.order)) if set(m.order) == {i.name for i in core.loops} else None
        case "relayout" | "digits":
            operands = product_reads(core.body)
            assert operands is not None
            return relayout_read(core, operands[m.operand], tuple(by_name[x] for x in m.order), m.added)
    return None


def _inside(tree: Scope, path: Path, steps: list[Step]) -> tuple[Scope, Path]:
    """After a substitution the core is one scope deeper: tighten it, and merge the wrapper into the one around it."""
    tree = _tight(tree, path, steps)
    if not path:
        return tree, (0,)
    merged, more = normalise(tree)
    steps.extend(more)
    return merged, (0,)


def _tight(tree: Scope, path: Path, steps: list[Step]) -> Scope:
    """The scope at the path, and what it reads, over no larger ranges than needed."""
    wide = subscope(tree, path)
    tight = tightened(wide)
    if tight == wide:
        return tree
    steps.append(Step("tighten", "all", wide, tight, path))
    return replace_at(tree, path, tight)
