"""The programs that a search leads to, bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from einnet.compile.memory_limit import restrain
from einnet.errors import BackendError, OutOfTimeError
from einnet.graph.program import Program
from einnet.instantiate.implementations import best_made
from einnet.instantiate.kernels import EOperator, Plan
from einnet.instantiate.posts_apart import posts_apart
from einnet.runtime.capacity import available_bytes
from einnet.runtime.cpu.program import Executable, build_code
from einnet.search.copy_elimination import in_place
from einnet.search.joint_products import together
from einnet.search.outcome import Outcome

if TYPE_CHECKING:
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.cpu.program import Executable


def nothing() -> None:
    """There is no hurry."""


def compiled(
    outcome: Outcome, cost: CpuCost, until: float, limit: int | None = None, hurry: Callable[[], None] = nothing
) -> tuple[Outcome, dict[str, Executable]]:  # fmt: skip
    """The chosen program ("optimized"; not there if nothing was changed) and the model's own operators ("original"; not there if too large), and the
    outcome of which they are.

    Copies are left out of both as far as that is measured to gain before time.monotonic() is `until`. Neither takes more than `limit` bytes. What
    cannot be compiled is not there, and a note says why.

    The model's own operators are compiled first: what was derived needs them beside it, and not the other way. Raises BackendError where neither
    fits into memory, and OutOfTimeError where `hurry` does, which is called before each kernel is compiled, and nothing is made by then.
    """
    if limit is not None:
        outcome = restrain(outcome, limit)
    found: dict[str, Executable] = {}
    notes: list[str] = []
    for name in ("original", "optimized") if outcome.changed else ("original",):  # what is certain comes first
        plan, strict = outcome.plan(original=name == "original"), name == "optimized"
        try:
            found[name] = built(plan, cost, until, strict=strict, program=outcome.program, hurry=hurry)
        except OutOfTimeError as reason:
            if not found:
                raise
            notes.append(f"what was derived is not compiled, and the model's own operators are kept: {reason}")
        except BackendError as reason:
            what = "derived program" if name == "optimized" else "program of the model's own operators"
            notes.append(f"the {what} cannot be compiled here: {reason}")
    room = min(available_bytes(), limit or inf)
    large = {name: program.nbytes for name, program in found.items() if program.nbytes > room}
    if found and len(large) == len(found):
        needed = min(large.values()) / 1e6
        raise BackendError(f"{outcome.program.title}: running it takes {needed:.3g} MB of memory, of which {room / 1e6:.3g} MB may be taken")
    for name, nbytes in large.items():
        notes.append(f"the {name} program was not run: it takes {nbytes / 1e6:.3g} MB, of which {room / 1e6:.3g} MB may be taken")
        del found[name]
    return (outcome if "optimized" in found else outcome.original()).noting(*notes), found


def built(
    plan: Plan, cost: CpuCost, until: float = 0.0, strict: bool = False, program: Program | None = None, hurry: Callable[[], None] = nothing
) -> Executable:  # fmt: skip
    """A plan bound to memory, without the copies that are measured before time.monotonic() is `until` to be better left out, by the library's
    implementations and with functions apart from the operators before them where that is measured to be better, and where its `program` is told with
    products together that are.

    `hurry` is called before each kernel is compiled.

    Raises BackendError where a kernel cannot be compiled, in a `strict` program also where a vendor library has no fast implementation of it.
    """
    objects = cost.objects
    if program is not None:
        plan = together(plan, program.tensors(), program.weights, lambda p: partial(cost.like(p, measure=True).measured, until=until))
    plan = in_place(plan, partial(cost.like(plan, measure=True).measured, until=until))
    plan = best_made(plan, partial(cost.like(plan, measure=True).measured, until=until), cost.like(plan).implementations)
    plan = posts_apart(plan, partial(cost.like(plan, measure=True).measured, until=until), cost.moving)
    objects.ahead([k for k in plan.kernels if isinstance(k, EOperator)], hurry)
    return Executable(plan, objects.threads, code=build_code(plan, objects.threads, objects), strict=strict)


def peak_bytes(programs: Mapping[str, Executable], reference: int | None) -> dict[str, int | None]:
    """Memory that each takes to run the model: ours by the sizes of arena and constants, ONNX Runtime's by how far the process grew."""
    ours: dict[str, int | None] = {name: program.nbytes for name, program in programs.items()}
    return {"original": None, "optimized": ours.get("original"), **ours, "onnxruntime": reference}
