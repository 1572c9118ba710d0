"""Programs without the weights that are computed of a model's own: small enough to travel to a card. There the weights are computed again."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from einnet.compile.targets.cuda.lowering import Lowered
from einnet.expr.nodes import Scope, map_reads, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32
from einnet.runtime.cuda import archive
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.program import CudaProgram
from einnet.runtime.files import replacing
from einnet.runtime.rounded import encoded
from einnet.search.plan import Evaluated

Array = np.ndarray[Any, np.dtype[Any]]
Recipe = dict[str, Any]
"""{"weight"} names an array of the model, as it was read; {"scope", "weights"} an expression over such, {"scope", "constant"} over a constant."""


class Remembered(Evaluated):
    """Values of weight-only scopes, and of what each was computed."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.names = {id(value): name for name, value in program.weights.items()}
        self.recipes: dict[int, Recipe] = {}

    def get(self, scope: Scope, values: Mapping[str, Array]) -> Array:
        found = super().get(scope, values)
        self.recipes[id(found)] = {"scope": str(scope), "weights": {t: self.names[id(v)] for t, v in values.items()}}
        return found


def write(path: Path, found: Lowered, filters_last: bool, channels_last: bool) -> None:
    """Write a program: recipes for what is computed of weights, all other constants as they are.

    `filters_last` says how filters are stored for the card, `channels_last` in which order data was searched.
    """
    outcome = replace(found.outcome, evaluated=Remembered(found.outcome.program))
    assert isinstance(outcome.evaluated, Remembered)
    whole_plan, plan = outcome.plan(), found.plan
    given = {name: whole_plan.constants[name] for name in plan.constants}
    program = lower(replace(plan, constants=given), filters_last)
    assert program.steps == found.program.steps, "lowered as before"
    recipes: dict[str, Recipe] = {}
    constants = dict(program.constants)
    for name, values in program.constants.items():
        recipe = outcome.evaluated.recipes.get(id(given.get(name, values))) or ({"weight": name} if name in outcome.program.weights else None)
        recipe = recipe or moved(program.expressions.get(name), program.constants)
        if recipe is not None:
            recipes[name], constants[name] = recipe, np.zeros_like(values)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "program.einnet"
        archive.save(whole, replace(program, constants=constants))
        with replacing(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_LZMA) as members:
            members.writestr("program.einnet", whole.read_bytes())
            members.writestr("recipes.json", json.dumps({"channels_last": channels_last, "recipes": recipes}))


def moved(expression: Scope | None, constants: Mapping[str, Array]) -> Recipe | None:
    """The recipe of a constant that was made of another one, stored in another order as a library wants it."""
    source = list(tensors(expression).values()) if expression is not None else []
    if expression is None or len(source) != 1 or source[0].name not in constants:
        return None
    told = map_reads(expression.body, lambda r: replace(r, base=replace(source[0], name="t")))
    return {"scope": str(replace(expression, body=told)), "constant": source[0].name}


def read(path: Path, model: Any) -> CudaProgram:
    """The program, with the weights of the model that it was made of."""
    with zipfile.ZipFile(path) as members, tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "program.einnet"
        whole.write_bytes(members.read("program.einnet"))
        program, told = archive.load(whole), json.loads(members.read("recipes.json"))
    weights, recipes = prepare(load(model), permuted=told["channels_last"]).weights, told["recipes"]
    known: dict[str, Array] = {}
    for name in sorted(program.constants, key=lambda name: "constant" in recipes.get(name, ())):
        recipe, kind = recipes.get(name), program.places[name].dtype
        known[name] = made(recipe, weights, known, program.constants[name])
        if recipe is not None and ARITHMETICS.get(kind, F32).short:
            known[name] = encoded(known[name], ARITHMETICS[kind])
    return replace(program, constants={name: known[name] for name in program.constants})


def made(recipe: Recipe | None, weights: Mapping[str, Array], constants: Mapping[str, Array], stored: Array) -> Array:
    """A constant by its recipe, or as it is stored: computed in float64 and then rounded, as it was."""
    if recipe is None:
        return stored
    if "weight" in recipe:
        return np.ascontiguousarray(weights[recipe["weight"]]).reshape(-1)
    given = {"t": constants[recipe["constant"]]} if "constant" in recipe else {t: weights[name] for t, name in recipe["weights"].items()}
    scope = parse(recipe["scope"], {t: tensor(t, v) for t, v in given.items()})
    return np.ascontiguousarray(evaluate(scope, given), dtype=np.float32).reshape(-1)


def tensor(name: str, values: Array) -> Any:
    from einnet.expr.nodes import Tensor

    return Tensor(name, values.shape, weight=True)
