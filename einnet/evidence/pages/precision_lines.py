"""How a budget of error was spent, as people read it: which products round their factors, and why the others do not."""

from __future__ import annotations

from collections import Counter

from einnet.evidence.report.schema import PrecisionRow, RoundedRow


def precision_line(told: PrecisionRow) -> str:
    """How many products round, and what that makes of the error."""
    count = Counter(p.arithmetic for p in told.products if p.runs)
    rounded = ", ".join(f"{n} in {name}" for name, n in count.items()) or "none rounded"
    errs = f"error {told.error:.2g} of max|y| on {told.draws} draws of inputs, {told.float32_error:.2g} in float32"
    certified = f"; certified bound {told.certified:.2g}" if told.certified is not None else ""
    return f"precision: of {len(told.products)} products {rounded}; {errs}; budget {told.max_error:g}{certified}"


def precision_lines(told: PrecisionRow) -> list[str]:
    """The same, and a line for each product; equal ones have one together."""
    count = Counter(map(line, told.products))
    return [precision_line(told), *(f"  {f'{n}x ' if n > 1 else ''}{text}" for text, n in count.items())]


def line(p: RoundedRow) -> str:
    """One product: in what it runs, its times, its error and bound, and why."""
    times = f" ({p.ms:.3g} ms in {p.arithmetic}, {p.float32_ms:.3g} in f32)" if p.ms and p.float32_ms else ""
    error = f", error of the outputs by it alone {p.error:.2g}" if p.error is not None else ""
    bound = f", a-priori bound {p.bound:.2g} of its greatest element" if p.bound is not None else ""
    reach = f", its factors reach {p.reach:.3g} on the draws" if p.reach is not None and p.runs else ""
    return f"{p.kernel}: {p.arithmetic if p.runs else 'f32'}{times}: {p.why}{error}{bound}{reach}"
