"""ONNX Runtime: reference results and baseline of whole models, and the nodes that it runs inside a program. Imported when first used.

Sessions use as many threads as they are told and do not spin while they wait, so that they leave the cores to the program's own pool.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from einnet.errors import BackendError, NodeError, UsageError
from einnet.graph.in_file import ModelFile
from einnet.runtime import machine
from einnet.runtime.capacity import give_back

Array = np.ndarray[Any, np.dtype[Any]]

Result = TypeVar("Result")

_TYPES = {"float": "f4", "double": "f8", "float16": "f2", "bool": "?"}
_TYPES.update({f"{u}int{b}": f"{u or 'i'}{b // 8}" for u in ("", "u") for b in (8, 16, 32, 64)})


def available() -> str | None:
    """None if ONNX Runtime can be imported, else why not."""
    try:
        import onnxruntime  # noqa: F401
    except Exception as e:  # a broken installation raises many things
        return f"ONNX Runtime cannot be imported ({e}): `pip install onnxruntime`"
    return None


def version() -> str | None:
    """The version of ONNX Runtime, None if it is not installed."""
    if available():
        return None
    import onnxruntime

    return str(onnxruntime.__version__)


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output of a session; unknown sizes are names or None."""

    name: str
    shape: tuple[int | str | None, ...]
    dtype: np.dtype[Any] | None


def _argument(value: Any) -> Argument:
    match = re.fullmatch(r"tensor\((\w+)\)", value.type)
    dtype = np.dtype(_TYPES[match[1]]) if match and match[1] in _TYPES else None
    return Argument(value.name, tuple(value.shape or ()), dtype)


WHOLE_SUMS = ("session.x64quantprecision", "1")
"""ONNX Runtime's setting without which products of bytes are added up in 16 bits, and cut there, on processors with AVX2 that lack VNNI."""


def whole_sums() -> tuple[tuple[str, str], ...]:
    """The settings with which products of bytes are added up whole on this processor. Where they are in any case, the setting only takes time."""
    from einnet.graph.onnx.standard import cuts

    return (WHOLE_SUMS,) if cuts(machine.cpu_features()) else ()


UNROUNDED = ("session.qdq_matmulnbits_accuracy_level", "1")
"""ONNX Runtime's setting with which a product with a weight of few bits is one of floats: by default it rounds the other factor to bytes, too, and
gives results that are 0.003 and more of max|y| from those of the model's nodes."""

TWICE = "replace the existing tensor"
"""What ONNX Runtime says where it names two tensors alike."""

NO_ZERO = "x_zero_point must be null or 1D tensor"
"""What ONNX Runtime says in a run where, to add products of bytes up whole, it has given scales of columns the zero point of one."""

SILENT = 4
"""The level of ONNX Runtime's log at which it does not write what it raises."""

STOP = ("session.force_spinning_stop", "1")
"""Lets threads that wait actively do so within a run alone."""

LARGE = 1 << 24
"""Bytes of a model from which on ONNX Runtime reads it from a file: of bytes it keeps these, beside what it makes of them."""


def _opened(source: bytes | str, options: Any) -> Any:
    """A session; that of a large model reads it from a file, which is gone afterwards."""
    import onnxruntime

    if isinstance(source, bytes) and len(source) >= LARGE:
        with suppress(OSError), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(source)
            return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _session(source: bytes | str, options: Any) -> Any:
    """A session; a file format newer than ONNX Runtime knows is declared as its newest, since operators carry versions of their own."""
    from einnet.graph.onnx.read import in_format

    try:
        return _fused(source, options)
    except Exception as e:
        newest = re.search(r"max supported IR version: (\d+)", str(e))
        if newest is None:
            raise
    return _fused(in_format(source, int(newest[1])), options)


def _fused(source: bytes | str, options: Any) -> Any:
    """A session; products of bytes are told to add up whole by giving each an unsigned weight, at which ONNX Runtime ends where two read one weight:
    there it joins nothing to them, and they are products of floats."""
    import onnxruntime

    try:
        return _opened(source, options)
    except Exception as e:
        if TWICE not in str(e):
            raise
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return _opened(source, options)


