"""The command quantize: a model with tensors of 8 bits."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from einnet.cli.files import check_writable
from einnet.errors import UsageError


def register(commands: Any) -> None:
    """Add the command."""
    one = commands.add_parser("quantize", help="write a model with tensors of 8 bits, by the quantiser of ONNX Runtime, and its error")
    one.add_argument("model", metavar="MODEL.onnx", type=Path)
    one.add_argument("--calibrate", metavar="INPUTS.npz", type=Path, required=True, help="an array for each input, or several in one")
    one.add_argument("--max-error", type=float, metavar="E", help="greatest error that is written, of max|y| on these inputs")
    one.add_argument("-o", "--output", metavar="OUT.onnx", type=Path, required=True)
    one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Quantise, and print the errors."""
    from einnet.api.quantize import quantize
    from einnet.evidence.comparison.saturation import told

    if options.output.suffix != ".onnx":
        raise UsageError(f"{options.output}: a quantised model is an ONNX model; its name ends in .onnx")
    check_writable(options.output)
    found = quantize(options.model, options.output, arrays(options.calibrate), options.max_error)
    draws = "one draw" if found.draws == 1 else f"{found.draws} draws"
    print(f"{options.output}: ranges by {found.calibration} of {draws}")
    for name, error in found.errors.items():
        print(f"{name}: it errs by {error:.2g} of max|y| on them, beside the model in float32")
    print("\n".join(told(found.beyond, "them", least=0.0) or [f"no number of {len(found.beyond)} rounded tensors is beyond its range on them"]))
    return 0


def arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a .npz file by name. Raises UsageError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise UsageError(f"{path}: expected a .npz file with an array for each input")
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: cannot be read as .npz ({error})") from error
