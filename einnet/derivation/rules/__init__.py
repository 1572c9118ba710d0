"""All rules. Every module here and in the folders here that makes a `Rule` registers it by that alone; `order` says when the search tries it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from einnet.derivation.moves.rule import Rule


def _found() -> tuple[Rule, ...]:
    modules = (import_module(m.name) for m in walk_packages(__path__, f"{__name__}."))
    rules = {id(v): v for module in modules for v in vars(module).values() if isinstance(v, Rule)}
    return tuple(sorted(rules.values(), key=lambda r: (r.order, r.name)))


RULES: tuple[Rule, ...] = _found()
"""The registry, in search order."""

EXPLORED: tuple[str, ...] = tuple(r.name for r in RULES if "explored" in r.roles)
"""Rules that are a choice of the search."""

PARALLEL: tuple[str, ...] = tuple(r.name for r in RULES if {"explored", "parallel"} & set(r.roles))
"""The same for a device with more processors than most results have parts."""

FORCED: tuple[str, ...] = tuple(r.name for r in RULES if "forced" in r.roles)
"""The rules that normalisation applies. A derivation of these alone changes how an expression is written, not what is computed."""
