"""Damage: texts, bytes, JSON values and sealed archives with something changed."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import onnx
from onnx import numpy_helper

from einnet.graph.operators.registry import OPERATORS
from einnet.runtime import sealed

SYMBOLS = "LΣ[]{}()<>=+-*/%|,.:;'0123456789abhwrs \n#\"\\∞é\0"
VALUES = (None, -1, 0, 1 << 70, 2.5, float("inf"), "", "a", [], {}, [1, 2], True, "../../etc/passwd", "many digits")


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


def mutated_json(rng: Random, text: str) -> str:
    """One value somewhere replaced by another one, or the text of the whole damaged."""
    if rng.random() < 0.2:
        return mutated_text(rng, text)
    value = json.loads(text)
    at: Any = value
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if not isinstance(at[key], (dict, list)) or not at[key] or rng.random() < 0.1:
            break
        at = at[key]
    at[key] = rng.choice(VALUES)
    return json.dumps(value).replace('"many digits"', "9" * 5000)


def mutated_archive(rng: Random, data: bytes) -> bytes:
    """A sealed file whose JSON says something else, or whose archive has other bytes, under a digest that is right."""
    body = data[len(sealed._MAGIC) + sealed._DIGEST :]
    changed = archived(rng, body) if rng.random() < 0.5 else mutated_bytes(rng, body)
    return resealed(changed)


def archived(rng: Random, body: bytes) -> bytes:
    """One file of JSON or text in the archive changed."""
    files = unpacked(body)
    name = rng.choice([n for n in files if n.endswith((".json", ".ein"))])
    damage = mutated_json if name.endswith(".json") else mutated_text
    files[name] = damage(rng, files[name].decode()).encode()
    return packed(files)


def with_manifest(data: bytes, change: Callable[[Any], None]) -> bytes:
    """A sealed file whose manifest was changed."""
    files = unpacked(data[len(sealed._MAGIC) + sealed._DIGEST :])
    manifest = json.loads(files["manifest.json"])
    change(manifest)
    return resealed(packed(files | {"manifest.json": json.dumps(manifest).encode()}))


def unpacked(body: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


INTEGERS = (-(1 << 40), -7, -1, 0, 1, 2, 3, 7, 1 << 40)


def mutated_model(rng: Random, model: onnx.ModelProto) -> onnx.ModelProto:
    """One operator, operand, attribute, integer constant or dimension is another one."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    node = rng.choice(model.graph.node)
    tables = [i for i in model.graph.initializer if i.data_type == onnx.TensorProto.INT64]
    match rng.randrange(6):
        case 0:
            node.op_type = rng.choice(sorted(OPERATORS))
        case 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(["", node.input[0], model.graph.input[0].name])
        case 2:
            dims = rng.choice([*model.graph.input, *model.graph.output]).type.tensor_type.shape.dim
            if dims:
                rng.choice(dims).dim_value = rng.choice(INTEGERS)
        case 3 if tables:
            table = rng.choice(tables)
            values = numpy_helper.to_array(table).reshape(-1).copy()
            if values.size:
                values[rng.randrange(values.size)] = rng.choice(INTEGERS)
            table.CopyFrom(numpy_helper.from_array(values.reshape(tuple(table.dims)), table.name))
        case _ if node.attribute:
            mutate_attribute(rng, rng.choice(node.attribute))
    return model


def mutate_attribute(rng: Random, attribute: onnx.AttributeProto) -> None:
    """Another value of the same type; a list is another list."""
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(INTEGERS)
    elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        if rng.random() < 0.3:
            del attribute.ints[rng.randrange(len(attribute.ints))]
        else:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(INTEGERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e-30))
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice((b"", b"NOTSET", b"linear", b"\xff", b"abc->cb"))


def resealed(body: bytes) -> bytes:
    """A file as `sealed` writes it."""
    return sealed._MAGIC + hashlib.sha256(body).digest() + body
