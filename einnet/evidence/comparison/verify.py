"""Numerical verification against ONNX Runtime, and interleaved timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import reduce
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from einnet.errors import BackendError, UsageError
from einnet.evidence.comparison.draws import Draws, Values, taken
from einnet.evidence.comparison.right import evaluator_of_the_standard, is_whole
from einnet.evidence.comparison.verdicts import nowhere_a_number
from einnet.evidence.report.schema import OutputError, Verification
from einnet.expr.nodes import functions_in, walk
from einnet.graph.program import Program
from einnet.records import changed
from einnet.runtime.capacity import fits, give_back, growth
from einnet.runtime.ort import Baseline, Session
from einnet.runtime.timing import compare
from einnet.search.settings import Settings
from einnet.search.time_shares import RELOADED, TIMING_SHARE

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.timing import Comparison

Array = np.ndarray[Any, np.dtype[Any]]

Name = TypeVar("Name")
Draw = tuple[Mapping[str, Array], Mapping[str, Array]]
"""Inputs by name, and what ONNX Runtime gives for them."""


STEPS = {"round": 2.0**-7, "as_f16": 2.0**-10, "as_bf16": 2.0**-7}
"""How far a result may move, relative to max|y|, where a rounding of the model meets the middle of two numbers: a step of 8 bits, or of the type."""


def roundings(program: Program) -> frozenset[str]:
    """The roundings that the model itself does, by the names of `STEPS`."""
    found = {name for node in program.expression_nodes() for scope in walk(node.scope) for name in functions_in(scope.body)}
    return frozenset(found & STEPS.keys())


def stepped(program: Program, tolerance: float, apart: float = 0.0) -> float:
    """The tolerance, no less than a step of the roundings that the model does: engines that are equally right take different sides of a middle.

    Nor less than twice what ONNX Runtime is `apart` from itself (`apart_from_itself`): each of two right ones may be as far from a third.
    """
    return max([tolerance, *(max(STEPS[name], 2 * apart) for name in roundings(program))])


def apart_from_itself(program: Program, model: Any, draws: Mapping[Name, Draw]) -> dict[Name, float]:
    """How far ONNX Runtime's results are from those of the same nodes one by one, relative to max|y|, by draw: of inputs, with their outputs.

    0 where the model rounds nothing. One rounding that goes the other way is a step of that tensor, which later nodes may make larger; how much
    so is a property of the model, and is measured where two sides are equally right.
    """
    if not roundings(program):
        return dict.fromkeys(draws, 0.0)
    from einnet.graph.onnx.read import runnable

    session = Session(runnable(model), 1, as_written=True)
    return {name: distance(session(inputs), outputs) for name, (inputs, outputs) in draws.items()}


def distance(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """The greatest difference over outputs of numbers that are finite on both sides, relative to max|y|."""
    found = [e.max_rel for name, e in errors(got, wanted).items() if wanted[name].dtype.kind == "f"]
    return max((e for e in found if np.isfinite(e)), default=0.0)


UNITS = 4
"""In the last place of a shorter type's numbers: by so many an output of it may differ. Engines round to it in between at places of their own."""


def allowed(y: Array, tolerance: float) -> float:
    """The error that passes for an output: numbers of a shorter type that are nearly equal may still round to others."""
    return max(tolerance, UNITS * float(np.finfo(y.dtype).eps)) if y.dtype.kind == "f" and y.dtype.itemsize < 4 else tolerance


NOISE = 0.01
"""A program has to be faster than another that is known to be right by this share, and surely so."""

RUNS = 2
"""From its second run on, ONNX Runtime holds what the first one took, and a block that it has planned by it, beside what it has loaded."""

HELD_S, HELD_SHARE = 1.0, 0.05
"""Seconds of making a session and running the model once, and their share of the time budget, from which on the session is kept for the comparison,
where there is room: meanwhile the model is in memory once more."""

TIMED_BEFORE = 3
"""Runs of ONNX Runtime that are timed before the search where it takes too long to load it again for the comparison, after one that takes memory."""

MORE_DRAWS, MORE_SHARE = 7, 0.02
"""Further draws on which programs are compared under a budget of error, and the share of the time budget that ONNX Runtime may take for them."""

WHOLE = "whole"
"""The name of a program of one kernel, the whole model in ONNX Runtime."""

SETTLE_S = 0.15
"""ONNX Runtime's threads wait actively for 0.1 s and more after a run, in the way of what is timed next: so long nothing is timed."""

WARM_S = 0.05
"""Seconds in which threads that slept find a core each."""

SAMPLE_S = 0.05
"""Seconds of a sample: as much is measured as is warmed up. The median of its calls counts, so that a round is worth what it takes."""