class Session:
    """A model in ONNX Runtime, on the CPU.

    `spin` lets its threads wait actively, as its own defaults do: for baselines; with `stops` they do so within a run alone. A `frugal` session does
    not plan all memory of a run as one block, which it would take beside what the first run took. An `as_written` one runs the model's nodes as they
    stand, joining none. One that `rounds` computes products with weights of few bits as ONNX Runtime's users have them, of rounded factors: for
    baselines, and for the whole model as a program. What others are compared with does not.
    """

    def __init__(
        self, model: bytes | str | Path | ModelFile, threads: int, *, spin: bool = False, frugal: bool = False, as_written: bool = False,
        rounds: bool = False, stops: bool = False, title: str = "the model",
    ) -> None:  # fmt: skip
        reason = available()
        if reason:
            raise BackendError(reason)
        import onnxruntime

        def opened(*sums: tuple[str, str]) -> Any:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
            options.log_severity_level = 3
            options.enable_mem_pattern = not frugal
            waiting = (("session.intra_op.allow_spinning", "1" if spin else "0"), *((STOP,) if spin and stops else ()))
            for entry in (*sums, *(() if rounds else (UNROUNDED,)), *waiting):
                options.add_session_config_entry(*entry)
            if as_written:
                options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            return _session(source, options)

        model = model.source() if isinstance(model, ModelFile) else model
        source, sums = model if isinstance(model, bytes) else str(model), whole_sums()
        try:
            self.session = opened(*sums)
        except Exception as e:
            raise BackendError(f"ONNX Runtime does not accept {title}: {e}") from e
        self._otherwise: Callable[[], Any] | None = opened if sums else None  # until the first run has shown whether it is wanted
        self.title = title
        self.inputs = tuple(_argument(v) for v in self.session.get_inputs())
        self.outputs = tuple({v.name: _argument(v) for v in self.session.get_outputs()}.values())  # a model may list one twice
        self.input_names, self.output_names = [a.name for a in self.inputs], [a.name for a in self.outputs]

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name, copied: what ONNX Runtime gives keeps the memory of the whole run alive as long as it lives itself.

        Raises UsageError if ONNX Runtime does not take the inputs.
        """
        try:
            results = self.raw(inputs if isinstance(inputs, dict) else dict(inputs))
        except Exception as e:
            raise UsageError(f"ONNX Runtime cannot run {self.title} on these inputs: {e}") from e
        return {name: r.copy() if isinstance(r, np.ndarray) else r for name, r in zip(self.output_names, results)}

    def raw(self, inputs: dict[str, Array]) -> list[Array]:
        """All outputs in order, as ONNX Runtime gives them. Raises what it raises."""
        if self._otherwise is None:
            return list(self.session.run(self.output_names, inputs))
        return self._first(lambda options: list(self.session.run(self.output_names, inputs, options)))

    def _first(self, run: Callable[[Any], Result]) -> Result:
        """What the first run gives, by options that keep it silent, in a session that does not add up whole where ONNX Runtime can only run that."""
        import onnxruntime

        silent = onnxruntime.RunOptions()
        silent.log_severity_level = SILENT
        otherwise, self._otherwise = self._otherwise, None
        try:
            return run(silent)
        except Exception as e:
            if otherwise is None or NO_ZERO not in str(e):
                raise
        self.session = otherwise()
        return run(None)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> Callable[[], None]:
        """A call that reads and writes these arrays in place (dense, row-major), in the session's order; None lets ONNX Runtime allocate."""
        session, binding = self.session, self._binding(inputs, outputs)

        def run(options: Any = None) -> None:
            nonlocal session, binding
            if session is not self.session:
                session, binding = self.session, self._binding(inputs, outputs)
            session.run_with_iobinding(binding, options)

        return lambda: run() if self._otherwise is None else self._first(run)

    def _binding(self, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> Any:
        """These arrays as ONNX Runtime is told of them; they have to be kept as long as it runs."""
        binding = self.session.io_binding()
        for argument, array in zip(self.inputs, inputs, strict=True):
            binding.bind_input(argument.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for argument, target in zip(self.outputs, outputs, strict=True):
            if target is None:
                binding.bind_output(argument.name, "cpu")
            else:
                binding.bind_output(argument.name, "cpu", 0, target.dtype, target.shape, target.ctypes.data)
        return binding


CALIBRATIONS = ("MinMax", "Percentile", "Entropy")
"""How ONNX Runtime's quantiser takes ranges from draws, the plainest first."""


def quantise(model: Path, target: Path, draws: Sequence[Mapping[str, Array]], calibration: str) -> None:
    """Write a model with tensors of 8 bits, in QDQ form: activations by tensor, with the ranges of these draws of inputs, and weights by channel.

    Raises BackendError where the quantiser fails or is missing.
    """
    try:
        import onnxruntime.quantization as library
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except Exception as e:  # it imports much that a broken installation lacks
        raise BackendError(f"ONNX Runtime's quantiser cannot be imported ({e}): `pip install onnxruntime onnx sympy`") from e

    class Draws(library.CalibrationDataReader):  # type: ignore[misc]
        """The draws, one after the other."""

        def __init__(self) -> None:
            self.left = iter(draws)

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self.left, None)

    kinds = {"activation_type": library.QuantType.QUInt8, "weight_type": library.QuantType.QInt8, "per_channel": True}
    try:
        with tempfile.TemporaryDirectory() as folder:
            prepared = Path(folder) / "prepared.onnx"
            quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
            method = getattr(library.CalibrationMethod, calibration)
            library.quantize_static(str(prepared), str(target), Draws(), calibrate_method=method, quant_format=library.QuantFormat.QDQ, **kinds)
    except Exception as e:
        raise BackendError(f"ONNX Runtime's quantiser does not take {model}: {e}") from e


class OpaqueNode:
    """A node of a program: its model bound to the program's memory. Raises BackendError that names the ONNX node, NodeError where its run fails.

    One that is a program alone may `spin`, and then rounds by default: it is what ONNX Runtime's users have. After `rest` the session is gone with
    all its memory; the next call makes another.
    """

    stops = False
    """Its threads wait actively within a run alone. Where other engines compute in this process between two runs, these take up to six times as long
    beside threads that wait on their cores."""

    def __init__(
        self, model: bytes | ModelFile, inputs: Sequence[Array], outputs: Sequence[Array], threads: int, origin: str, *, spin: bool = False
    ) -> None:  # fmt: skip
        self.model, self.inputs, self.outputs, self.threads, self.origin, self.spin = model, inputs, outputs, threads, origin, spin
        self._session: Session | None = None
        self._call: Callable[[], None] | None = self._bound()

    def _bound(self) -> Callable[[], None]:
        session = self._session = Session(self.model, self.threads, spin=self.spin, rounds=self.spin, stops=self.stops, title=self.origin)
        for kind, wanted, given in (("input", session.inputs, self.inputs), ("output", session.outputs, self.outputs)):
            if len(wanted) != len(given):
                raise BackendError(f"{self.origin}: the node has {len(wanted)} {kind}s, the program gives {len(given)}")
        return session.bind(self.inputs, self.outputs)

    def __call__(self) -> None:
        if self._call is None:
            self._call = self._bound()
        try:
            self._call()
        except Exception as e:
            raise NodeError(f"{self.origin} failed in ONNX Runtime: {e}") from e

    def direct(self, arrays: Sequence[Array]) -> list[Array]:
        """The node's outputs for these inputs, which are read where they are: nothing is copied to or from the program's memory."""
        if self._session is None:
            self._call = self._bound()
        assert self._session is not None
        try:
            return self._session.raw(dict(zip(self._session.input_names, arrays)))
        except Exception as e:
            raise NodeError(f"{self.origin} failed in ONNX Runtime: {e}") from e

    def takes(self, inputs: Sequence[tuple[str, tuple[int, ...]]]) -> bool:
        """The node's inputs have these names and sizes, so that ONNX Runtime refuses what a caller must not give."""
        return self._session is not None and [(a.name, a.shape) for a in self._session.inputs] == list(inputs)

    def named(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The node's outputs for inputs by its own names, asked without looking at these; None where it does not take them, or rests."""
        if self._session is None or type(inputs) is not dict:
            return None
        try:
            return self._session.raw(inputs)
        except Exception:
            return None

    def rest(self) -> None:
        """Give all memory back."""
        if self._session is not None:
            self._call = self._session = None
            give_back()

    @property
    def session(self) -> Session | None:
        """The session that it has now."""
        return self._session


class Baseline:
    """The whole model as ONNX Runtime runs it best (IO binding, its own waiting policy), for timing against.

    The session is made by the first call, unless another one that spins is `shared`; after `rest` it is gone with all its memory, and the next call
    makes another. A call raises BackendError where ONNX Runtime fails, as it does where it gets no memory.
    """

    def __init__(
        self, model: bytes | str | Path, inputs: Mapping[str, Array], threads: int, *, frugal: bool = False, shared: Session | None = None
    ) -> None:  # fmt: skip
        self.model, self.inputs, self.threads, self.frugal = model, inputs, threads, frugal
        self._shared = shared
        self._call: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self._call is None:
            session = self._shared or Session(self.model, self.threads, spin=True, rounds=True, frugal=self.frugal)
            given = [np.asarray(self.inputs[a.name], order="C") for a in session.inputs]
            self._call = session.bind(given, [None] * len(session.outputs))
        try:
            self._call()
        except Exception as e:
            raise BackendError(f"ONNX Runtime cannot run the model: {e}") from e

    def rest(self) -> None:
        """Give all memory back."""
        if self._call is not None:
            self._call = self._shared = None
            give_back()
