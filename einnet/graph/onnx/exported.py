"""PyTorch in: an exported program, or a module with example inputs, as an ONNX model, by torch's own exporter.

Nothing here imports torch before the caller has: what is no object of torch's is given back as it is.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from einnet.errors import BackendError, ModelError, UsageError
from einnet.graph.onnx.mapped import LARGEST, parted, write
from einnet.graph.onnx.read import first_line

T = TypeVar("T")


def is_torch(model: Any) -> bool:
    """It is a program that torch.export has made, or a module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.export.ExportedProgram, torch.nn.Module))


def as_onnx(model: Any, example: Sequence[Any] | None = None) -> Any:
    """The model as an ONNX model if it is one of torch's, else as it is.

    `example` are the positional inputs of a module, which fix its shapes; an exported program has its own. Raises UsageError where a module has no
    example inputs or another kind of model has some, and what `exported` raises.
    """
    if not is_torch(model):
        if example is not None:
            raise UsageError(f"example inputs go with a torch.nn.Module, not with {type(model).__name__}")
        return model
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        if example is not None:
            raise UsageError("an exported program has its inputs' shapes: it takes no example inputs")
        return exported(model)
    if example is None:
        raise UsageError(f"a torch.nn.Module wants example inputs: optimize({type(model).__name__.lower()}, example=(x,))")
    if not isinstance(example, (tuple, list)):  # a tensor is a sequence, of its rows
        raise UsageError(f"example inputs are a tuple or a list of them, example=(x,), and no {type(example).__name__}")
    if model.training:
        raise UsageError("the module is in training mode, which is not what is to be optimized: call its eval() first")
    return apart(lambda: exported(traced(model, example)))


def traced(module: Any, example: Sequence[Any]) -> Any:
    """The module as torch.export sees it on these inputs. Raises ModelError where it cannot be exported."""
    import torch

    try:
        with torch.no_grad(), quiet():
            return torch.export.export(module, tuple(example), strict=False)
    except Exception as error:  # torch raises many types for what it cannot trace
        raise ModelError(f"{type(module).__name__}: torch cannot export it: {told(error)}") from error


