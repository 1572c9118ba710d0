"""What a search decided for a program: what was chosen for each subprogram, and the plan that comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan

from einnet.expr.nodes import Scope, exchange_in, tensors
from einnet.graph.bundle import Bundle, replaced
from einnet.graph.in_file import still_there
from einnet.graph.program import Opaque, Program
from einnet.graph.replace_nodes import Refused
from einnet.graph.split import Subprogram
from einnet.instantiate.epilogue_kernels import keeping_nan
from einnet.instantiate.kernels import Plan
from einnet.instantiate.stitch import window_of
from einnet.search.choosing.candidate import Candidate, Choice
from einnet.search.plan import Assembly, Evaluated


@dataclass(frozen=True)
class Result:
    """One subprogram of the program and what was chosen for it (shared with every subprogram of the same key)."""

    subprogram: Subprogram
    names: Mapping[str, str]
    choice: Choice
    use_original: bool = False

    @property
    def key(self) -> str:
        """The key of the expression: equal subprograms have one."""
        return self.subprogram.key

    @property
    def candidate(self) -> Candidate:
        """What runs."""
        return self.choice.original if self.use_original else self.choice.best

    @property
    def changed(self) -> bool:
        """Something else than the model's own operators runs."""
        return self.candidate is not self.choice.original


@dataclass(frozen=True)
class Outcome:
    """Everything that was decided. Whoever decides more makes another outcome of it."""

    program: Program
    results: tuple[Result, ...]
    states: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    bundles: tuple[Bundle, ...] = ()
    """Subprograms that are computed together; `program` and `results` have them in place of their parts."""
    apart: tuple[Program, tuple[Result, ...]] | None = None
    """The program and its results without bundles."""
    strict_nan: bool = False
    """Vendor kernels apply nothing to their results that makes numbers of NaN."""
    whole: bool = False
    """ONNX Runtime runs the whole model: nothing that was derived was faster."""
    evaluated: Evaluated | None = None
    """What is computed of weights only, where it is kept for other plans."""

    @property
    def changed(self) -> dict[str, tuple[Result, ...]]:
        """By key, the subprograms that run otherwise than the model has them; empty where none does."""
        found: dict[str, tuple[Result, ...]] = {}
        for r in self.results:
            if r.changed:
                found[r.key] = (*found.get(r.key, ()), r)
        return found

    @property
    def kept(self) -> frozenset[str]:
        """Keys of the subprograms that run as the model has them though something else was chosen."""
        return frozenset(r.key for r in self.results if r.use_original)

    def noting(self, *notes: str) -> Outcome:
        """The outcome with more notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self

    def keeping(self, keys: Iterable[str]) -> Outcome:
        """The outcome in which the subprograms of these keys, and no others, run as the model has them."""
        kept = set(keys)
        return replace(self, results=tuple(replace(r, use_original=r.key in kept) for r in self.results))

    def original(self, *notes: str) -> Outcome:
        """The outcome in which every subprogram runs as the model has it."""
        program, results = self.apart or (self.program, self.results)
        plain = replace(self, program=program, results=results, apart=None, bundles=())
        return plain.keeping(r.key for r in results).noting(*notes)

    def as_whole(self, *notes: str) -> Outcome:
        """The outcome in which ONNX Runtime runs the whole model."""
        return replace(self, whole=True).noting(*notes)

    def choosing(self, choices: Mapping[str, Choice]) -> Outcome:
        """The outcome with other choices for the subprograms of some keys."""

        def chosen(results: tuple[Result, ...]) -> tuple[Result, ...]:
            return tuple(replace(r, choice=choices.get(r.key, r.choice)) for r in results)

        apart = (self.apart[0], chosen(self.apart[1])) if self.apart else None
        return replace(self, results=chosen(self.results), apart=apart)

    def together(self, bundle: Bundle, choice: Choice) -> Outcome:
        """The outcome in which the parts of a bundle are computed as one, unless that would depend on its own result."""
        program = replaced(self.program, bundle)
        if isinstance(program, Refused):
            return self
        results = (*(r for r in self.results if r.subprogram.output.name not in bundle.names), result(bundle.joint, choice))
        return replace(self, program=program, results=results, bundles=(*self.bundles, bundle), apart=self.apart or (self.program, self.results))

    def plan(self, original: bool = False) -> Plan:
        """The plan of the chosen candidates, or of the model's own operators."""
        return self.assemble(original)[0]

    def assemble(self, original: bool = False) -> tuple[Plan, list[str]]:
        """`plan`, and for each of its kernels the result of the node that it was made for. Raises ModelError where a file of weights was written."""
        program, results = self.apart if original and self.apart else (self.program, self.results)
        still_there(program.weights.values())
        assembly, owners = Assembly(program, self.evaluated), list[str]()
        by_output = {r.subprogram.output.name: r for r in results}
        whole = {w.output.name: b.joint.output.name for b in self.bundles for w in b.windows}
        for node in program.nodes:
            name = node.outputs[0].name
            if isinstance(node, Opaque):
                assembly.opaque(node)
            elif name in by_output:
                r = by_output[name]
                assembly.add((r.choice.original if original else r.candidate).build, r.names, name)
            elif name in whole:
                place = window_of(node.scope)
                assert place is not None, "the windows of a bundle are windows"
                assembly.window(node.output, whole[name], place)
            owners += [name] * (len(assembly.kernels) - len(owners))
        return strictly(assembly.finish(), owners) if self.strict_nan else (assembly.finish(), owners)


def strictly(plan: Plan, owners: Sequence[str]) -> tuple[Plan, list[str]]:
    """The plan with its kernels as `keeping_nan` gives them, and the owner of each."""
    kept = [(k, owner) for kernel, owner in zip(plan.kernels, owners, strict=True) for k in keeping_nan(kernel)]
    return replace(plan, kernels=tuple(k for k, _ in kept)), [owner for _, owner in kept]


def taking(candidate: Candidate) -> float:
    """Seconds that a candidate takes; as predicted where it could not be measured, as for want of memory."""
    return candidate.cost if candidate.cost < inf else candidate.predicted


def gained(choice: Choice) -> float:
    """Seconds by which what was derived is faster than the original, once; 0 where that is not known of either."""
    found = taking(choice.original) - taking(choice.best)
    return 0.0 if isnan(found) else found


def result(part: Subprogram, choice: Choice) -> Result:
    """A subprogram with the choice for its canonical expression."""
    return Result(part, dict(zip(tensors(choice.expression), part.inputs)), choice)


def canonical(expression: Scope) -> Scope:
    """The expression with its tensors renamed by first occurrence: w0, w1... for weights, t0, t1... for the rest (`is_constant` tells them)."""
    return exchange_in(expression, {t.name: replace(t, name=f"{'w' if t.weight else 't'}{n}") for n, t in enumerate(tensors(expression).values())})


def is_constant(buffer: str) -> bool:
    """A subprogram's buffer of that name holds weights: a weight tensor of `canonical`, or what `build` computes from such."""
    return buffer.startswith("w")
