"""Recurrences as exporters write them: a Scan or a Loop over time, and the operators that are such; the step is all that a model says."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
from onnx import parser

from benchmarks.algorithms.case import Case
from benchmarks.models.net import Net

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def selective_scan(length: int, width: int, state: int) -> onnx.ModelProto:
    """Mamba's: h = exp(d*a)*h + d*u*b, y = c·h, where d, b and c are data at every time."""
    return parser.parse_model(f"""{HEAD} selective_scan (float[1,{length},{width}] u, float[1,{length},{width}] d, float[1,{length},{state}] b,
      float[1,{length},{state}] c, float[{width},{state}] a) => (float[1,{length},{width}] y) <int64[1] last = {{-1}}, int64[1] one = {{1}}> {{
      positive = Softplus (d) growth = Exp (a) rate = Neg (growth)
      shape = Constant <value_ints = [1, {width}, {state}]> () h0 = ConstantOfShape (shape)
      h_end, y = Scan <num_scan_inputs = 4, scan_input_axes = [1, 1, 1, 1], scan_output_axes = [1],
        body = step (float[1,{width},{state}] h, float[1,{width}] ut, float[1,{width}] dt, float[1,{state}] bt, float[1,{state}] ct)
          => (float[1,{width},{state}] h_new, float[1,{width}] yt) {{
          d1 = Unsqueeze (dt, last) power = Mul (d1, rate) gate = Exp (power) du = Mul (dt, ut) du1 = Unsqueeze (du, last)
          b1 = Unsqueeze (bt, one) new = Mul (du1, b1) kept = Mul (gate, h) h_new = Add (kept, new)
          c1 = Unsqueeze (ct, last) read = MatMul (h_new, c1) yt = Squeeze (read, last) }}> (h0, u, positive, b, c) }}""")


def state_space(length: int, heads: int, width: int, state: int) -> onnx.ModelProto:
    """Mamba-2's by a Loop that gathers at its number: h = a*h + b x', y = h c, with one decay a for each head and time."""
    return parser.parse_model(f"""{HEAD} state_space (float[{length},{heads},{width}] x, float[{length},{heads}] a, float[{length},{heads},{state}] b,
      float[{length},{heads},{state}] c) => (float[{length},{heads},{width}] y) <int64 count = {{{length}}}, bool go = {{1}}, int64[1] last = {{-1}},
      int64[1] middle = {{1}}, int64[2] both = {{1, 2}}> {{
      gates = Sigmoid (a) shape = Constant <value_ints = [{heads}, {width}, {state}]> () h0 = ConstantOfShape (shape)
      h_end, y = Loop <body = step (int64 i, bool on, float[{heads},{width},{state}] h)
          => (bool more, float[{heads},{width},{state}] h_new, float[{heads},{width}] yt) {{
          more = Identity (on) xt = Gather <axis = 0> (x, i) at = Gather <axis = 0> (gates, i) bt = Gather <axis = 0> (b, i)
          ct = Gather <axis = 0> (c, i) x1 = Unsqueeze (xt, last) b1 = Unsqueeze (bt, middle) a1 = Unsqueeze (at, both)
          new = Mul (x1, b1) kept = Mul (a1, h) h_new = Add (kept, new) c1 = Unsqueeze (ct, last) read = MatMul (h_new, c1)
          yt = Squeeze (read, last) }}> (count, go, h0) }}""")


def gated_mean(length: int, rows: int, width: int) -> onnx.ModelProto:
    """A minimal gated unit: h = (1 - z)*h + z*n, where the gate z and what is new come from the input alone."""
    shape = f"{length},{rows},{width}"
    return parser.parse_model(f"""{HEAD} gated_mean (float[{shape}] x, float[{shape}] g, float[{rows},{width}] h0) => (float[{shape}] y)
      <float one = {{1.0}}> {{
      h_end, y = Scan <num_scan_inputs = 2, body = step (float[{rows},{width}] h, float[{rows},{width}] xt, float[{rows},{width}] gt)
          => (float[{rows},{width}] h_new, float[{rows},{width}] yt) {{
          z = Sigmoid (gt) away = Sub (one, z) kept = Mul (away, h) new = Mul (z, xt) h_new = Add (kept, new)
          yt = Identity (h_new) }}> (h0, x, g) }}""")


def recurrent(op: str, gates: int, length: int, rows: int, width: int) -> onnx.ModelProto:
    """An operator of the standard."""
    net = Net("recurrent", 0)
    x = net.input("x", (length, rows, width))
    rng = np.random.default_rng(0)
    weights = [net.constant(name, rng.uniform(-0.1, 0.1, (1, gates * width, width)).astype(np.float32)) for name in "wr"]
    return net.finish(net.node(op, "y", [x, *weights], (length, 1, rows, width), hidden_size=width))


FOLDS: tuple[Case, ...] = (
    Case("selective scan 512", "a walk along time with its state in registers", partial(selective_scan, 512, 64, 16)),
    Case("selective scan 2048", "the same, at four times the length", partial(selective_scan, 2048, 64, 16)),
    Case("state space by a loop 512", "chunks, or a walk", partial(state_space, 512, 4, 64, 32)),
    Case("state space by a loop 2048", "the same, at four times the length", partial(state_space, 2048, 4, 64, 32)),
    Case("gated mean 1024", "a walk along time", partial(gated_mean, 1024, 1, 256)),
    Case("LSTM 16 x 128", "one product with the inputs of all times", partial(recurrent, "LSTM", 4, 16, 1, 128)),
    Case("GRU 16 x 128", "one product with the inputs of all times", partial(recurrent, "GRU", 3, 16, 1, 128)),
)
