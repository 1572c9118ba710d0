"""The seven models of the published tables, the operator cases, other common topologies and a small network, as ONNX with random weights.

    from benchmarks.models import build
    model = build("resnet18", batch=16, seed=1, size=224)

Every weight follows from the seed and its own name. Shapes are static; batch norm, activations and layout moves are separate nodes, as
exporters write them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import onnx

from benchmarks.models.cases import conv3x3, conv5x5, convtranspose, g2bmm, small
from benchmarks.models.convolutional import dense, depthwise, gated, inception, residual, shuffle, squeeze, unet
from benchmarks.models.csrnet import csrnet, csrnet_full
from benchmarks.models.fsrcnn import fsrcnn
from benchmarks.models.gcn import gcn
from benchmarks.models.generators import dcgan, infogan
from benchmarks.models.longformer import longformer, longformer_masked
from benchmarks.models.resnet import resnet18
from benchmarks.models.sequential import audio, mixer, mlp, transformer, volume

Generator = Callable[..., onnx.ModelProto]

SEVEN: dict[str, Generator] = {
    f.__name__: f for f in (infogan, dcgan, fsrcnn, gcn, resnet18, csrnet, csrnet_full, longformer, longformer_masked)
}
"""The seven networks; CSRNet has its back-end alone and the whole, Longformer two exports."""

OPERATORS: dict[str, Generator] = {f.__name__: f for f in (conv3x3, convtranspose, conv5x5, g2bmm)}
"""The operator cases of table 3."""

TOPOLOGIES: dict[str, Generator] = {
    f.__name__: f for f in (squeeze, residual, depthwise, unet, dense, inception, shuffle, gated, mlp, mixer, transformer, audio, volume)
}
"""One network of each common topology beside the seven."""

MODELS: dict[str, Generator] = {**SEVEN, **OPERATORS, **TOPOLOGIES, "small": small}
"""Everything that `build` knows."""


def parameters(name: str) -> dict[str, int]:
    """The arguments of a model's generator and their published values."""
    return {p.name: p.default for p in inspect.signature(generator(name)).parameters.values()}


def generator(name: str) -> Generator:
    """The generator of a name in MODELS; KeyError with the known names otherwise."""
    if name not in MODELS:
        raise KeyError(f"no model {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name]


def build(name: str, batch: int | None = None, seed: int = 0, **size: Any) -> onnx.ModelProto:
    """The model of that name. Without `batch`: 1, or the published batch of an operator case.

    `size` holds the generator's own arguments (`parameters(name)` lists them). TypeError for one that it does not have.
    """
    unknown = size.keys() - parameters(name).keys()
    if unknown:
        raise TypeError(f"{name} has no {', '.join(sorted(unknown))}; it takes {', '.join(parameters(name))}")
    if batch is not None:
        size["batch"] = batch
    return generator(name)(seed=seed, **size)
