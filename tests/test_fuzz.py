"""Damaged texts and bytes: every one is read, or refused with an error of ours. Nothing crashes, hangs or is executed."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from einnet.derivation import einfile
from einnet.errors import ArtifactError, EinNetError
from einnet.expr.text import parse
from einnet.graph.onnx import load as load_onnx
from einnet.instantiate.kernels import Buffer, EOperator, Matmul, Plan, dense_view
from einnet.runtime import artifact, sealed
from einnet.runtime.cpu.program import Code
from tests.models import tiny
from tests.strategies import random_scope

HEADER = len(sealed._MAGIC) + sealed._DIGEST
GOLDENS = sorted((Path(__file__).parent / "derivations").glob("*.ein"))
SYMBOLS = "LΣ[]{}()<>=+-*/%|,.:;'0123456789abhwrs \n#\"\\∞é\0"


def mutated_text(rng: Random, text: str) -> str:
    """A few characters dropped, doubled, exchanged or replaced; sometimes a stretch moved."""
    characters = list(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(characters) + 1)
        match rng.randrange(5):
            case 0:
                del characters[at : at + rng.choice((1, 1, 8))]
            case 1:
                characters[at:at] = rng.choice(SYMBOLS) * rng.choice((1, 1, 1, 300))
            case 2:
                characters[at : at + 1] = rng.choice(SYMBOLS)
            case 3:
                characters[at:at] = characters[max(0, at - rng.randrange(1, 30)) : at]
            case 4:
                other = rng.randrange(len(characters) + 1)
                characters[at:at] = characters[other : other + rng.randrange(1, 20)]
    return "".join(characters)


def mutated_bytes(rng: Random, data: bytes) -> bytes:
    """A few bytes changed, or the end cut off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.2 else changed)


def survives(read: Callable[[], object]) -> None:
    try:
        read()
    except EinNetError as error:
        message = str(error)
    else:
        return
    assert message


def expressions(count: int, seed: int) -> None:
    rng = Random(seed)
    for _ in range(count):
        text = mutated_text(rng, str(random_scope(rng)))
        survives(lambda text=text: parse(str(parse(text))))


def derivations(count: int, seed: int) -> None:
    rng = Random(seed)
    texts = [p.read_text(encoding="utf-8") for p in GOLDENS]
    texts = [t for t in texts if len(t) < 6000]
    for _ in range(count):
        text = mutated_text(rng, rng.choice(texts))
        survives(lambda text=text: einfile.parse(text))


def stored_program() -> bytes:
    """An artifact, without its digest; its code is no code."""
    scope = parse("A : f32[2,3]\nL[i<2,j<3] relu(A[i,j])")
    a, b, c, w = (dense_view(n, s) for n, s in (("a", (2, 3)), ("b", (2, 3)), ("c", (2, 4)), ("w", (3, 4))))
    buffers = (
        Buffer("a", 6, "f32", "input"),
        Buffer("b", 6, "f32", "temporary"),
        Buffer("w", 12, "f32", "constant"),
        Buffer("c", 8, "f32", "output"),
    )
    plan = Plan(buffers, (EOperator(scope, (("A", a),), b), Matmul(b, w, c)), (("x", a),), (("y", c),), {"w": np.ones(12, np.float32)})
    return bytes(artifact._archive(plan, Code(b"support", (b"kernels",)), {"report": {}}, ["text"], 1))


def artifacts(count: int, seed: int, folder: Path) -> None:
    """Bytes of the archive, and values of its manifest, under a digest that is right."""
    rng, whole, path = Random(seed), stored_program(), folder / "p.einnet"
    for n in range(count):
        data = mutated_manifest(rng, whole) if n % 2 else mutated_bytes(rng, whole)
        path.write_bytes(sealed._MAGIC + hashlib.sha256(data).digest() + data)
        survives(lambda: artifact.load(path))


def mutated_manifest(rng: Random, data: bytes) -> bytes:
    """One value somewhere in the manifest replaced by another one."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["manifest.json"])
    at = manifest
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if not isinstance(at[key], (dict, list)) or not at[key] or rng.random() < 0.1:
            break
        at = at[key]
    at[key] = rng.choice((None, -1, 0, 1 << 70, 2.5, "", "a", [], {}, [1, 2], True, "../../etc/passwd"))
    files["manifest.json"] = json.dumps(manifest).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def models(count: int, seed: int, folder: Path) -> None:
    rng, path = Random(seed), folder / "m.onnx"
    sources = [tiny(name).SerializeToString() for name in ("small", "fsrcnn")]
    for _ in range(count):
        path.write_bytes(mutated_bytes(rng, rng.choice(sources)))
        survives(lambda: load_onnx(path))


def test_texts() -> None:
    expressions(1500, 0)
    derivations(40, 0)


def test_bytes(tmp_path: Path) -> None:
    artifacts(200, 0, tmp_path)
    models(60, 0, tmp_path)


@pytest.mark.slow
def test_twenty_thousand(tmp_path: Path) -> None:
    expressions(14_000, 1)
    derivations(1_000, 1)
    artifacts(4_000, 1, tmp_path)
    models(1_000, 1, tmp_path)


def test_the_unharmed_program_is_read(tmp_path: Path) -> None:
    data = stored_program()
    path = tmp_path / "p.einnet"
    path.write_bytes(sealed._MAGIC + hashlib.sha256(data).digest() + data)
    assert len(artifact.load(path).plan.kernels) == 2
    path.write_bytes(sealed._MAGIC + hashlib.sha256(data).digest() + data[:-1])
    with pytest.raises(ArtifactError, match="damaged"):
        artifact.load(path)
    assert HEADER == 40
