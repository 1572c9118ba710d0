"""`einnet.optimize`: a model in, a faster-or-equal verified program with the derivation of every change out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from einnet.compile import pipeline
from einnet.compile.targets.registry import target_of
from einnet.errors import UsageError
from einnet.search.settings import Arguments, Settings, chosen

if TYPE_CHECKING:
    from einnet.compile.grid.domain import Ranges
    from einnet.compile.grid.target import GridOptimization
    from einnet.compile.ranges.target import DynamicOptimization
    from einnet.compile.target import Optimization

Profile = str | Path | None
Example = Sequence[Any] | None


@overload
def optimize(
    model: Any, settings: Settings | None = None, /, *, dynamic: None = None, profile: Profile = None, math: str | None = None,
    example: Example = None, **arguments: Unpack[Arguments],
) -> Optimization: ...  # fmt: skip


@overload
def optimize(
    model: Any, settings: Settings | None = None, /, *, dynamic: Ranges, profile: Profile = None, math: str | None = None,
    example: Example = None, **arguments: Unpack[Arguments],
) -> DynamicOptimization | GridOptimization: ...  # fmt: skip


def optimize(
    model: Any, settings: Settings | None = None, /, *, dynamic: Ranges | None = None, profile: Profile = None, math: str | None = None,
    example: Example = None, **arguments: Unpack[Arguments],
) -> Optimization | DynamicOptimization | GridOptimization:  # fmt: skip
    """Optimize an ONNX model: a path, an onnx.ModelProto or an onnx_ir.Model; or one of PyTorch: a torch.export.ExportedProgram, a torch.nn.Module.

    Keyword arguments (the fields of Settings):
      max_depth      most explorative rule applications in a derivation (paper section 6.1), default 7
      time_budget    seconds for the whole of it, default 120
      threads        CPU threads, at most one for each processor, default the physical cores
      backend        "cpu", or "cuda": by predicted times, without a device, a CudaOptimization
      target         "native", or "onnx": what is fastest as an ONNX model in ONNX Runtime; `save` to a name that ends in .onnx
      cpu            "native", or "x86-64-v2", "-v3", "-v4": generated code that runs on every processor of that level
      allow          "exact", "reassociation" (default) or "precision": the worst numerical class of step; "tested", alone or as in
                     "precision,tested": steps that are tested and not proven may be used, too; "finite": vendor operators that
                     take NaN and infinities for numbers (softmax, max-pooling of oneDNN), too
      max_error      most that an output may err on the inputs that verify it, relative to its max|y|, as 1e-2: in place of the limit of
                     `allow`; products may round their factors (bf16) where that is faster, and from 1e-5 on steps of class precision
                     are used, unless `allow` is "exact"
      output_errors  output name -> its own such limit, where it is not that of the others
      certified      True lets products round only where a bound of the outputs, by an error analysis of the whole program on one set of
                     inputs, stays within max_error
      strict_nan     True excludes what is true for finite numbers only: a NaN or an infinity goes where the model has it
      derive, converge, fingerprint   False switches the idea off, for ablation
      whole          what ONNX Runtime with the whole model is: "kept" (default) unless a program of ours is surely faster, a "candidate" that runs
                     where it is surely faster, by a tenth, or "never" one, while a program of ours gives its results
      rules          names of the rules that may be explored, default all
      shapes         input name -> shape, for inputs with symbolic dimensions
      inputs         input name -> what the program will see, or several such inputs along one more dimension in front: it is verified, timed and,
                     within max_error, rounded on these and others like them; they give dimensions that are symbolic a size
      dynamic        "batch=1..32" or ("batch", 1, 32): a program for all these sizes of a dimension, a DynamicOptimization;
                     "batch=1..8 seq=16..512", or a list of such ranges: for all pairs of sizes, a GridOptimization
      workers        processes that search, side by side, default 1; the result is the same where the budget suffices
      scheduler      address of a Dask cluster whose workers search instead
      fresh          True searches again what an earlier run has found with these settings and as much time
      seed           of the random inputs that verify and time the result
      memory_limit   bytes that the program may take for weights and intermediate tensors, default what is free
      force          for tests: a seed by which a derived candidate is drawn for every subprogram, however slow; nothing is recalled or remembered
      progress       called with Progress
      example        the inputs of a torch.nn.Module, in order, which fix its shapes
      profile        with backend "cuda": a file of times of the device, default those of an H100 that were recorded
      math           with backend "cuda": arithmetic of products, "fp32" (default: no tensor cores), "tf32", or
                     "fp16" and "bf16": factors of products in 16 bits where that is predicted to be faster, else TF32

    Raises ModelError for a model that cannot be read, UsageError for a wrong argument, BackendError for a missing library.
    """
    from einnet.graph.onnx.exported import as_onnx

    settings = chosen(settings, arguments)
    model = as_onnx(model, example)
    if settings.inputs:
        from einnet.graph.onnx.dynamic import shapes_of

        settings = replace(settings, shapes={**shapes_of(model, settings.inputs), **settings.shapes})
    if dynamic is not None:
        from einnet.compile.grid.domain import split
        from einnet.compile.grid.target import optimize_grid
        from einnet.compile.ranges.target import optimize_range

        if settings.max_error is not None:
            raise UsageError("max_error is about a program for one size: it does not go with a range of sizes")
        if settings.inputs:
            raise UsageError("inputs are of one size: they do not go with a range of sizes")
        target, ranges = target_of(settings, profile=profile, math=math), split(dynamic)
        return optimize_range(model, ranges[0], target) if len(ranges) == 1 else optimize_grid(model, ranges, target)
    return pipeline.optimize(model, target_of(settings, profile=profile, math=math))