def errors(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> dict[str, OutputError]:
    """By output: greatest absolute difference, greatest |y|, and their ratio; NaN and infinities must stand in the same places."""
    table: dict[str, OutputError] = {}
    for name, y in wanted.items():
        x = got[name]
        if x.shape != y.shape:
            table[name] = OutputError(max_abs=float("inf"), scale=1.0, max_rel=float("inf"))
            continue
        if y.dtype.kind != "f":
            different = float(np.count_nonzero(x != y))
            table[name] = OutputError(max_abs=different, scale=1.0, max_rel=different)
            continue
        a, b = x.astype(np.float64), y.astype(np.float64)
        same = np.isnan(a) & np.isnan(b) | (a == b)
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(a - b))
        worst = float(np.max(np.nan_to_num(difference, nan=np.inf), initial=0.0))
        scale = magnitude(b)
        table[name] = OutputError(max_abs=worst, scale=scale, max_rel=worst / scale if scale else (0.0 if worst == 0 else float("inf")))
    return table


def magnitude(y: Array) -> float:
    """The greatest finite |y|."""
    return float(np.max(np.abs(y[np.isfinite(y)]), initial=0.0))


def magnitudes(*outputs: Mapping[str, Array]) -> dict[str, float]:
    """The same by output, over several draws."""
    return {name: max(magnitude(found[name]) for found in outputs) for name in outputs[0]}


def compare_outputs(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float, usual: Mapping[str, float] | None = None,
    own: Mapping[str, float] | None = None,
) -> Verification:  # fmt: skip
    """Errors by output and overall; passed if every output's error is `allowed` and none is NaN everywhere. Some have a tolerance of their `own`.

    What an output is made of may cancel for some inputs, so that only rounding is left of it: one that is no more than the tolerance of its `usual`
    magnitude may differ by as much. `not_compared` names the outputs that are NaN.
    """

    limits = {name: allowed(y, (own or {}).get(name, tolerance)) for name, y in wanted.items()}

    def passes(name: str, e: OutputError) -> bool:
        floor = limits[name] * usual[name] if usual is not None and wanted[name].dtype.kind == "f" else 0.0
        return e.max_rel <= limits[name] or max(e.max_abs, e.scale) <= floor

    table = errors(got, wanted)
    empty = nowhere_a_number(wanted)
    worst, most = max((e.max_rel for e in table.values()), default=0.0), max(limits.values(), default=tolerance)
    if own and table:
        table = {name: changed(e, allowed=limits[name]) for name, e in table.items()}
        nearest = max(table, key=lambda name: table[name].max_rel / limits[name])
        worst, most = table[nearest].max_rel, limits[nearest]
    return Verification(
        max_abs=max((e.max_abs for e in table.values()), default=0.0),
        max_rel=worst,
        tolerance=most,
        outputs=table,
        passed=all(passes(name, e) for name, e in table.items()) and not empty,
        compared_on=1,
        not_compared=f"{', '.join(empty)}: NaN in every element of the reference" if empty else None,
    )


def both(one: Verification, other: Verification) -> Verification:
    """What verification says of a program on one draw and on others: the greater error of each output, and what comes nearest to its limit."""
    nearest = max(one, other, key=lambda found: found.max_rel / found.tolerance)
    return changed(
        nearest,
        max_abs=max(one.max_abs, other.max_abs),
        outputs={name: max(e, other.outputs[name], key=lambda error: error.max_rel) for name, e in one.outputs.items()},
        passed=bool(one.passed and other.passed),
        not_compared=one.not_compared or other.not_compared,
        compared_on=one.compared_on + other.compared_on,
    )


def made_of(session: Callable[[dict[str, Array]], Mapping[str, Array]], inputs: Mapping[str, Array], own: Mapping[str, Array]) -> dict[str, float]:
    """How large what the outputs are made of is, by output, as roundings of the inputs tell: where a model subtracts what is equal, its own result is
    what rounding leaves of that."""
    moved = session({name: np.asarray(np.nextafter(x, np.inf, dtype=x.dtype)) if x.dtype.kind == "f" else x for name, x in inputs.items()})
    floats = {name: y for name, y in own.items() if y.dtype.kind == "f"}
    noise = {name: e.max_abs / float(np.finfo(own[name].dtype).eps) for name, e in errors(moved, floats).items()}
    return {name: max(magnitude(y), noise[name] if np.isfinite(noise[name]) else 0.0) for name, y in floats.items()}


