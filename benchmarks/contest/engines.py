"""Inference engines behind one form: prepare(path, threads) gives a function from input arrays to output arrays.

The path is an ONNX model, for einnet a program that `einnet optimize` wrote. Each engine runs in a process of its own, so it may set
process-wide state. Libraries are imported when an engine is prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]
Prepare = Callable[[Path, int], Run]


def onnxruntime(path: Path, threads: int, *entries: tuple[str, str]) -> Run:
    """ONNX Runtime, CPU provider, all graph optimizations; `entries` of a session's configuration, none as it comes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    for entry in entries:
        options.add_session_config_entry(*entry)
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: list(session.run(None, inputs))


def openvino(path: Path, threads: int) -> Run:
    """OpenVINO on the CPU in float32, latency hint; inputs are shared, outputs are read in place."""
    import openvino as ov
    from openvino import properties

    core = ov.Core()
    settings = {
        properties.hint.inference_precision: ov.Type.f32,
        properties.hint.performance_mode: properties.hint.PerformanceMode.LATENCY,
        properties.inference_num_threads: threads,
    }
    compiled = core.compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()

    def run(inputs: Arrays) -> list[np.ndarray]:
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [results[output] for output in compiled.outputs]

    return run


def einnet(path: Path, threads: int) -> Run:
    """A stored program, on the threads that it was optimized for. ValueError for other threads."""
    import einnet

    program = einnet.load(path)
    if program.loaded.threads != threads:
        raise ValueError(f"the program was optimized for {program.loaded.threads} threads, not {threads}")
    program.executable  # noqa: B018  bound to memory now, not in the first run
    return lambda inputs: list(program(inputs).values())


def _torch(compiled: bool, channels_last: bool) -> Prepare:
    def prepare(path: Path, threads: int) -> Run:
        import onnx
        import torch

        from benchmarks.contest.torch_model import to_torch

        torch.set_num_threads(threads)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        model = onnx.load(path)
        names = [i.name for i in model.graph.input]
        module = to_torch(model, layout).eval()
        if compiled:
            from torch._inductor import config

            config.freezing = True
            module = torch.compile(module)

        def run(inputs: Arrays) -> list[np.ndarray]:
            with torch.inference_mode():
                values = [torch.from_numpy(inputs[name]) for name in names]
                return [y.numpy() for y in module(*(v.to(memory_format=layout) if v.dim() == 4 else v for v in values))]

        return run

    return prepare


ENGINES: dict[str, Prepare] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": _torch(compiled=False, channels_last=False),
    "torch-nhwc": _torch(compiled=False, channels_last=True),
    "inductor": _torch(compiled=True, channels_last=False),
    "inductor-nhwc": _torch(compiled=True, channels_last=True),
    "einnet": einnet,
}



def engine(kind: str) -> Prepare:
    """A key of ENGINES, or "module:function" for one that a benchmark brings along."""
    if kind in ENGINES:
        return ENGINES[kind]
    module, _, name = kind.partition(":")
    found: Prepare = getattr(import_module(module), name)
    return found


PACKAGES = {"inductor": "torch"}
"""The distribution that an engine needs, where it has not the engine's name."""


def family(engine: str) -> str:
    """The engine without its layout: one column of a table, which the faster layout fills."""
    return engine.partition("-")[0]


def version(engine: str) -> str | None:
    """The installed version of an engine's package, None where it is missing."""
    try:
        return metadata.version(PACKAGES.get(family(engine), family(engine)))
    except metadata.PackageNotFoundError:
        return None
