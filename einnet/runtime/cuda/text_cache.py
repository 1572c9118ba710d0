"""Generated text that was made before: a file for each eOperator, by its name, which says what it computes, and by the version of the generator.

To generate takes a quarter of a second for each kernel; what is found needs no TVM.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from einnet import environment
from einnet.errors import BackendError
from einnet.instantiate.codegen.cuda.launches import CudaOperator, GridKernel
from einnet.instantiate.kernels import EOperator
from einnet.runtime.cpu.compile import generator_version
from einnet.runtime.cpu.compiler.machine_code import available
from einnet.runtime.files import replacing

FOLDER = "cuda-texts"


def text_of(op: EOperator, name: str) -> CudaOperator:
    """The code of an eOperator whose name (see `operator_names`) is `name`. Raises BackendError for what cannot be generated, or without TVM."""
    path = environment.cache() / FOLDER / generator_version() / f"{name}.json"
    known = _read(path)
    if known is not None:
        return known
    missing = available()
    if missing:
        raise BackendError(missing)
    from einnet.instantiate.codegen.cuda.emit import lower_cuda

    made = lower_cuda(op, name)
    with suppress(OSError):  # a folder that cannot be written costs time, and nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            draft.write_text(json.dumps(asdict(made)), encoding="utf-8")
    return made


def _read(path: Path) -> CudaOperator | None:
    """What the file holds; None where there is none, or it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        kernels = tuple(
            GridKernel(str(k["name"]), _three(k["grid"]), _three(k["block"]), tuple(str(a) for a in k["arguments"])) for k in value["kernels"]
        )
        return CudaOperator(str(value["text"]), kernels, tuple((str(n), int(size)) for n, size in value["stages"]))
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _three(values: list[int]) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in values)
    return x, y, z
