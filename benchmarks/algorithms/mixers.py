"""Mixers of sequence models as a Scan over time, each state a matrix for each head: the step is all that a model says.

Among them are variants that no paper names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import parser

from benchmarks.algorithms.case import Case

HEAD = '<ir_version: 8, opset_import: ["": 17]>'

SIZES = {"H": 4, "K": 32, "V": 64}
"""Heads, and keys and values of each."""


CONSTANTS = {
    "decay": "float[H,1,1] decay = {DECAY}", "one": "float one = {1.0}", "few": "float few = {0.0625}",
    "middle": "int64[1] middle = {1}", "last": "int64[1] last = {-1}",
}  # fmt: skip


@dataclass(frozen=True)
class Mixer:
    """The step's lines make "h1" of the state "h", and of other states likewise, and "yt" of them and of the slices: "xt" is one of x.

    `inputs`, `made` and `states` are names with what follows time, as in "q[H,K] g[H]". The lines `before` make `made` for all times at once of the
    inputs; `read` are those of both that a step reads. Every state begins with zeros. The number of heads is H, those of keys and values K and V.
    """

    step: str
    inputs: str = "q[H,K] k[H,K] v[H,V]"
    before: str = ""
    made: str = ""
    states: str = "h[H,K,V]"
    directions: tuple[str, ...] = ()
    result: str = "H,V"

    @property
    def read(self) -> dict[str, str]:
        """Slices of a step by name."""
        return {name: dims for name, dims in (named(self.inputs) | named(self.made)).items() if re.search(rf"\b{name}t\b", self.step)}

    def model(self, length: int, sizes: Mapping[str, int] = SIZES) -> onnx.ModelProto:
        """The ONNX model."""
        read, states = self.read, named(self.states)
        slices = ", ".join(f"float[{dims}] {name}t" for name, dims in read.items())
        before = ", ".join(f"float[{dims}] {name}" for name, dims in states.items())
        after = ", ".join(f"float[{dims}] {name}1" for name, dims in states.items())
        given = ", ".join(f"float[T,{dims}] {name}" for name, dims in named(self.inputs).items())
        zeros = " ".join(f"{n}_shape = Constant <value_ints = [{dims}]> () {n}0 = ConstantOfShape ({n}_shape)" for n, dims in states.items())
        way = [int(name in self.directions) for name in read]
        constants = ", ".join(text for name, text in CONSTANTS.items() if re.search(rf"\b{name}\b", f"{self.before} {self.step}"))
        text = f"""{HEAD} mixer ({given}) => (float[T,{self.result}] y) <{constants}> {{ {zeros} {self.before}
          {", ".join(f"{n}_end" for n in states)}, y = Scan <num_scan_inputs = {len(read)}, scan_input_directions = {way},
            scan_output_directions = [{int("y" in self.directions)}],
            body = step ({before}, {slices}) => ({after}, float[{self.result}] yt) {{ {self.step} }}>
          ({", ".join(f"{n}0" for n in states)}, {", ".join(read)}) }}"""
        decay = ", ".join(f"{d:.6f}" for d in 1 - np.exp2(-2.0 - np.arange(sizes["H"])))
        for word, number in (*sizes.items(), ("T", length), ("DECAY", decay)):
            text = re.sub(rf"\b{word}\b", str(number), text)
        return parser.parse_model(text)


def named(text: str) -> dict[str, str]:
    """Dimensions by name, of names with dimensions."""
    return dict(re.findall(r"(\w+)\[([^]]*)\]", text))


OUTER = "k1 = Unsqueeze (kt, last) v1 = Unsqueeze (vt, middle) kv = Mul (k1, v1)"
ASK = "q1 = Unsqueeze (qt, middle) asked = MatMul (q1, h1) yt = Squeeze (asked, middle)"
KEYS = "g1 = Unsqueeze (gt, last)"

MIXERS: dict[str, Mixer] = {
    "retention": Mixer(f"{OUTER} kept = Mul (h, decay) h1 = Add (kept, kv) {ASK}"),
    "gated linear attention": Mixer(
        f"{OUTER} {KEYS} kept = Mul (h, g1) h1 = Add (kept, kv) {ASK}",
        "q[H,K] k[H,K] v[H,V] a[H,K]", "s = Softplus (a) p = Mul (s, few) n = Neg (p) g = Exp (n)", "g[H,K]",
    ),
    "receptance by keys": Mixer(
        f"{OUTER} {KEYS} bonus = Unsqueeze (ut, last) now = Mul (kv, bonus) seen = Add (h, now) q1 = Unsqueeze (qt, middle) "
        "asked = MatMul (q1, seen) yt = Squeeze (asked, middle) kept = Mul (h, g1) h1 = Add (kept, kv)",
        "q[H,K] k[H,K] v[H,V] a[H,K] u[H,K]", "e = Exp (a) n = Neg (e) g = Exp (n)", "g[H,K]",
    ),
    "linear attention": Mixer(
        f"{OUTER} h1 = Add (h, kv) z1 = Add (z, kt) q1 = Unsqueeze (qt, middle) asked = MatMul (q1, h1) sums = Squeeze (asked, middle) "
        "weighed = Mul (qt, z1) all = ReduceSum (weighed, last) yt = Div (sums, all)",
        "x[H,K] w[H,K] v[H,V]", "q = Softplus (x) k = Softplus (w)", "q[H,K] k[H,K]", states="h[H,K,V] z[H,K]",
    ),
    "gated delta": Mixer(
        "k1 = Unsqueeze (kt, middle) g1 = Unsqueeze (gt, last) kept = Mul (h, g1) found = MatMul (k1, kept) v1 = Unsqueeze (vt, middle) "
        "apart = Sub (v1, found) b1 = Unsqueeze (bt, last) by = Mul (apart, b1) k2 = Unsqueeze (kt, last) new = Mul (k2, by) "
        f"h1 = Add (kept, new) {ASK}",
        "q[H,K] r[H,K] v[H,V] a[H,1] c[H,1]",
        "g = Sigmoid (a) b = Sigmoid (c) size = ReduceL2 <axes = [2]> (r) k = Div (r, size)", "g[H,1] b[H,1] k[H,K]",
    ),
    "two states of two rates": Mixer(
        f"{OUTER} kept = Mul (h, decay) h1 = Add (kept, kv) d1 = Unsqueeze (gt, last) left = Mul (m, d1) m1 = Add (left, kv) both = Sub (h1, m1) "
        "q1 = Unsqueeze (qt, middle) asked = MatMul (q1, both) yt = Squeeze (asked, middle)",
        "q[H,K] k[H,K] v[H,V] a[H,1]", "g = Sigmoid (a)", "g[H,1]", states="h[H,K,V] m[H,K,V]",
    ),
    "a gate for each value": Mixer(
        f"{OUTER} g1 = Unsqueeze (gt, middle) kept = Mul (h, g1) h1 = Add (kept, kv) {ASK}",
        "q[H,K] k[H,K] v[H,V] a[H,V]", "g = Sigmoid (a)", "g[H,V]",
    ),
    "gates of keys and of values": Mixer(
        f"{OUTER} {KEYS} f1 = Unsqueeze (ft, middle) by = Mul (g1, f1) kept = Mul (h, by) h1 = Add (kept, kv) {ASK}",
        "q[H,K] k[H,K] v[H,V] a[H,K] c[H,V]", "g = Sigmoid (a) f = Sigmoid (c)", "g[H,K] f[H,V]",
    ),
    "a state that follows another": Mixer(
        f"{OUTER} kept = Mul (h, decay) h1 = Add (kept, kv) left = Mul (m, decay) m1 = Add (left, h1) q1 = Unsqueeze (qt, middle) "
        "asked = MatMul (q1, m1) yt = Squeeze (asked, middle)",
        states="h[H,K,V] m[H,K,V]",
    ),
    "keys of the time before": Mixer(
        "k1 = Unsqueeze (p, last) v1 = Unsqueeze (vt, middle) kv = Mul (k1, v1) kept = Mul (h, decay) h1 = Add (kept, kv) "
        f"p1 = Identity (kt) {ASK}",
        states="h[H,K,V] p[H,K]",
    ),
    "backwards": Mixer(f"{OUTER} kept = Mul (h, decay) h1 = Add (kept, kv) {ASK}", directions=("q", "k", "v", "y")),
    "values backwards": Mixer(f"{OUTER} {KEYS} kept = Mul (h, g1) h1 = Add (kept, kv) {ASK}",
        "q[H,K] k[H,K] v[H,V] a[H,K]", "g = Sigmoid (a)", "g[H,K]", directions=("v",)),
    "asked before": Mixer(
        f"{OUTER} {KEYS} kept = Mul (h, g1) h1 = Add (kept, kv) q1 = Unsqueeze (qt, middle) asked = MatMul (q1, h) yt = Squeeze (asked, middle)",
        "q[H,K] k[H,K] v[H,V] a[H,1]", "g = Sigmoid (a)", "g[H,1]",
    ),
    "as much goes as comes": Mixer(
        f"{OUTER} {KEYS} away = Sub (one, g1) kept = Mul (h, away) new = Mul (kv, g1) h1 = Add (kept, new) {ASK}",
        "q[H,K] k[H,K] v[H,V] a[H,K]", "g = Sigmoid (a)", "g[H,K]",
    ),
    "a gate that is a state": Mixer(
        f"near = Mul (z, few) z1 = Add (near, at) s = Sigmoid (z1) g1 = Unsqueeze (s, last) {OUTER} kept = Mul (h, g1) h1 = Add (kept, kv) {ASK}",
        "q[H,K] k[H,K] v[H,V] a[H,K]", states="h[H,K,V] z[H,K]",
    ),
    "a mean of all times": Mixer(
        f"{OUTER} h1 = Add (h, kv) n1 = Add (n, one) q1 = Unsqueeze (qt, middle) asked = MatMul (q1, h1) sums = Squeeze (asked, middle) "
        "yt = Div (sums, n1)",
        states="h[H,K,V] n[1]",
    ),
    "no keys": Mixer(
        "kept = Mul (h, gt) h1 = Add (kept, vt) o = Tanh (h1) yt = Mul (o, qt)",
        "q[H,V] v[H,V] a[H,V]", "g = Sigmoid (a)", "g[H,V]", states="h[H,V]",
    ),
    "a quotient of two gates": Mixer(
        f"{OUTER} {KEYS} e1 = Unsqueeze (et, last) by = Div (g1, e1) kept = Mul (h, by) h1 = Add (kept, kv) {ASK}",
        "q[H,K] k[H,K] v[H,V] a[H,K] c[H,K]", "g = Sigmoid (a) p = Softplus (c) e = Exp (p)", "g[H,K] e[H,K]",
    ),
    "functions of what comes": Mixer(
        "n = Tanh (kt) k1 = Unsqueeze (n, last) r = Relu (vt) v1 = Unsqueeze (r, middle) kv = Mul (k1, v1) kept = Mul (h, decay) h1 = Add (kept, kv) "
        + ASK,
    ),
    "two values": Mixer(
        f"{OUTER} u1 = Unsqueeze (ut, middle) ku = Mul (k1, u1) more = Add (kv, ku) kept = Mul (h, decay) h1 = Add (kept, more) {ASK}",
        "q[H,K] k[H,K] v[H,V] u[H,V]",
    ),
}  # fmt: skip
"""By name."""

TOGETHER = frozenset({"gated delta"})
"""Those of which a step mixes the places of a state: no closed sum is known of them."""

NAMED = "retention", "gated linear attention", "receptance by keys", "linear attention", "gated delta"
"""Those that papers have; the others are variants, which tests try."""


MIXING: tuple[Case, ...] = tuple(
    Case(f"{name} by a scan {length}", "chunks, or a walk", partial(MIXERS[name].model, length)) for length in (512, 2048) for name in NAMED
)
