"""The program of an outcome for a card: the plan without copies that its prices speak against, lowered, and compiled where there is a compiler."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from math import inf

from einnet.instantiate.kernels import Kernel, Plan
from einnet.runtime.cuda import nvrtc
from einnet.runtime.cuda.lower import Refusal, lower
from einnet.runtime.cuda.profiling.costs import CudaCost, in_float32
from einnet.runtime.cuda.profiling.profile import key
from einnet.runtime.cuda.program import CudaProgram, Generated
from einnet.runtime.cuda.shortened import settled
from einnet.search.choosing.candidate import Candidate, Choice
from einnet.search.copy_elimination import in_place_owned
from einnet.search.outcome import Outcome


@dataclass(frozen=True)
class Lowered:
    """A program, the plan that it runs, whose kernels tell their arithmetics, for each of them the result of the node that it was made for, and the
    outcome that all are of."""

    outcome: Outcome
    plan: Plan
    owners: tuple[str, ...]
    program: CudaProgram


def without_copies(outcome: Outcome, cost: CudaCost, refused: Set[str] = frozenset(), original: bool = False) -> tuple[Plan, list[str]]:
    """The plan of an outcome and whose each kernel is, without the copies that are predicted to be better left out.

    Every kernel has a price, so that this takes no time on a card; none of those `refused` comes in.
    """

    def priced(kernels: Sequence[Kernel]) -> list[float | None]:
        return [inf if refused and key(k) in refused else cost.seconds(k) for k in kernels]

    return in_place_owned(*outcome.assemble(original), priced)


def lowered(outcome: Outcome, cost: CudaCost) -> Lowered:
    """The program of an outcome, lowered and, where there is a compiler for cards, compiled.

    For a kernel for which that cannot be done the next best way is taken that does without it. Raises Refusal where there is none.
    """
    refused: set[str] = set()
    while True:
        plan, owners = without_copies(outcome, cost, refused)
        plan = settled(replace(plan, kernels=tuple(map(cost.like(plan).in_arithmetic, plan.kernels))))
        try:
            made = lower(plan, cost.channels_last)
            compile_all(made)
            return Lowered(outcome, plan, tuple(owners), made)
        except Refusal as e:
            known, refused = refused, refused | {key(in_float32(k)) for k in e.reasons}
            others = without(outcome, refused)
            if not others and refused == known:
                raise
            outcome = outcome.choosing(others)


def without(outcome: Outcome, refused: Set[str]) -> dict[str, Choice]:
    """The choices, by subprogram, of the best candidates that have no kernel of these keys, where others were chosen."""

    def runs(candidate: Candidate) -> bool:
        return not any(key(k) in refused for k in candidate.kernels)

    found: dict[str, Choice] = {}
    for r in outcome.results:
        left = [] if runs(r.choice.best) else [c for c in r.choice.candidates if c.cost < inf and runs(c)]
        if left:
            found[r.key] = replace(r.choice, best=min(left, key=lambda c: c.cost))
    return found


def compile_all(made: CudaProgram) -> None:
    """Compile every text of a program, where there is a compiler for cards. Raises Refusal for those that it does not compile.

    One that takes too long is no reason for another program: how long it takes is the machine's affair, and what is chosen is not.
    """
    if nvrtc.available():
        return
    refused = {text: str(code) for text, code in nvrtc.compiled_or_refused(made.texts) if not isinstance(code, (bytes, nvrtc.TooSlow))}
    if refused:
        raise Refusal({s.operator: refused[s.text] for s in made.steps if isinstance(s, Generated) and s.text in refused})
