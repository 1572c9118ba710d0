"""python -m benchmarks.models resnet18 -o resnet18.onnx --batch 1 --size 224"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import onnx

from benchmarks.models import MODELS, build, parameters
from benchmarks.models.flops import flops


def size_argument(name: str, text: str) -> tuple[str, int]:
    """`key=value`, or a number for the generator's first size argument. ValueError with what was expected."""
    key, _, value = text.rpartition("=")
    choices = [p for p in parameters(name) if p not in ("batch", "seed")]
    key = key or choices[0]
    if key not in choices or not value.isdecimal() or not int(value):
        raise ValueError(f"--size {text}: {name} takes {', '.join(f'{c}=N' for c in choices)}")
    return key, int(value)


def main(arguments: list[str] | None = None) -> int:
    """Write one model; 0, or 2 after a message on a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description="Write a benchmark model with random weights as ONNX.")
    parser.add_argument("name", choices=list(MODELS))
    parser.add_argument("-o", "--output", type=Path, help="file to write (default: NAME.onnx)")
    parser.add_argument("--batch", type=int, help="default: 1, or the published batch of an operator case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", action="append", default=[], metavar="[KEY=]N", help="another size than the published one; may be repeated")
    options = parser.parse_args(arguments)
    try:
        sizes = dict(size_argument(options.name, text) for text in options.size)
    except ValueError as error:
        parser.error(str(error))
    model = build(options.name, options.batch, options.seed, **sizes)
    path = options.output or Path(f"{options.name}.onnx")
    onnx.save(model, path)
    weights = sum(len(t.raw_data) for t in model.graph.initializer)
    print(f"{path}: {options.name}, {len(model.graph.node)} nodes, {weights / 1e6:.1f} MB of constants, {flops(model) / 1e9:.3f} GFLOP")
    return 0


if __name__ == "__main__":
    sys.exit(main())
