"""Engines in the precision of their own choice, in the form of `benchmarks.contest.engines`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.contest.engines import Arrays, Run, onnxruntime
from einnet.runtime.ort import whole_sums


def onnxruntime_whole(path: Path, threads: int) -> Run:
    """ONNX Runtime with products of bytes added up in whole integers: as it comes it cuts them at 16 bits on processors with AVX2 that lack VNNI."""
    return onnxruntime(path, threads, *whole_sums())


def openvino_default(path: Path, threads: int) -> Run:
    """OpenVINO on the CPU as it comes: its own choice of precision, latency hint."""
    import openvino as ov
    from openvino import properties

    settings = {properties.hint.performance_mode: properties.hint.PerformanceMode.LATENCY, properties.inference_num_threads: threads}
    compiled = ov.Core().compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()

    def run(inputs: Arrays) -> list[np.ndarray]:
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [np.asarray(results[output], np.float32) for output in compiled.outputs]

    return run


def torch_bf16(path: Path, threads: int) -> Run:
    """PyTorch, channels last, products and convolutions in bfloat16 by its own lists (autocast)."""
    import onnx
    import torch

    from benchmarks.contest.torch_model import to_torch

    torch.set_num_threads(threads)
    model = onnx.load(path)
    names = [i.name for i in model.graph.input]
    module = to_torch(model, torch.channels_last).eval()

    def run(inputs: Arrays) -> list[np.ndarray]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            values = [torch.from_numpy(inputs[name]) for name in names]
            return [y.float().numpy() for y in module(*(v.to(memory_format=torch.channels_last) if v.dim() == 4 else v for v in values))]

    return run
