"""Engines on a card behind one form: `prepare(job)` gives a Running, whose `seconds` times one replay between two events.

Libraries are imported when an engine is prepared; each library runs in a process of its own for each arithmetic, which is set for a whole process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
BURST = 20
"""Inferences between two readings of the clock, where an engine has no events."""

FLUSH = 1 << 28
"""Bytes that are written to empty the level-2 cache, which has 50 MB on an H200."""


@dataclass(frozen=True)
class Job:
    """What an engine is asked: a model as ONNX, its stored program where the engine runs one, inputs, and the arithmetic."""

    model: Path
    program: Path
    inputs: Arrays
    math: str


@dataclass(frozen=True)
class Running:
    """An engine with the inputs on the card. `flush` empties the cache and does not wait; `seconds` launches once and waits.

    `burst` launches so often without waiting, and gives the seconds of one of them.
    """

    outputs: Callable[[], list[np.ndarray]]
    flush: Callable[[], None]
    seconds: Callable[[], float]
    burst: Callable[[int], float]
    versions: dict[str, str]
    held: tuple[Any, ...] = ()
    """What has to stay in memory: a captured graph knows addresses, and nobody else may know that they are in use."""


def environment(math: str) -> dict[str, str]:
    """For a process whose libraries keep to the arithmetic: torch convolutions use TF32 unless all of it is forbidden."""
    return {**os.environ, "NVIDIA_TF32_OVERRIDE": "0" if math == "fp32" else "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def einnet(job: Job) -> Running:
    """A program of ours, with the weights of the model."""
    from benchmarks.card import lean
    from einnet.runtime.cuda.device import Device

    device = Device(lean.read(job.program, str(job.model)))  # each step tells its arithmetic
    device.load(job.inputs)
    driver = device.driver
    flush = driver.fill(driver.allocate(FLUSH), FLUSH)

    def outputs() -> list[np.ndarray]:
        device.execute()
        return list(device.fetch().values())

    def burst(count: int) -> float:
        return driver.seconds(lambda: [device.execute() for _ in range(count)] and None) / count

    return Running(outputs, flush, lambda: driver.seconds(device.execute), burst, device.versions())


def torch_engine(compiled: bool, channels_last: bool) -> Callable[[Job], Running]:
    """torch, eager or compiled with max-autotune, in a CUDA graph and in one of the two layouts."""

    def prepare(job: Job) -> Running:
        import onnx
        import torch

        from benchmarks.contest.folded import folded
        from benchmarks.contest.torch_model import to_torch

        exact = job.math == "fp32"
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not exact
        layout = torch.channels_last if channels_last else torch.contiguous_format
        model = folded(onnx.load(job.model))
        module: Any = to_torch(model, layout).eval().cuda()
        values = [torch.from_numpy(job.inputs[i.name]).cuda() for i in model.graph.input]
        values = [v.to(memory_format=layout) if v.dim() == 4 else v for v in values]
        short = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(job.math)
        if short is not None:  # all of it in 16 bits, which is the fastest that torch has
            module, values = module.to(short), [v.to(short) if v.is_floating_point() else v for v in values]
        run, result = (compiled_run if compiled else captured_run)(torch, module, values)
        buffer = torch.empty(FLUSH, dtype=torch.uint8).cuda()

        def outputs() -> list[np.ndarray]:
            run()
            torch.cuda.synchronize()
            return [(y.float() if y.is_floating_point() else y).cpu().numpy() for y in result()]

        def burst(count: int) -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(count):
                run()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3 / count

        def flush() -> None:
            buffer.zero_()

        versions = {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "cuda": str(torch.version.cuda)}
        return Running(outputs, flush, lambda: burst(1), burst, versions, (module, values, buffer))

    return prepare


def captured_run(torch: Any, module: Any, values: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An eager module as one CUDA graph, and its outputs."""
    with torch.inference_mode():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                module(*values)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = module(*values)
    return graph.replay, lambda: made


def compiled_run(torch: Any, module: Any, values: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A compiled module as one CUDA graph, as the other engines are: the graphs that torch makes itself are launched through its Python guards,
    which take 0.1-0.2 ms, longer than the small models. Convolutions are cuDNN's: with Triton's beside them ResNet-18 was not compiled in 100 s."""
    import torch._inductor.config as inductor

    inductor.max_autotune_conv_backends = "ATEN"
    return captured_run(torch, torch.compile(module, mode="max-autotune-no-cudagraphs"), values)


def xla(job: Job) -> Running:
    """JAX: the whole model compiled by XLA, weights as constants, which it may lay out and combine once: as arguments it does so in every inference.

    It has no events: `seconds` is the clock around a burst of inferences, one alone after a flush, so that launching from the host counts.
    """
    import jax
    import jax.numpy as jnp
    import onnx

    from benchmarks.contest.folded import folded
    from benchmarks.contest.jax_model import to_jax

    if job.math not in ("fp32", "tf32"):
        raise RuntimeError(f"no model in {job.math} is made for JAX")
    jax.config.update("jax_default_matmul_precision", "highest" if job.math == "fp32" else "tensorfloat32")
    model = folded(onnx.load(job.model))
    function, constants = to_jax(model)
    weights = {name: jnp.asarray(value) for name, value in constants.items()}
    values = [jax.device_put(job.inputs[i.name]) for i in model.graph.input]
    run = jax.jit(lambda *given: function(weights, *given)).lower(*values).compile()
    fill = jax.jit(lambda n: jnp.full(FLUSH // 4, n, jnp.float32))
    state: dict[str, Any] = {"filled": None, "count": 0.0}

    def flush() -> None:
        state["count"] += 1.0
        state["filled"] = fill(state["count"])

    def seconds() -> float:
        flushed, state["filled"] = state["filled"], None
        count = BURST if flushed is None else 1
        jax.block_until_ready(flushed)
        return burst(count)

    def burst(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            last = run(*values)
        jax.block_until_ready(last)
        return (time.perf_counter() - begin) / count

    versions = {"jax": jax.__version__, "platform": jax.devices()[0].platform, "device": jax.devices()[0].device_kind}
    return Running(lambda: [np.asarray(y) for y in run(*values)], flush, seconds, burst, versions)


ENGINES: dict[str, Callable[[Job], Running]] = {
    "einnet": einnet,
    "einnet_no_derive": einnet,
    "torch": torch_engine(compiled=False, channels_last=False),
    "torch-nhwc": torch_engine(compiled=False, channels_last=True),
    "inductor": torch_engine(compiled=True, channels_last=False),
    "inductor-nhwc": torch_engine(compiled=True, channels_last=True),
    "xla": xla,
}
OURS = ("einnet", "einnet_no_derive")
