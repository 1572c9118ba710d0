"""Inputs on which programs of a model are compared: random ones, or such as a user has given, and others of their kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.evidence.comparison.verdicts import nowhere_a_number
from einnet.graph.dtypes import NUMPY, dtype_name
from einnet.instantiate.kernels import Plan

Array = np.ndarray[Any, np.dtype[Any]]
Values = Mapping[str, Array]
Kind = tuple[str, tuple[int, ...], str]
"""An input: its name, shape and type."""

Run = Callable[[dict[str, Array]], dict[str, Array]]

MOVED = 0.05
"""The standard deviation of what an element of given inputs is multiplied by, beside 1, where more of their kind are wanted: signs, zeros and sizes
stay as they are, and roundings are others."""


@dataclass(frozen=True)
class Draws:
    """Inputs of a model by number: `first`, which it takes, then others that were `given`, then as many as are wanted of their kind.

    Where none were given they are random, by `seed`, and what the model takes is `adapted` of them. An input that was not given is random.
    """

    first: Values
    seed: int = 0
    given: Sequence[Values] = ()
    adapted: Callable[[Values], dict[str, Array]] = dict

    def of(self, number: int) -> dict[str, Array]:
        """The draw of a number. Places that are all 0 in the first one stay so: the model may take no others."""
        if number == 0:
            return dict(self.first)
        kinds = [(name, x.shape, dtype_name(x.dtype) or "f32") for name, x in self.first.items()]
        places = {name: x for name, x in self.first.items() if x.dtype.kind in "iu" and not x.any()}
        drawn = {**self.adapted(random_values(kinds, self.seed + number)), **places}
        if not self.given:
            return drawn
        again, place = divmod(number, len(self.given))
        return {**drawn, **(moved(self.given[place], self.seed + number) if again else self.given[place])}


def moved(inputs: Values, seed: int) -> dict[str, Array]:
    """Floats that are each a little larger or smaller; what is no float stays."""
    rng = np.random.default_rng(seed)
    return {name: (x * (1 + MOVED * rng.standard_normal(x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x for name, x in inputs.items()}


def as_draws(arrays: Values, kinds: Sequence[Kind], title: str) -> list[dict[str, Array]]:
    """The draws in arrays by input name, of which each is one input, or several along one more dimension in front.

    Raises UsageError for an input that there is not, an array that does not fit one, and for different numbers of draws.
    """
    known = {name: (shape, dtype) for name, shape, dtype in kinds}
    typed: dict[str, Array] = {}
    for name, array in arrays.items():
        if name not in known:
            raise UsageError(f"the inputs of {title} are {', '.join(sorted(known)) or 'none'}; an array is given for {name!r}")
        typed[name] = fitting(name, array, *known[name])
    counts = {name: None if array.ndim == len(known[name][0]) else len(array) for name, array in typed.items()}
    different = sorted(set(counts.values()), key=str)
    if len(different) > 1 or 0 in different:
        told = ", ".join(f"{name} has {'one without that dimension' if n is None else n}" for name, n in counts.items())
        raise UsageError(f"inputs want one array each, or equally many along one more dimension in front, and one at least: {told}")
    if not counts or different == [None]:
        return [typed] if typed else []
    return [{name: np.ascontiguousarray(array[n]) for name, array in typed.items()} for n in range(different[0] or 0)]


def fitting(name: str, array: Array, shape: tuple[int, ...], dtype: str) -> Array:
    """An array, or several in one, as an input of a shape, negative where it is not known, and a type. Raises UsageError where it is none."""
    own = array.shape[array.ndim - len(shape) :] if len(shape) <= array.ndim <= len(shape) + 1 else None
    if own is None or any(n != m for n, m in zip(own, shape) if m >= 0):
        wanted = ",".join("?" if n < 0 else str(n) for n in shape)
        raise UsageError(f"input {name!r} is {dtype}[{wanted}], or several of them in one array; the array has shape {list(array.shape)}")
    if not np.can_cast(array.dtype, NUMPY[dtype], "same_kind"):
        raise UsageError(f"input {name!r} has elements of type {dtype}; those of the array are {array.dtype}")
    return np.ascontiguousarray(array, NUMPY[dtype])


def first_of(arrays: Values, kinds: Sequence[Kind], seed: int, title: str) -> tuple[dict[str, Array], list[dict[str, Array]]]:
    """The first inputs, random where none is given, and the draws that are given in arrays, as `as_draws` reads them and raises."""
    given = as_draws(arrays, kinds, title)
    return {**random_values(kinds, seed), **next(iter(given), {})}, given


def kinds_of(plan: Plan) -> list[Kind]:
    """The inputs of a plan."""
    dtypes = {b.name: b.dtype for b in plan.buffers}
    return [(name, view.shape, dtypes[view.buffer]) for name, view in plan.inputs]


def random_inputs(plan: Plan, seed: int) -> dict[str, Array]:
    """`random_values` for the inputs of a plan."""
    return random_values(kinds_of(plan), seed)


def random_values(inputs: Sequence[tuple[str, tuple[int, ...], str]], seed: int) -> dict[str, Array]:
    """Values for inputs of a name, shape and type: standard normal floats, small non-negative integers, coin flips for booleans.

    Wide integers are 0 or 1: they are places in tables more often than not, of which some have two rows, as those of two kinds of sentences do.

    Raises UsageError for a seed below 0.
    """
    if seed < 0:
        raise UsageError(f"seed must be 0 or more, not {seed}")
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, shape, kind in inputs:
        dtype = np.dtype(NUMPY[kind])
        values = 2 if dtype.kind == "b" or dtype.itemsize >= 4 else 4
        drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, values, shape)
        found[name] = np.asarray(drawn).astype(dtype)  # of no dimension numpy draws a number, not an array
    return found


DEFINED: tuple[Callable[[Array], Array], ...] = (np.abs, lambda x: 1 / (1 + np.exp(-x)))
"""Positive numbers, and numbers between 0 and 1, made of standard normal ones: a logarithm has no others, nor has a loss that takes probabilities."""


def where_defined(run: Run, inputs: Values, fixed: Collection[str] = ()) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs that the model takes, as `taken` makes them, and what `run` gives for them."""
    adapted, found = taken(run, inputs, fixed)
    return adapted(inputs), found


def taken(run: Run, inputs: Values, fixed: Collection[str] = ()) -> tuple[Callable[[Values], dict[str, Array]], dict[str, Array]]:
    """What makes of random inputs such as a model takes, and what `run` gives for these: nothing, or where some output is NaN in every element, what
    `DEFINED` makes of them and is not. Inputs that are `fixed` stay.

    Where it cannot run with the integers that were drawn, all of them are 0: what is written or read from there on is in every table. Or all are 1,
    which divide. Raises what `run` does for the inputs given.
    """

    def adapted(number: int | None, way: Callable[[Array], Array] | None, given: Values) -> dict[str, Array]:
        def of(x: Array) -> Array:
            if x.dtype.kind in "iu":
                return x if number is None else np.full_like(x, number)
            return np.asarray(way(x)).astype(x.dtype) if way and x.dtype.kind == "f" else x

        return {name: x if name in fixed else of(x) for name, x in given.items()}

    number = None
    try:
        found = run(adapted(None, None, inputs))
    except UsageError as refused:
        for number in (0, 1):
            with suppress(UsageError):
                found = run(adapted(number, None, inputs))
                break
        else:
            raise refused from None
    for way in DEFINED if nowhere_a_number(found) else ():
        own = run(adapted(number, way, inputs))
        if not nowhere_a_number(own):
            return partial(adapted, number, way), own
    return partial(adapted, number, None), found
