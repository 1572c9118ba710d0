"""How many statements a generated function executes: what it was written as tells what its expression does not, which parts are computed again."""

from __future__ import annotations

from tvm import tirx

SECONDS = 1e9
"""Statements that take a second or so, on one thread."""

AGAIN = 32
"""Statements for each operation of the expression from which on a function computes its parts again and again. Others have four at most."""


def executed(s: tirx.Stmt) -> int:
    """Statements that are executed at most; of a loop whose length is known at run time alone, those of one turn."""
    if isinstance(s, tirx.For):
        return executed(s.body) * (int(s.extent) if isinstance(s.extent, tirx.IntImm) else 1)
    if isinstance(s, tirx.SeqStmt):
        return sum(executed(inner) for inner in s.seq)
    if isinstance(s, tirx.IfThenElse):
        return executed(s.then_case) + (executed(s.else_case) if s.else_case is not None else 0)
    return 1


def repeats(s: tirx.Stmt, operations: int) -> bool:
    """The function would run for seconds, most of them to compute again what it has computed: it is not worth a trial, which nobody could end."""
    steps = executed(s)
    return steps > SECONDS and steps > AGAIN * operations
