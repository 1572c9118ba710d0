"""How much work a problem is, counted without doing it, and the greatest form of it that is no more than some work.

Suites are made for cards. On one core most of their problems would take minutes, so they are made smaller, all by one rule: of the forms of a
problem in order, the first that runs and is within the limits, else the one with the least work that runs. The forms are the problem itself; its
sizes capped at 4096, 2048, .. 16; then fewer elements of the batch (32, 16, .. 1); then a batch of one with capped sizes. The work is counted and
not timed: every machine chooses the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

CAPS = tuple(2**n for n in range(12, 3, -1))
BATCHES = tuple(2**n for n in range(5, -1, -1))


@dataclass(frozen=True)
class Work:
    """Floating-point operations of products and convolutions, bytes of all tensors that operators give, and how many operators are called."""

    flops: float
    nbytes: float
    calls: int = 0

    def share(self, limits: Work) -> float:
        """How much of the limits this is; above 1 it is more."""
        return max(self.flops / limits.flops, self.nbytes / limits.nbytes, self.calls / limits.calls)


LIMITS = Work(1e9, 2.0**25, 5000)
"""Some hundredths of a second on one core of today's servers."""


@dataclass(frozen=True)
class Form:
    """A problem with sizes of its file capped at `cap`, and at most `batch` elements of its batch; None leaves them as they are."""

    cap: int | None = None
    batch: int | None = None

    def __str__(self) -> str:
        parts = [f"sizes at most {self.cap}"] * (self.cap is not None) + [f"a batch of at most {self.batch}"] * (self.batch is not None)
        return " and ".join(parts) or "the suite's own sizes"


@dataclass(frozen=True)
class Chosen:
    """A form, its work, and whether that is within the limits."""

    form: Form
    work: Work
    fits: bool


def forms() -> Iterator[Form]:
    """All forms of a problem, in the order in which they are tried."""
    yield Form()
    yield from (Form(cap) for cap in CAPS)
    yield from (Form(None, batch) for batch in BATCHES)
    yield from (Form(cap, BATCHES[-1]) for cap in CAPS)


def chosen(counted: Callable[[Form], Work | None], limits: Work = LIMITS) -> Chosen | None:
    """The form that the rule chooses; None where none runs. `counted` gives a form's work, None for one that does not run."""
    found: Chosen | None = None
    for form in forms():
        work = counted(form)
        if work is None:
            continue
        now = Chosen(form, work, work.share(limits) <= 1)
        if now.fits:
            return now
        if found is None or work.share(limits) < found.work.share(limits):
            found = now
    return found


class TooMuch(Exception):
    """The work is beyond what is asked for; counting it on is of no use."""


ENOUGH = Work(64e9, 2.0**31, 5001)
"""Work beyond which no more is counted."""


def count(make: Callable[[], tuple[Callable[..., Any], Sequence[Any]]]) -> Work | None:
    """The work of a module called with its inputs, both of which `make` gives, on tensors without memory; None where it does not run."""
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    flops, nbytes, calls = 0.0, 0.0, 0

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
            nonlocal flops, nbytes, calls
            found = func(*args, **(kwargs or {}))
            counter = flop_registry.get(func._overloadpacket)
            flops += counter(*args, **(kwargs or {}), out_val=found) if counter else 0
            if not any(r.alias_info is not None for r in func._schema.returns):
                nbytes += size_of(found)
            calls += 1
            if Work(flops, nbytes, calls).share(ENOUGH) > 1:
                raise TooMuch
            return found

    def walk(call: Callable[..., Any], inputs: Sequence[Any]) -> Work:
        nonlocal nbytes
        nbytes += size_of(inputs) + sum(map(size_of, [*call.parameters(), *call.buffers()] if isinstance(call, torch.nn.Module) else []))
        with suppress(TooMuch), Counter():
            call(*inputs)
        return Work(flops, nbytes, calls)

    with torch.no_grad(), suppress(Exception):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with mode:
                return walk(*make())
        except DataDependentOutputException:  # a module that asks for values when it is made
            call, inputs = make()
            flops, nbytes, calls = 0.0, 0.0, 0
            with mode:
                return walk(call, [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs])
    return None


def size_of(value: Any) -> float:
    """Bytes of the tensors in a value."""
    import torch

    return float(sum(t.numel() * t.element_size() for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)))


def of_batch(inputs: Sequence[Any], batch: int | None) -> list[Any]:
    """The inputs with at most `batch` of the elements in the first dimension of the first tensor, of all that have as many there."""
    import torch

    tensors = [x for x in inputs if isinstance(x, torch.Tensor) and x.dim()]
    if batch is None or not tensors:
        return list(inputs)
    whole = tensors[0].shape[0]
    return [x[:batch].clone() if isinstance(x, torch.Tensor) and x.dim() and x.shape[0] == whole else x for x in inputs]
