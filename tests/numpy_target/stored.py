"""Programs for numpy on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from einnet.runtime.sealed import open_sealed, reading
from einnet.runtime.serial import plan_from_json
from tests.numpy_target.program import NumpyProgram


def load(path: Path) -> NumpyProgram:
    """Read a program. Raises ArtifactError for a file that is missing, damaged or no program."""
    with reading(path), open_sealed(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        with archive.open("constants.npz") as file:
            constants = dict(np.load(file))
        return NumpyProgram(plan_from_json(manifest["plan"], lambda n: archive.read(f"models/{n}"), constants))
