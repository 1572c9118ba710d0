"""Whether two scopes have one normal form: then they are equal; where they have not, or it is out of reach, nothing is known."""

from __future__ import annotations

from einnet.expr.nodes import Scope
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach, by_bends


def same_form(before: Scope, after: Scope) -> bool:
    """The two have one normal form."""
    try:
        return inline(before).key == inline(after).key
    except OutOfReach:
        return False


def bend_alike(before: Scope, after: Scope) -> bool:
    """The two have one normal form by where their maxima and comparisons bend."""
    with by_bends():
        return same_form(before, after)
