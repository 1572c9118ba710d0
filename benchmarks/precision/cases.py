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
from benchmarks.models import MODELS as GENERATORS
from benchmarks.models import SEVEN, build
from benchmarks.precision.quantised import in_bytes

SIZES: dict[str, dict[str, int]] = {"bert": {"sequence": 128, "hidden": 768, "heads": 12, "layers": 2}, "mlp": {"size": 4096, "classes": 1000}}
"""What runs beside the seven, at sizes other than the generator's; `bert` is two of its layers."""

GENERATOR = {"bert": "transformer"}

MODELS = (*SEVEN, *SIZES)
"""What runs by default."""

ZOO = (
    "repvgg_a0", "edsr", "unet2d", "vgg11", "resnet18", "resnet50", "mobilenet_v3_small", "bert", "vit_tiny_patch16_224", "gpt2", "lstm_tagger",
    "swin_t", "convnext_tiny", "efficientnet_b0", "llama_gqa", "hifigan", "vae_decoder", "wav2vec2", "whisper_encoder", "yolo", "diffusion_block",
)  # fmt: skip
"""What comes first of the zoo, where its folder is named: convolutions of 3x3 and of one place, attention, recurrences. The others follow by name."""

BYTES = ("resnet18", "depthwise", "bert", "mlp")
"""What runs as models of bytes."""

ZOO_BYTES = ("resnet50", "mobilenet_v3_small", "bert")
"""What runs as models of bytes of the zoo."""

QUICK: dict[str, dict[str, int]] = {"resnet18": {"size": 32}, "bert": {}, "fsrcnn": {"size": 8}, "mlp": {}, "depthwise": {"size": 32}}
"""Small sizes, and the models that have them."""

INPUTS = ".npz"
"""Of a file beside a model, with an array for each input."""

Draw = Callable[[int], Arrays]


@dataclass(frozen=True)
class Case:
    """A model by its name, and what makes it with its draws of inputs by seeds."""

    name: str
    made: Callable[[], tuple[onnx.ModelProto, Draw]]


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases that are named, or the usual ones. Raises SystemExit, before anything is measured, for a name of no model and no file."""
    usual = list(BYTES if options.int8 else QUICK if options.quick else MODELS)
    for name in options.models:
        if not (Path(name).is_file() if name.endswith(".onnx") else GENERATOR.get(name, name) in GENERATORS):
            raise SystemExit(f"{name}: there is no such file, and no model of that name; there are {', '.join(GENERATORS)}")
    cases = [Case(Path(name).stem, partial(built, name, options)) for name in options.models or usual]
    if options.zoo and not options.models:
        found = {path.stem: path for path in sorted(options.zoo.glob("*.onnx")) if path.with_suffix(INPUTS).exists()}
        others = () if options.int8 else (name for name in found if name not in ZOO)
        names = [*(name for name in (ZOO_BYTES if options.int8 else ZOO) if name in found), *others]
        cases += [Case(f"zoo/{name}", partial(of_zoo, found[name], options)) for name in names]
    return cases


def built(name: str, options: argparse.Namespace) -> tuple[onnx.ModelProto, Draw]:
    """A model of ours or of a file, with standard normal inputs, or those like what stands beside the file."""
    if name.endswith(".onnx") and Path(name).with_suffix(INPUTS).exists():
        return of_zoo(Path(name), options)
    sizes = QUICK if options.quick else SIZES
    made = onnx.load(name) if name.endswith(".onnx") else build(GENERATOR.get(name, name), seed=options.seed, **sizes.get(name, {}))
    draw = partial(random_inputs, made)
    return in_bytes(made, draw, options.seed) if options.int8 else made, draw


def of_zoo(path: Path, options: argparse.Namespace) -> tuple[onnx.ModelProto, Draw]:
    """A file of the zoo, with inputs like those that stand beside it."""
    with np.load(path.with_suffix(INPUTS)) as stored:
        draw, made = partial(like, {name: stored[name] for name in stored.files}), onnx.load(path)
    return in_bytes(made, draw, options.seed) if options.int8 else made, draw


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
