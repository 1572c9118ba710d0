"""One CUDA device through CuPy: memory, one stream, generated functions, captured graphs and times. The only module that imports CuPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np

from einnet.errors import BackendError, UsageError
from einnet.runtime.cuda import nvrtc
from einnet.runtime.cuda.parts import missing

Array = np.ndarray[Any, np.dtype[Any]]
Call = Callable[[], None]
"""Launches work on the driver's stream and does not wait for it."""

ON_CARD = (2, 13)
"""Kinds of devices of DLPack: CUDA's own memory, and memory that it manages."""

Find = Callable[[str, str], Any]
"""A function by the name of its text and its own."""

FIGURES = ("multiProcessorCount", "clockRate", "memoryClockRate", "memoryBusWidth", "l2CacheSize", "totalGlobalMem", "major", "minor")
"""Properties of a device that a record of times names."""


class Driver:
    """The current device and a stream of its own. Raises BackendError that says what is missing and how to install it."""

    def __init__(self) -> None:
        absent = missing()
        if absent:
            raise BackendError(f"nothing runs on a CUDA device here: {'; '.join(absent)}")
        self._cupy = import_module("cupy")
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._blocks: list[Any] = []

    @property
    def stream(self) -> int:
        """The stream as libraries take it."""
        return int(self._stream.ptr)

    def current(self) -> AbstractContextManager[Any]:
        """What CuPy launches inside goes to the stream."""
        context: AbstractContextManager[Any] = self._stream
        return context

    def allocate(self, nbytes: int) -> int:
        """The address of memory that lives as long as the driver, aligned to 256 bytes. Raises BackendError where there is not enough."""
        try:
            block = self._cupy.cuda.alloc(max(nbytes, 1))
        except Exception as e:  # CuPy has an error of its own for every level
            raise BackendError(f"the device has no room for {nbytes} bytes: {e}") from e
        self._blocks.append(block)
        return int(block.ptr)

    def write(self, address: int, values: Array) -> None:
        """Copy a dense array to the device, and wait."""
        self._copy(address, values.ctypes.data, values.nbytes, "memcpyHostToDevice")

    def read(self, address: int, values: Array) -> None:
        """Copy from the device into a dense array, and wait."""
        self._copy(values.ctypes.data, address, values.nbytes, "memcpyDeviceToHost")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy inside the device's memory."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDeviceToDevice, self.stream)

    def _copy(self, target: int, source: int, nbytes: int, kind: str) -> None:
        runtime = self._cupy.cuda.runtime
        if nbytes:
            runtime.memcpyAsync(target, source, nbytes, getattr(runtime, kind), self.stream)
            self.wait()

    def array(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """Memory of the driver as an array of CuPy, which other libraries take by DLPack; strides count elements."""
        reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
        memory = self._cupy.cuda.UnownedMemory(address, max(reach, 1) * dtype.itemsize, self)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray(tuple(shape), dtype, pointer, tuple(s * dtype.itemsize for s in strides))

    def taken(self, tensor: Any) -> Any:
        """A tensor of any library on this device as an array of CuPy, without a copy; the stream waits for what its library does to it.

        Raises UsageError for one that lies elsewhere.
        """
        kind, number = tensor.__dlpack_device__()
        here = self._cupy.cuda.runtime.getDevice()
        if kind not in ON_CARD or number != here:
            raise UsageError(f"a tensor lies on device {number} of kind {kind}, and the program on CUDA device {here}")
        with self._stream:
            return self._cupy.from_dlpack(tensor)

    def given(self, array: Any, like: Any) -> Any:
        """An array of `array` as a tensor of the library that `like` is of, without a copy; that library's stream waits for this one."""
        library = import_module(type(like).__module__.partition(".")[0])
        if library is self._cupy or not hasattr(library, "from_dlpack"):
            event = self._cupy.cuda.Event()
            event.record(self._stream)
            self._cupy.cuda.get_current_stream().wait_event(event)
            return array
        with self._stream:
            return library.from_dlpack(array)

    def assign(self, target: Any, source: Any) -> None:
        """Copy an array of CuPy inside the device."""
        with self._stream:
            self._cupy.copyto(target, source)

    def fill(self, address: int, nbytes: int, value: int = 0) -> Call:
        """Set every byte."""
        return lambda: self._cupy.cuda.runtime.memsetAsync(address, value, nbytes, self.stream)

    def wait(self) -> None:
        """Until all that was launched is done."""
        self._stream.synchronize()

    @property
    def architecture(self) -> str:
        """The device's, as a compiler is told it."""
        found = self.properties()
        return f"sm_{found['major']}{found['minor']}"

    def functions(self, texts: Mapping[str, str]) -> Find:
        """Compile generated texts, each by its name. Raises BackendError with the name and the compiler's message."""
        modules = {name: self.module(code) for name, code in nvrtc.compile_texts(texts, self.architecture).items()} if texts else {}
        return lambda text, function: modules[text].get_function(function)

    def module(self, code: bytes) -> Any:
        """Machine code of this device's architecture, whose functions `get_function` gives. Raises BackendError."""
        module = self._cupy.cuda.function.Module()
        try:
            module.load(code)
        except Exception as e:
            raise BackendError(f"the device does not take machine code for {self.architecture}: {e}") from e
        return module

    def launch(self, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int], addresses: Sequence[int]) -> Call:
        """A launch of a generated function on addresses."""
        arguments = tuple(np.uint64(a) for a in addresses)

        def call() -> None:
            with self._stream:
                function(grid, block, arguments)

        return call

    def capture(self, calls: Sequence[Call]) -> Call:
        """The calls as one graph, launched at once."""
        with self._stream:
            self._stream.begin_capture()
            try:
                for call in calls:
                    call()
            finally:
                graph = self._stream.end_capture()
        return lambda: graph.launch(stream=self._stream)

    def seconds(self, call: Call) -> float:
        """The time between two events around a call."""
        start, end = (self._cupy.cuda.Event() for _ in range(2))
        start.record(self._stream)
        call()
        end.record(self._stream)
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def properties(self) -> dict[str, Any]:
        """The device's name and figures."""
        found = self._cupy.cuda.runtime.getDeviceProperties(self._cupy.cuda.runtime.getDevice())
        name = found["name"]
        return {"name": name.decode() if isinstance(name, bytes) else str(name), **{k: int(found[k]) for k in FIGURES if k in found}}

    def versions(self) -> dict[str, str]:
        """Of CuPy, the driver and the run-time library."""
        runtime = self._cupy.cuda.runtime
        return {"cupy": str(self._cupy.__version__), "cuda": str(runtime.runtimeGetVersion()), "driver": str(runtime.driverGetVersion())}


def on_card(value: object) -> bool:
    """The value is a tensor of some library in a card's memory."""
    told = getattr(value, "__dlpack_device__", None)
    return told is not None and told()[0] in ON_CARD