class Trial:
    """A model in ONNX Runtime beside our programs for it, on the same inputs: those `given`, others random, or such of their kind for which it gives
    numbers. The first of those given are among the `inputs`.

    `draws` are inputs of this kind, the first of them `inputs`; `further` are others with ONNX Runtime's outputs, where there is a budget of error or
    several were given, and there is time for them.

    `own` are ONNX Runtime's outputs as its users have them, `expected` those that a program is to give: the same, but for what ONNX Runtime rounds
    by default (`rounding` says how much that is, relative to max|y|; 0 where it does not), or the standard's where those are wrong. `order` is
    the names of its inputs, `peak` the bytes by which the process grew while it made its session and ran once (None where the system does not
    tell), `held` those that it takes from its second run on, `seconds` how long that took. The session is gone by then, unless that took long and
    there is room for it twice: it and our programs are never in memory together unless there is room for all. It plans no memory: of runs
    that take gigabytes the first two would mostly fill these, twice as many with a plan, and later ones take as long without one.

    `again_s` is how long it takes to have a session for the comparison and run it; where that is more than a comparison may take, it is 0, and
    `before` are the seconds of some runs before the search, which stand for the times of ONNX Runtime.

    `apart` is how far ONNX Runtime is from itself there, where the model rounds. `usual` is how large what the outputs are made of is, where the
    program leaves out what depends on no input: of that the model has what rounding leaves.
    """

    def __init__(self, model: Any, program: Program, settings: Settings, inputs: Values, given: Sequence[Values] = ()) -> None:
        from einnet.graph.onnx.read import runnable
        from einnet.graph.onnx.rounded_factors import rounds_factors

        assert settings.threads is not None
        self.model, self.program = runnable(model), program
        self.threads, self.own_limits = settings.threads, settings.output_errors
        begin = time.monotonic()
        with growth() as loading:
            session = Session(self.model, self.threads, spin=True, rounds=True, frugal=True, title=program.title)
        loaded = time.monotonic()
        with growth() as running:
            adapted, self.own = taken(session, inputs, next(iter(given), ()))
        self.draws = Draws(adapted(inputs), settings.seed, given, adapted)
        self.inputs = self.draws.of(0)
        ran, inputs, exact = time.monotonic(), self.inputs, self.own
        self.order = [a.name for a in session.inputs]
        self.peak = self.held = None
        if loading.nbytes is not None and loading.left is not None and running.nbytes is not None:
            self.peak, self.held = max(loading.nbytes, loading.left + running.nbytes), loading.left + RUNS * running.nbytes
        self.seconds, self.rounding = ran - begin, 0.0
        rounds = rounds_factors(model)
        self.session, self.again_s, self.before = self._standing(session, ran - loaded, rounds, settings.time_budget)
        if rounds:
            del session
            give_back()
            session = Session(self.model, self.threads, title=program.title)
            exact = session(inputs)
            self.rounding = distance(self.own, exact)
        self.usual = made_of(session, inputs, exact) if program.settled else None
        right = evaluator_of_the_standard(model, program)
        budgeted = MORE_DRAWS if settings.max_error is not None else min(len(given) - 1, MORE_DRAWS)
        self.further = self._more(session, min(budgeted, int(MORE_SHARE * settings.time_budget / (ran - loaded)))) if right is None else []
        del session
        if self.session is not None:
            time.sleep(SETTLE_S)  # its threads wait actively for so long, in the way of the kernels that are timed next
        else:
            give_back()
        self.apart = max(apart_from_itself(program, model, dict(enumerate([(inputs, exact), *self.further]))).values())
        self.expected = right[0](inputs) if right else exact

    def _standing(self, session: Session, run_s: float, rounds: bool, budget: float) -> tuple[Session | None, float, tuple[float, ...]]:
        """What stands for ONNX Runtime in the comparison: the session, if it is kept; the seconds of having one there and running it; and those of
        runs before the search, where that would take too long."""
        long = self.seconds >= max(HELD_S, HELD_SHARE * budget)
        if long and not rounds and fits(2 * (self.held or inf)):
            return session, run_s, ()
        if long and RELOADED * self.seconds > TIMING_SHARE * budget:
            return None, 0.0, timed(session, self.inputs)
        return None, self.seconds, ()

    def _more(self, session: Session, count: int) -> list[Draw]:
        """So many further draws, fewer where they do not fit into memory. Random ones that the model does not take, or makes no numbers of, tell
        nothing and are left out. Raises UsageError for one that was given."""
        nbytes = sum(x.nbytes for values in (self.inputs, self.own) for x in values.values())
        found: list[Draw] = []
        for number in range(1, count + 1) if fits(2 * count * nbytes) else ():
            inputs = self.draws.of(number)
            with nullcontext() if number < len(self.draws.given) else suppress(UsageError):
                outputs = session(inputs)
                found += [] if nowhere_a_number(outputs) else [(inputs, outputs)]
        return found

    @property
    def stands(self) -> bool:
        """What was loaded or timed as the reference stands for ONNX Runtime with the whole model, which is not loaded to be compared."""
        return self.session is not None or bool(self.before)

    def stepped(self, tolerance: float) -> float:
        """The tolerance for this model and these inputs."""
        return stepped(self.program, tolerance, self.apart)

    def verify(self, executable: Executable, tolerance: float) -> Verification:
        """Run the program and compare: passed if on every draw every output's error is within tolerance of max|y|, or within the limit that the
        settings have for it."""
        whole, own = is_whole(executable.plan), {name: self.stepped(e) for name, e in self.own_limits.items()}
        draws = [(self.inputs, self.own)] if whole else [(self.inputs, self.expected), *self.further]
        found: list[Verification] = []
        for inputs, expected in draws:
            found.append(compare_outputs(executable(dict(inputs)), expected, self.stepped(tolerance), self.usual, own))
            if not found[-1].passed:
                break
        executable.release()
        return reduce(both, found)

    def compare(self, programs: Mapping[str, Executable], seconds: float) -> dict[str, Any]:
        """Interleaved timings of ONNX Runtime and of the programs; "noise" is an A-against-A ratio, "rounds" the whole comparison.

        Where they do not fit into memory together, each gives its memory back before the next one's turn; "resident" tells. Where ONNX Runtime
        cannot run once more even so, mostly for want of memory, what it took as the reference, its session included, stands for its times: "once"
        says why, and is "" elsewhere. So do runs `before` the search, the fastest of them.
        """
        if self.before and WHOLE not in programs:
            return self._beside_what_was_timed(programs, seconds)
        together = (self.held or 0) + sum(program.nbytes for program in programs.values())
        resident = fits(together)
        if self.session is not None and not resident:
            self.session = None
            give_back()
        shared = (programs[WHOLE].session if WHOLE in programs else self.session) if resident else None  # one session: it is one model
        reference = Baseline(self.model, self.inputs, self.threads, frugal=not resident, shared=shared)
        calls = {"onnxruntime": reference, **{name: caller(program, self.inputs) for name, program in programs.items()}}
        rest = {"onnxruntime": reference.rest, **{name: program.rest for name, program in programs.items()}}
        once = ""
        try:
            found = taking_turns(calls, seconds, None if resident else rest)
        except BackendError as error:
            reference.rest()
            once, resident = str(error).splitlines()[0], False
            found = beside({name: call for name, call in calls.items() if name in programs}, seconds, rest, self.seconds)
        reference.rest()
        return told(found, programs, resident, once)

    def _beside_what_was_timed(self, programs: Mapping[str, Executable], seconds: float) -> dict[str, Any]:
        """Interleaved timings of the programs, beside the fastest run of ONNX Runtime before the search: what is faster than that is surely so."""
        resident = fits(sum(program.nbytes for program in programs.values()))
        rest = None if resident else {name: program.rest for name, program in programs.items()}
        found = beside({name: caller(program, self.inputs) for name, program in programs.items()}, seconds, rest, min(self.before))
        return told(found, programs, resident, before=self.seconds)


