"""What is measured: the benchmark's models, models from files, and files of the zoo with their inputs; each with draws of inputs of its kind."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.contest.engines import Arrays
from benchmarks.contest.machine import random_inputs
from benchmarks.models import SEVEN, build
from benchmarks.precision.quantised import in_bytes

SIZES: dict[str, dict[str, int]] = {"bert": {"sequence": 128, "hidden": 768, "heads": 12, "layers": 2}, "mlp": {"size": 4096, "classes": 1000}}
"""What runs beside the seven, at sizes other than the generator's; `bert` is two of its layers."""

GENERATOR = {"bert": "transformer"}

MODELS = (*SEVEN, *SIZES)
"""What runs by default."""

ZOO = ("resnet50", "repvgg_a0", "mobilenet_v3_small", "edsr", "bert", "gpt2", "lstm_tagger", "unet2d")
"""What runs of the zoo, where its folder is named: convolutions of 3x3 and of one place, attention, recurrences."""

BYTES = ("resnet18", "depthwise", "bert", "mlp")
"""What runs as models of bytes."""

QUICK: dict[str, dict[str, int]] = {"resnet18": {"size": 32}, "bert": {}, "fsrcnn": {"size": 8}, "mlp": {}, "depthwise": {"size": 32}}
"""Small sizes, and the models that have them."""

Draw = Callable[[int], Arrays]


@dataclass(frozen=True)
class Case:
    """A model by its name, and what makes it with its draws of inputs by seeds."""

    name: str
    made: Callable[[], tuple[onnx.ModelProto, Draw]]


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases that are named, or the usual ones."""
    usual = list(BYTES if options.int8 else QUICK if options.quick else MODELS)
    cases = [Case(Path(name).stem, partial(built, name, options)) for name in options.models or usual]
    if options.zoo and not options.models:
        found = {path.stem: path for path in sorted(options.zoo.glob("*.onnx"))}
        cases += [Case(f"zoo/{name}", partial(of_zoo, found[name], options)) for name in ZOO if name in found]
    return cases


def built(name: str, options: argparse.Namespace) -> tuple[onnx.ModelProto, Draw]:
    """A model of ours or of a file, with standard normal inputs."""
    sizes = QUICK if options.quick else SIZES
    made = onnx.load(name) if name.endswith(".onnx") else build(GENERATOR.get(name, name), seed=options.seed, **sizes.get(name, {}))
    model = in_bytes(made, options.seed) if options.int8 else made
    return model, partial(random_inputs, model)


def of_zoo(path: Path, options: argparse.Namespace) -> tuple[onnx.ModelProto, Draw]:
    """A file of the zoo, with inputs like those that stand beside it."""
    with np.load(path.with_suffix(".npz")) as stored:
        inputs = {name: stored[name] for name in stored.files}
    return onnx.load(path), partial(like, inputs)


def like(inputs: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Other inputs of the same kind: normal numbers of the same mean and spread; whole numbers in another order."""
    rng = np.random.default_rng(seed)

    def drawn(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "f":
            return rng.permutation(x.reshape(-1)).reshape(x.shape)
        return rng.normal(x.mean(), x.std(), x.shape).astype(x.dtype) if x.size else x

    return {name: drawn(x) for name, x in inputs.items()}


def digest(model: onnx.ModelProto) -> str:
    """What a row belongs to."""
    return hashlib.blake2b(model.SerializeToString(deterministic=True), digest_size=8).hexdigest()
