"""Norms, ConvNeXt and attention in windows as exporters write them: optimized, stored, and proven again in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from tests.models import random_inputs
from tests.models.primitive import PRIMITIVE

AGAIN = """
import json, sys
import einnet
from einnet.evidence.audit import audit
found = {}
for name in sys.argv[2:]:
    verdict = audit(f"{sys.argv[1]}/{name}.onnx", einnet.load(f"{sys.argv[1]}/{name}.einnet"))
    found[name] = [verdict["passed"], verdict["certificate"]["derivations"], verdict["certificate"]["problems"]]
print(json.dumps(found))
"""


LATER = pytest.param(("convnext_last", "convnext_first", "window_attention"), marks=pytest.mark.slow)
"""What they say is read back by default, too (tests/graph/test_text_of_models.py)."""


@pytest.mark.parametrize("names", [("rms_norm",), LATER])
def test_stored_and_verified_in_another_process(names: tuple[str, ...], tmp_path: Path) -> None:
    derivations = 0
    for name in names:
        model = PRIMITIVE[name]()
        onnx.save(model, tmp_path / f"{name}.onnx")
        result = einnet.optimize(model, time_budget=1, threads=1, fresh=True)
        assert result.report["verification"]["passed"], name
        derivations += len(result.certificate.entries)
        inputs = random_inputs(model)
        stored = einnet.load(result.save(tmp_path / f"{name}.einnet"))(inputs)
        for output, y in result(inputs).items():
            np.testing.assert_array_equal(stored[output], y)
    done = subprocess.run([sys.executable, "-c", AGAIN, str(tmp_path), *names], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {name: (passed, problems) for name, (passed, _, problems) in found.items()} == dict.fromkeys(names, (True, []))
    assert sum(n for _, n, _ in found.values()) == derivations
