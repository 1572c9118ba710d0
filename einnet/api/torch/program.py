"""An optimized program called with torch's tensors, on their own memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from einnet.api.torch.halves import widened

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.whole import Whole

Tensor = Any
Array = np.ndarray[Any, np.dtype[Any]]
Form = tuple[tuple[int, ...], tuple[int, ...], Any]
"""Shape, strides and element type."""


class Bound:
    """A program that takes and gives tensors. Its inputs by name stand `at` these places among the arguments; its outputs have these `forms`, in this
    order.

    Inputs are read where they lie, whatever their strides. Outputs are new tensors of their forms, into which the program's results are written; an
    array that ONNX Runtime has made is handed over as it is, through DLPack, where its strides are those.
    """

    def __init__(self, executable: Executable | Whole, at: Mapping[str, int], forms: Mapping[str, Form]) -> None:
        from einnet.runtime.whole import Whole

        self.executable, self._at, self._forms = executable, dict(at), dict(forms)
        self._into = None if isinstance(executable, Whole) else executable.into
        self._names = list(executable.input_names)
        self._order = [list(executable.output_names).index(name) for name in forms]
        self._reads = [at[name] for name in self._names]
        self._gives = [forms[name] for name in executable.output_names]
        self._writes = [(shape, stride, widened(dtype)) for shape, stride, dtype in self._gives]
        self._narrows = self._writes != self._gives

    @staticmethod
    def of(executable: Executable | Whole, places: Sequence[int], like: Sequence[Tensor]) -> Bound:
        """A program of inputs x0, x1, .. that stand at these places, and of outputs y0, y1, .. that are like these tensors."""
        forms = {f"y{n}": (tuple(t.shape), tuple(t.stride()), t.dtype) for n, t in enumerate(like)}
        return Bound(executable, {f"x{n}": place for n, place in enumerate(places)}, forms)

    def __call__(self, args: Sequence[Any]) -> tuple[Tensor, ...]:
        """The part's outputs. Raises EinNetError for arguments of another shape or type."""
        arrays = [array_of(args[n]) for n in self._reads]
        results = self._results(arrays)
        return tuple(results[n] for n in self._order)

    def piece(self, places: Mapping[int, int], outputs: range) -> Bound | None:
        """What gives some of the outputs alone, on this program's constants, from arguments that stand at other `places`, by their places among all.

        None where they need other arguments than these, or the program cannot be taken apart.
        """
        from einnet.runtime.cpu.program import Executable

        if not isinstance(self.executable, Executable):
            return None
        forms = {f"y{n}": self._forms[f"y{n}"] for n in outputs}
        plan, whole = self.executable.plan.giving(forms), self.executable
        at = {name: places[self._at[name]] for name, _ in plan.inputs if self._at[name] in places}
        if len(at) < len(plan.inputs):
            return None
        return Bound(Executable(plan, whole.threads, code=whole.code, native=whole.native, beside=[whole]), at, forms)

    def rest(self) -> None:
        """Give memory back that the next call takes again."""
        from einnet.runtime.cpu.program import Executable

        if isinstance(self.executable, Executable):
            self.executable.release()

    def _results(self, arrays: list[Array]) -> list[Tensor]:
        """In the program's order."""
        if self._into is None:
            found = self.executable(dict(zip(self._names, arrays)))
            return [tensor_of(array, form) for array, form in zip(found.values(), self._gives)]
        results = [torch.empty_strided(shape, stride, dtype=dtype) for shape, stride, dtype in self._writes]
        made = self._into(arrays, [t.numpy() for t in results])
        if made is not None:
            return [tensor_of(array, form) for array, form in zip(made, self._gives)]
        return [narrowed(t, form) for t, form in zip(results, self._gives)] if self._narrows else results


def array_of(tensor: Tensor) -> Array:
    """The tensor's own memory as an array, or a copy in float32 of one of half precision."""
    tensor = widened(tensor)
    array: Array = tensor.numpy() if not tensor.requires_grad and not tensor.is_neg() else tensor.numpy(force=True)
    return array


def narrowed(tensor: Tensor, form: Form) -> Tensor:
    """The tensor in an element type; itself where it has that."""
    shape, stride, dtype = form
    return tensor if tensor.dtype is dtype else torch.empty_strided(shape, stride, dtype=dtype).copy_(tensor)


def tensor_of(array: Array, form: Form) -> Tensor:
    """The array as a tensor of this shape, stride and type, on its own memory where it has that form."""
    shape, stride, dtype = form
    found = torch.from_dlpack(array) if array.flags.writeable and array.dtype != np.bool_ else torch.from_numpy(np.array(array))
    if found.stride() == stride and found.dtype is dtype:
        return found
    return torch.empty_strided(shape, stride, dtype=dtype).copy_(found.reshape(shape))
