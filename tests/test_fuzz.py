"""Damaged texts and bytes: every one is read, or refused with an error of ours. Nothing crashes, hangs or is executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import einnet
from einnet.compile.ranges.served import RangedProgram
from einnet.compile.targets.cuda.recording import read_requests, requests_json
from einnet.compile.targets.stored import StoredProgram
from einnet.derivation import einfile, ranged
from einnet.errors import ArtifactError, EinNetError, UsageError
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load as load_onnx
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, Plan, dense_view
from einnet.records import as_text
from einnet.runtime import artifact, pool
from einnet.runtime.cpu.program import Code
from einnet.runtime.cuda import archive
from einnet.runtime.cuda.convolutions import Plan as CudnnPlan
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.profiling import profile
from einnet.runtime.cuda.profiling.card_files import Detail
from einnet.runtime.cuda.profiling.profile import H200
from einnet.runtime.cuda.tuning import Tuning
from einnet.search.choosing.choose import choose
from einnet.search.recall import choice_from, choice_json
from einnet.search.space import Options, Space
from tests.models import tiny
from tests.models.random_graphs import random_graph
from tests.mutated import mutated_archive, mutated_bytes, mutated_json, mutated_model, mutated_text, with_manifest
from tests.runtime.plans import two_layers
from tests.strategies import random_scope

GOLDENS = sorted((Path(__file__).parent / "derivations").glob("*.ein"))


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


def ranged_derivations(count: int, seed: int) -> None:
    """What is read says at each of its sizes what a derivation says, or is none."""
    rng, texts = Random(seed), ranged_texts()
    for _ in range(count):
        text = mutated_text(rng, rng.choice(texts))
        survives(lambda text=text: at_every_size(ranged.parse(text)))


def at_every_size(file: ranged.RangedFile) -> None:
    for size in file.sizes:
        file.at(size)


def ranged_texts() -> list[str]:
    """Some published derivations with a name for one of their extents."""
    files = [einfile.parse(p.read_text(encoding="utf-8")) for p in GOLDENS if p.stat().st_size < 3000]
    extents = {file: file.derivation.start.shape[0] for file in files if file.derivation.start.shape}
    return [str(ranged.ranged(file.derivation, file.matches, n, "batch", (1, 9), (1, 2, 5))) for file, n in extents.items()]


def small_plan(rows: int = 2) -> Plan:
    """relu(x) w for a matrix of so many rows."""
    scope = parse(f"A : f32[{rows},3]\nL[i<{rows},j<3] relu(A[i,j])")
    a, b, c, w = (dense_view(n, s) for n, s in (("a", (rows, 3)), ("b", (rows, 3)), ("c", (rows, 4)), ("w", (3, 4))))
    buffers = (
        Buffer("a", 3 * rows, "f32", "input"),
        Buffer("b", 3 * rows, "f32", "temporary"),
        Buffer("w", 12, "f32", "constant"),
        Buffer("c", 4 * rows, "f32", "output"),
    )
    weights = {"w": np.ones(12, np.float32)}
    return Plan(buffers, (EOperator(scope, (("A", a),), b), Matmul(b, w, c)), (("x", a),), (("y", c),), weights)


CODE = Code(b"support", (b"kernels",))
TEXT = "A : f32[2]\nfrom L[i<2] A[i]\n"


def stored_program(path: Path) -> bytes:
    """An artifact; its code is no code."""
    report = {"model": "m", "kept_whole": None, "subprograms": [{"key": "k", "changed": True}]}
    proven = [{"key": "k", "proofs": [["inline", "", 0]]}]
    metadata = {"report": report, "certificate": proven, "considered": [{"key": "k", "candidate": 1}]}
    artifact.save(path, small_plan(), CODE, metadata, [TEXT, TEXT], threads=1)
    return path.read_bytes()


def stored_range(path: Path) -> bytes:
    """An artifact for one or two rows."""
    collected = pool.Pool()
    members = {rows: collected.add(small_plan(rows), CODE) for rows in (1, 2)}
    dynamic = {"name": "rows", "lowest": 1, "highest": 2}
    metadata = {"report": {"model": "m", "dynamic": dynamic, "sizes": {"1": {}, "2": {}}}}
    pool.save(path, collected, members, metadata, [f"rows in 1..2\nholds at 1, 2\n{TEXT}"], 1)
    return path.read_bytes()


def stored_cuda(path: Path) -> bytes:
    """A program for CUDA, of vendor calls only."""
    metadata = {"report": {"model": "m"}, "certificate": [{"key": "k", "proofs": []}]}
    tuning = Tuning("card", "fp32", {"cudnn": "9"}, {"ab": b"\1\2", "cd": CudnnPlan(3, (("knob", 1),))})
    archive.write(path, archive.Kept(lower(two_layers()), (tuning,), metadata, (TEXT,)))
    return path.read_bytes()


STORED = (stored_program, stored_range, stored_cuda)


def looked_at(path: Path) -> list[object]:
    """All that can be asked of a stored program without running it."""
    program = einnet.load(path)
    seen: list[object] = [repr(program), program.inputs, program.report]
    if isinstance(program, RangedProgram):
        return [*seen, program.derivations, program.output_names, *map(program.ranged.loaded, program.sizes)]
    seen.append(program.certificate)
    return [*seen, program.derivations, program.considered] if isinstance(program, StoredProgram) else [*seen, program.output_names]


def artifacts(count: int, seed: int, folder: Path) -> None:
    rng, path = Random(seed), folder / "p.einnet"
    wholes = [make(path) for make in STORED]
    for _ in range(count):
        path.write_bytes(mutated_archive(rng, rng.choice(wholes)))
        survives(lambda: looked_at(path))


def profiles(count: int, seed: int, folder: Path) -> None:
    """Recorded times of a card, requests for such, and what a search is remembered by."""
    rng, path = Random(seed), folder / "p.json"
    detail = Detail(kind="Matmul", seconds=(1e-6, 0.0, 3), hot=(1e-6, 0.0, 3), calls=1)
    recorded = replace(H200, seconds={"ab": 1e-6}, details={"ab": detail}, failed={"cd": "why"})
    sources = [(as_text(profile.as_file(recorded)), profile.load), (json.dumps(requests_json(small_plan().kernels)), read_requests)]
    for _ in range(count):
        text, read = rng.choice(sources)
        path.write_text(mutated_json(rng, text), encoding="utf-8")
        survives(lambda read=read: read(path))


def memories(count: int, seed: int) -> None:
    """What is remembered of a search and was changed since gives nothing, or choices whose derivations lead where they say."""
    rng = Random(seed)
    expression = parse("A : f32[57,5]\nK : weight f32[5,8]\nL[m<57,n<8] relu({L[m<57,n<8] Σ[k<5] A[m,k]*K[k,n]}[m,n])")
    choice = choose(expression, Space(Options(max_depth=1, intensity=0.0)).forms(expression), alike, lambda kernels, _: alike(kernels))
    text = json.dumps(choice_json(choice, choice.candidates))
    for _ in range(count):
        with suppress(ValueError):
            found = choice_from(json.loads(mutated_json(rng, text)), expression, alike)
            assert found is None or all(c.form.derivation.end == c.form.tree for c in found.candidates)


def alike(kernels: Sequence[Kernel]) -> list[float]:
    return [1e-6 for _ in kernels]


def models(count: int, seed: int, folder: Path) -> None:
    """Bytes of models, and operators, attributes and integers of random graphs."""
    rng, path = Random(seed), folder / "m.onnx"
    sources = [tiny(name).SerializeToString() for name in ("small", "fsrcnn")]
    for n in range(count):
        if n % 2:
            survives(lambda: prepare(load_onnx(mutated_model(rng, random_graph(rng.randrange(100_000))))))
        else:
            path.write_bytes(mutated_bytes(rng, rng.choice(sources)))
            survives(lambda: prepare(load_onnx(path)))


FOUND = [
    (stored_program, ("metadata", "certificate", 0), []),
    (stored_program, ("metadata", "considered", 0, "candidate"), "a"),
    (stored_program, ("metadata", "report", "kept_whole"), True),
    (stored_program, ("metadata", "report", "subprograms"), 2.5),
    (stored_program, ("metadata",), [1, 2]),
    (stored_range, ("derivations",), 1 << 70),
    (stored_range, ("metadata", "report", "dynamic", "highest"), 1 << 70),
    (stored_range, ("metadata", "report", "dynamic", "lowest"), float("inf")),
    (stored_range, ("machine", "features"), [True]),
    (stored_range, ("machine",), {}),
    (stored_cuda, ("metadata", "report"), 5),
    (stored_cuda, ("metadata", "certificate", 0, "proofs"), [["inline"]]),
    (stored_cuda, ("program", "inputs", 0, 1, 0), "elsewhere"),
]
"""Values in manifests that once made something else than an error of ours, or took all memory."""


@pytest.mark.parametrize(("make", "place", "value"), FOUND, ids=lambda given: str(given)[:40] if isinstance(given, tuple) else None)
def test_values_that_are_none(make: Callable[[Path], bytes], place: tuple[Any, ...], value: object, tmp_path: Path) -> None:
    path = tmp_path / "p.einnet"

    def exchange(manifest: Any) -> None:
        for key in place[:-1]:
            manifest = manifest[key]
        manifest[place[-1]] = value

    path.write_bytes(with_manifest(make(path), exchange))
    with pytest.raises(ArtifactError):
        looked_at(path)


def test_inputs_that_differ_between_sizes_are_refused(tmp_path: Path) -> None:
    collected, path = pool.Pool(), tmp_path / "p.einnet"
    plans = (small_plan(1), replace(small_plan(2), inputs=(("other", small_plan(2).inputs[0][1]),)))
    members = {rows: collected.add(plan, CODE) for rows, plan in enumerate(plans, 1)}
    report = {"model": "m", "dynamic": {"name": "rows", "lowest": 1, "highest": 2}, "sizes": {"1": {}, "2": {}}}
    pool.save(path, collected, members, {"report": report}, [], 1)
    with pytest.raises(ArtifactError, match="other inputs at rows = 1 than at 2"):
        looked_at(path)


@pytest.mark.parametrize("text", ['{"requests": 1, "kernels": [{"kind": "eoperator", "scope": {}}]}', "[" * 100_000, "[1]", '{"requests": NaN}'])
def test_requests_that_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    for read in (read_requests, profile.load):
        with pytest.raises(UsageError):
            read(tmp_path / "r.json")


def test_texts() -> None:
    expressions(1500, 0)
    derivations(40, 0)
    ranged_derivations(40, 0)
    memories(20, 0)


def test_bytes(tmp_path: Path) -> None:
    artifacts(300, 0, tmp_path)
    profiles(200, 0, tmp_path)
    models(60, 0, tmp_path)


@pytest.mark.slow
def test_twenty_thousand(tmp_path: Path) -> None:
    expressions(10_000, 1)
    derivations(1_000, 1)
    ranged_derivations(1_000, 1)
    memories(500, 1)
    artifacts(5_000, 1, tmp_path)
    profiles(1_500, 1, tmp_path)
    models(1_000, 1, tmp_path)


@pytest.mark.parametrize("make", STORED)
def test_unharmed_programs_are_read(make: Callable[[Path], bytes], tmp_path: Path) -> None:
    path = tmp_path / "p.einnet"
    data = make(path)
    looked_at(path)
    path.write_bytes(data[:-1])
    with pytest.raises(ArtifactError, match="damaged"):
        einnet.load(path)