def beside(calls: Mapping[str, Callable[[], object]], seconds: float, rest: Mapping[str, Callable[[], None]] | None, theirs: float) -> Comparison:
    """Programs compared in turns, and what ONNX Runtime was seen to take at another time, in every round."""
    ours = taking_turns(calls, seconds, rest)
    return replace(ours, samples={**ours.samples, "onnxruntime": (theirs,) * len(ours.again)})


def told(found: Comparison, programs: Mapping[str, Executable], resident: bool, once: str = "", before: float = 0.0) -> dict[str, Any]:
    """What `Trial.compare` gives of a comparison."""
    for program in programs.values():
        program.release()
    return {**found.timings, "noise": found.noise, "rounds": found, "resident": resident, "once": once, "before": before}


def timed(session: Session, inputs: Values) -> tuple[float, ...]:
    """Seconds of some runs, after one that takes memory."""
    found: list[float] = []
    for _ in range(1 + TIMED_BEFORE):
        begin = time.monotonic()
        session(dict(inputs))
        found.append(time.monotonic() - begin)
    return tuple(found[1:])


def taking_turns(calls: Mapping[str, Callable[[], object]], seconds: float, rest: Mapping[str, Callable[[], None]] | None) -> Comparison:
    """Programs and ONNX Runtime, whose threads wait actively after a run, compared in turns."""
    awake = dict.fromkeys(("onnxruntime", WHOLE), SETTLE_S)
    return compare(calls, seconds, least=3, warm_s=WARM_S, sample_s=SAMPLE_S, rest=rest, awake_s=awake)


def caller(executable: Executable, inputs: Mapping[str, Array]) -> Any:
    """A call without arguments that runs the program on the inputs."""
    given = [np.asarray(inputs[name], order="C") for name, _ in executable.plan.inputs]
    return lambda: executable.run(*given)