def exported(program: Any, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Any:
    """An exported program as an ONNX model (an onnx.ModelProto), with these names for its inputs and outputs.

    Raises BackendError where a package is missing, ModelError where torch's exporter has no ONNX for it.
    """

    def give(found: Any) -> Any:
        size = sum(value.const_value.nbytes for value in found.model.graph.initializers.values() if value.const_value is not None)
        if size >= LARGEST:
            limit = "more than an ONNX model in memory can have, 2 GB; one that torch.onnx.export wrote to a file is taken"
            raise ModelError(f"the weights have {size / 1e9:.3g} GB: {limit}")
        return named(found.model_proto, dimension_names(program))

    return _exported(program, inputs, outputs, give)


def exported_to(path: Path, program: Any, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> None:
    """Write an exported program as an ONNX model: its weights go from where torch has them into `PATH.data` beside it.

    Raises as `exported` does, and ModelError where the file cannot be written.
    """

    def give(found: Any) -> None:
        proto, values = parted(found.model)
        try:
            write(named(proto, dimension_names(program)), values, path)
        except OSError as error:
            raise ModelError(f"{path}: the model cannot be written: {error}") from error

    _exported(program, inputs, outputs, give)


def _exported(program: Any, inputs: Sequence[str] | None, outputs: Sequence[str] | None, give: Callable[[Any], T]) -> T:
    """What is made of torch's ONNX program for an exported one."""
    import torch

    try:
        with torch.no_grad(), quiet():
            result = _translated(program, inputs, outputs)
            fold(result.model)
            return give(result)
    except ModelError:
        raise
    except ImportError as error:
        raise BackendError(f"torch's ONNX exporter cannot be used ({first_line(error)}): `pip install 'einnet[torch]'`") from error
    except Exception as error:  # the exporter raises many types
        raise ModelError(f"torch's exporter has no ONNX model for it: {told(error)}") from error


def _translated(program: Any, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Any:
    """torch's ONNX program. What its exporter knows is looked up once a process, not once an export, which takes it 0.8 s."""
    import torch

    known = registry()
    if known is None:
        return torch.onnx.export(program, dynamo=True, optimize=False, verbose=False, input_names=inputs, output_names=outputs)
    operators, export = known
    names = {"input_names": inputs, "output_names": outputs}
    return export(program, registry=operators, optimize=False, verbose=False, opset_version=operators.opset_version, **names)


@cache
def registry() -> tuple[Any, Callable[..., Any]] | None:
    """What torch's exporter has ONNX for, by the opset that it writes, and the exporter to go with it; None where this torch does not tell."""
    try:
        from torch.onnx._constants import ONNX_DEFAULT_OPSET
        from torch.onnx._internal.exporter._core import export
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        return ONNXRegistry.from_torchlib(opset_version=ONNX_DEFAULT_OPSET), export
    except (ImportError, AttributeError, TypeError):
        return None


def fold(model: Any) -> None:
    """Compute what is constant in torch's model, mostly sizes, and lay the elements of its weights one after the other.

    The rewriting rules that the exporter's own optimization has beside that do what the algebra does here, or ONNX Runtime; they look for some
    patterns once for each pair of nodes.
    """
    import torch
    from onnx_ir.tensor_adapters import TorchTensor
    from onnxscript import optimizer

    optimizer.inline(model)
    optimizer.fold_constants(model, onnx_shape_inference=True)
    optimizer.remove_unused_nodes(model)
    for name, value in model.graph.initializers.items():
        array = None if value.const_value is None else value.const_value.numpy()
        if array is not None and not array.flags.c_contiguous and array.dtype.isbuiltin:  # transposed: numpy copies these by one thread, and slowly
            value.const_value = TorchTensor(torch.from_numpy(array).contiguous(), name)


def dimension_names(program: Any) -> dict[str, str]:
    """The names that a user gave to sizes (`torch.export.Dim("batch")`), by the symbols that torch has for them in the program.

    torch keeps them where it solves for the sizes alone, and not in a program that was saved and loaded: what it does not tell has no name here.
    """
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    known = next((v.fake_mode.shape_env for v in values if getattr(getattr(v, "fake_mode", None), "shape_env", None)), None)
    told: Mapping[str, str] = getattr(known, "source_name_to_debug_name", {})
    used = {word for text in told.values() for word in re.findall(r"\w+", text)}
    found: dict[str, str] = {}
    for symbol, sources in getattr(known, "var_to_sources", {}).items():
        places = [str(s.name() if callable(s.name) else s.name) for s in sources]
        names = {name for place in places if (name := told.get(place, place)) in used and name.isidentifier()}
        if symbol in program.range_constraints and len(names) == 1:
            found[str(symbol)] = names.pop()
    others = {word for symbol in program.range_constraints for word in re.findall(r"\w+", str(symbol))} - found.keys()
    return found if len(set(found.values())) == len(found) and others.isdisjoint(found.values()) else {}


def named(model: Any, names: Mapping[str, str]) -> Any:
    """The model with these names for symbols in the sizes of its values, in expressions of them, too."""
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info, *(v for f in model.functions for v in f.value_info))
    for dimension in (d for v in values for d in v.type.tensor_type.shape.dim if d.dim_param):
        dimension.dim_param = re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), dimension.dim_param)
    return model


def apart(call: Callable[[], T]) -> T:
    """What the call gives, in a thread of its own: dispatch keys and modes that torch has set in the caller's thread hold for that alone."""
    with ThreadPoolExecutor(1, "einnet-export") as pool:
        return pool.submit(call).result()


def told(error: BaseException) -> str:
    """The line of torch's error that says what is wrong; the errors that it wraps say more than the outermost."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing of what the exporter says beside its result is shown, nor what its optimizer logs of constants that it cannot compute."""
    log = logging.getLogger("onnxscript")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
