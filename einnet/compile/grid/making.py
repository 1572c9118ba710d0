"""A plan for one tuple of sizes: the model made static there, and optimized as a model of these sizes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from einnet.compile import pipeline
from einnet.compile.grid.domain import Domain, Sizes
from einnet.compile.target import Optimization
from einnet.compile.targets.cpu.target import CpuTarget
from einnet.compile.targets.registry import target_of
from einnet.errors import ModelError
from einnet.evidence.report.grid_schema import Making
from einnet.records import read
from einnet.search.settings import Settings


def making(settings: Settings, seconds: float) -> Making:
    """The settings of an optimization for later ones."""
    names = [name for name in Making.__struct_fields__ if name != "seconds"]
    return read(Making, {"seconds": seconds, **{name: _plain(getattr(settings, name)) for name in names}})


def settings_of(told: Making) -> Settings:
    """The settings with which a plan is made later."""
    found = {name: getattr(told, name) for name in Making.__struct_fields__ if name != "seconds"}
    return Settings(**{**found, "rules": None if told.rules is None else tuple(told.rules)}, time_budget=told.seconds)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def plan_at(model: Any, domain: Domain, sizes: Sizes, settings: Settings, target: CpuTarget | None = None) -> Optimization:
    """The best verified program at these sizes, or the model as it is; a target whose measured costs are to be used may be given.

    Raises ModelError, with the sizes, for a model that cannot be read there.
    """
    there = replace(settings, shapes=domain.shapes_at(sizes))
    made = target.like(there) if target else target_of(there)
    try:
        return pipeline.optimize(model, made)
    except ModelError as error:
        raise ModelError(f"{error} (at {domain.told(sizes)})") from error


def told_of(shapes: Mapping[str, Any]) -> dict[str, list[int | str]]:
    """Shapes by names, as they are written."""
    return {name: list(shape) for name, shape in shapes.items()}
