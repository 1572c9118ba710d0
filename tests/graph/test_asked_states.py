"""What asks a state together with what has just come in: it is asked of each, so that no state is written for all times."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from benchmarks.algorithms.mixers import ASK, KEYS, MIXERS, OUTER, Mixer
from einnet.expr.nodes import Select, Tensor
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.folds.asked import asked_apart
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.naming import Namer
from einnet.graph.program import Node
from tests.graph.cases import compare

SIZES = {"H": 2, "K": 3, "V": 5}

SEEN = f"{OUTER} {KEYS} kept = Mul (h, g1) h1 = Add (kept, kv) "
READ = "q1 = Unsqueeze (qt, middle) asked = MatMul (q1, seen) yt = Squeeze (asked, middle)"
GATED = {"inputs": "q[H,K] k[H,K] v[H,V] a[H,K]", "before": "g = Sigmoid (a)", "made": "g[H,K]"}

VARIANTS = {
    "receptance by keys": MIXERS["receptance by keys"],
    "what comes in twice": Mixer(f"{SEEN} two = Add (h, kv) seen = Add (two, kv) {READ}", **GATED),
    "what comes in taken away": Mixer(f"{SEEN} seen = Sub (h, kv) {READ}", **GATED),
    "after its step": Mixer(f"{SEEN} seen = Add (h1, kv) {READ}", **GATED),
    "before and after its step": Mixer(f"{SEEN} seen = Add (h, h1) {READ}", **GATED),
    "alone": Mixer(f"{SEEN} {ASK}", **GATED),
}


def inputs_of(mixer: Mixer, length: int) -> dict[str, np.ndarray]:
    model = mixer.model(length, SIZES)
    rng = np.random.default_rng(3)
    return {v.name: rng.uniform(-1, 1, [d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32) for v in model.graph.input}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_asked_of_a_state_and_more(name: str) -> None:
    for length in (9, 40):
        model = VARIANTS[name].model(length, SIZES)
        compare(load(model), model, inputs_of(VARIANTS[name], length), 5e-5)


def test_the_sum_over_a_state_is_one_walk_with_it() -> None:
    """It asks at the time before, over keys and the times before at once."""
    scopes = [n.scope for n in load(MIXERS["receptance by keys"].model(64, SIZES)).nodes if isinstance(n, Node)]
    asking = [s for s in scopes if len(s.sums) == 2 and isinstance(s.body, Select)]
    assert len(asking) == 1
    assert prod(asking[0].shape) == 64 * SIZES["H"] * SIZES["V"]


HEAD = "q : f32[6,3]\nk : f32[6,3]\nv : f32[6,2]\nh : f32[6,3,2]\n"
WALK = "L[t<6,k<3,v<2] Σ[s<6] select(t-s>=0, exp(-0.5*val(t-s))*k[s,k]*v[s,v], 0)"


def node(name: str, text: str, **more: Tensor) -> Node:
    scope = parse(HEAD + text, more)
    return Node(Tensor(name, scope.shape), scope)


def values(nodes: list[Node]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    held = {"q": rng.standard_normal((6, 3)), "k": rng.standard_normal((6, 3)), "v": rng.standard_normal((6, 2))}
    for n in nodes:
        held[n.output.name] = evaluate(n.scope, {name: held[name] for name in n.inputs})
    return held


@pytest.mark.parametrize(("seen", "asked", "apart"), [
    ("h[t-1,k,v] + k[t,k]*v[t,v]", "q[t,c]*seen[t,c,v]", True),
    ("h[t,k,v] + k[t,k]*v[t,v]", "q[t,c]*seen[t,c,v]", True),
    ("h[t-2,k,v] + (-1)*h[t,k,v]", "q[t,c]*seen[t,c,v]", True),
    ("h[t-1,k,v]|1 + k[t,k]*v[t,v]", "q[t,c]*seen[t,c,v]", True),
    ("h[t+1,k,v] + k[t,k]*v[t,v]", "q[t,c]*seen[t,c,v]", True),
    ("h[t-1,k+1,v] + k[t,k]*v[t,v]", "q[t,c]*seen[t,c,v]", True),
    ("h[t-1,k,v]*h[t,k,v] + k[t,k]*v[t,v]", "q[t,c]*seen[t,c,v]", True),
    ("h[t-1,k,v] + k[t,k]*v[t,v]", "q[t,c]*seen[t-1,c,v]", False),
    ("q[t,k] + k[t,k]*v[t,v]", "q[t,c]*seen[t,c,v]", False),
])  # fmt: skip
def test_apart_it_is_the_same(seen: str, asked: str, apart: bool) -> None:
    held = Tensor("seen", (6, 3, 2))
    given = [node("h", WALK), node("seen", f"L[t<6,k<3,v<2] {seen}"), node("y", f"L[t<6,v<2] Σ[c<3] {asked}", seen=held)]
    namer = Namer()
    namer.taken.update("qkvhy", {"seen"})
    found = asked_apart(given, {"h"}, namer)
    assert (len(found) > len(given)) == apart
    np.testing.assert_allclose(values(found)["y"], values(given)["y"], rtol=1e-9, atol=1e-12)


def test_sums_over_a_state_alone_stay() -> None:
    given = [node("h", WALK), node("y", "L[t<6,v<2] Σ[c<3] q[t,c]*h[t,c,v]")]
    assert asked_apart(given, {"h"}, Namer()) == given
