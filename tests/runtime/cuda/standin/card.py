"""The card: memory, streams, graphs, events whose clock counts work, and CuPy's calls for them. Generated text runs through the host's compiler."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace, TracebackType

import numpy as np

from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.runtime.cuda import shim
from einnet.runtime.rounded import decoded

Work = Callable[[], None]


class Card:
    """What the stand-ins share. `log` names every piece of work as it is executed, `clock` sums what it is said to cost in milliseconds."""

    def __init__(self, devices: int = 1, memory: int = 1 << 34, versions: int = 0) -> None:
        self.devices, self.memory, self.versions = devices, memory, versions
        self.blocks: list[np.ndarray] = []
        self.log: list[str] = []
        self.clock = 0.0
        self.lists = True
        """The library of products takes lists of addresses, where it adds no bias."""
        self.recording: list[tuple[str, float, Work]] | None = None
        self.current: list[Stream] = []
        self.graphs = 0
        self.modules: dict[bytes, ctypes.CDLL] = {}
        self.orders: list[tuple[int, int | None]] = []
        """Streams of who gives a tensor and of who takes it: the second waits for the first."""
        self.caller = SimpleNamespace(ptr=1, wait_event=lambda event: self.orders.append((4096, 1)))

    def allocate(self, nbytes: int) -> int:
        self.memory -= nbytes
        if self.memory < 0:
            raise MemoryError("out of memory")
        block = np.full(nbytes + 256, 0x7F, np.uint8)
        self.blocks.append(block)
        return -(-block.ctypes.data // 256) * 256

    def bytes_at(self, address: int, nbytes: int) -> np.ndarray:
        """Memory of the card; everything that is touched must have been allocated."""
        for block in self.blocks:
            start = address - block.ctypes.data
            if start >= 0 and start + nbytes <= block.size:
                return block[start : start + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address:#x} are not the card's")

    def floats(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
        """A strided float32 array at an address; all of it lies in one allocation."""
        assert address % 4 == 0 and all(s >= 0 for s in strides)
        reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
        flat = self.bytes_at(address, 4 * reach)
        flat = np.frombuffer((ctypes.c_char * flat.size).from_address(flat.ctypes.data), np.float32)
        return np.lib.stride_tricks.as_strided(flat, shape, [4 * s for s in strides], writeable=True)

    def shorts(self, address: int, shape: Sequence[int], strides: Sequence[int], kind: str) -> np.ndarray:
        """The numbers of a strided array of 16 bits at an address."""
        assert address % 2 == 0 and all(s >= 0 for s in strides)
        flat = self.bytes_at(address, 2 * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))))
        held = np.frombuffer(flat.tobytes(), np.float16 if kind == "f16" else np.uint16)
        wide = np.ascontiguousarray(decoded(held, ARITHMETICS[kind]))
        return np.lib.stride_tricks.as_strided(wide, shape, [4 * s for s in strides])

    def submit(self, name: str, work: Work, cost: float = 1.0) -> None:
        """Do the work, or record it where a stream is captured."""
        if self.recording is not None:
            self.recording.append((name, cost, work))
            return
        self.log.append(name)
        self.clock += cost
        with np.errstate(all="ignore"):  # a library is called once before there is anything to compute on
            work()


class Stream:
    """A stream whose work is done at once."""

    def __init__(self, card: Card, non_blocking: bool = False) -> None:
        assert non_blocking, "the default stream cannot be captured"
        self.card, self.ptr = card, 4096

    def __enter__(self) -> Stream:
        self.card.current.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.card.current.pop()

    def begin_capture(self) -> None:
        assert self.card.recording is None, "a capture inside a capture"
        self.card.recording = []

    def end_capture(self) -> SimpleNamespace:
        recorded, self.card.recording = self.card.recording, None
        assert recorded is not None

        def launch(stream: Stream | None = None) -> None:
            assert stream is self
            self.card.graphs += 1
            for name, cost, work in recorded:
                self.card.submit(name, work, cost)

        return SimpleNamespace(launch=launch)

    def synchronize(self) -> None:
        assert self.card.recording is None, "waiting is not allowed while a stream is captured"


class Tensor:
    """A strided array on the card, of whatever library: who takes it says in which stream it will be used."""

    def __init__(self, card: Card, address: int, shape: Sequence[int], dtype: object, strides: Sequence[int]) -> None:
        self.card, self.shape, self.dtype, self.strides = card, tuple(shape), np.dtype(dtype), tuple(strides)
        self.data = SimpleNamespace(ptr=address)
        self.device = (2, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: int | None = None) -> Tensor:
        self.card.orders.append((self.card.current[-1].ptr if self.card.current else 1, stream))
        return self

    def values(self) -> np.ndarray:
        assert self.dtype == np.float32
        return self.card.floats(self.data.ptr, self.shape, [s // 4 for s in self.strides])


class Event:
    """The clock when it was recorded."""

    def __init__(self, card: Card) -> None:
        self.card, self.at = card, float("nan")

    def record(self, stream: Stream) -> None:
        self.at = self.card.clock

    def synchronize(self) -> None:
        pass


def cupy_module(card: Card) -> ModuleType:
    """CuPy as far as einnet calls it."""
    module = ModuleType("cupy")
    module.__version__ = f"14.{card.versions}"
    module.ndarray = lambda shape, dtype, pointer, strides: Tensor(card, pointer, shape, dtype, strides)
    module.from_dlpack = lambda tensor: tensor.__dlpack__(stream=card.current[-1].ptr)
    module.copyto = lambda target, source: card.submit("inside", lambda: np.copyto(target.values(), source.values()))
    module.cuda = SimpleNamespace(
        function=SimpleNamespace(Module=lambda: Module(card)),
        UnownedMemory=lambda address, nbytes, owner: (card.bytes_at(address, nbytes), address)[1],
        MemoryPointer=lambda address, offset: address + offset, get_current_stream=lambda: card.caller,
        alloc=lambda nbytes: SimpleNamespace(ptr=card.allocate(nbytes)), Stream=lambda non_blocking=False: Stream(card, non_blocking),
        Event=lambda: Event(card), get_elapsed_time=lambda start, end: end.at - start.at, runtime=runtime(card),
    )  # fmt: skip
    return module


def runtime(card: Card) -> SimpleNamespace:
    def copy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        assert card.recording is None, "a copy from pageable memory inside a capture"
        for address in {1: (target,), 2: (source,), 3: (target, source)}[kind]:
            card.bytes_at(address, nbytes)
        card.submit({1: "to card", 2: "from card", 3: "inside"}[kind], lambda: ctypes.memmove(target, source, nbytes) and None)

    def fill(address: int, value: int, nbytes: int, stream: int) -> None:
        card.submit("fill", lambda: card.bytes_at(address, nbytes).fill(value))

    figures = {"name": b"Stand-in", "multiProcessorCount": 132, "l2CacheSize": 1 << 20, "major": 9, "minor": 0, "clockRate": 1980000}
    return SimpleNamespace(
        getDeviceCount=lambda: card.devices, getDevice=lambda: 0, getDeviceProperties=lambda n: figures, runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13000, memcpyAsync=copy, memsetAsync=fill, memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyDeviceToDevice=3,
    )  # fmt: skip


class Module:
    """Machine code of this card, which is generated text: it is compiled for the host."""

    def __init__(self, card: Card) -> None:
        self.card = card

    def load(self, code: bytes) -> None:
        text = code.decode()
        if code not in self.card.modules:
            counts = {name: re.search(rf"{name}\(([^)]*)\)", body)[1].count("*") for name, body in shim.functions(text).items()}
            self.card.modules[code] = shim.compiled({"code": text}, counts)
        self.library = self.card.modules[code]

    def get_function(self, name: str) -> Callable[..., None]:
        run = getattr(self.library, f"run_{name}")

        def function(grid: tuple[int, int, int], block: tuple[int, int, int], arguments: tuple[np.uint64, ...]) -> None:
            assert self.card.current, "launched on the default stream"
            for a in arguments:
                self.card.bytes_at(int(a), 4)
            pointers = (ctypes.c_void_p * len(arguments))(*(int(a) for a in arguments))
            self.card.submit(f"generated {name}", lambda: run(pointers, grid[0], block[0]))

        return function
