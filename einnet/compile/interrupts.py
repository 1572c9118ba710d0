"""Ctrl-C as a request."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType


class Interrupts:
    """Whether Ctrl-C was pressed since `deferred_interrupts` began."""

    requested = False

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        """The first Ctrl-C is noted, the second raises KeyboardInterrupt."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Inside the block Ctrl-C is noted instead of raised, so that work ends where it can: never inside an import or a half-made kernel.

    Where signals are not ours to take (in another thread than the main one, under a handler of the caller's) nothing is noted.
    """
    found = Interrupts()
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours:
        yield found
        return
    signal.signal(signal.SIGINT, found.handle)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def kept_from_interrupts() -> Iterator[None]:
    """Processes that are started inside the block never see Ctrl-C, which a terminal sends to all: who started them ends them, and says so once."""
    resource_tracker.ensure_running()  # which lets Ctrl-C through again where it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
