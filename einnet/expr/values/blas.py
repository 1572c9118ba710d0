"""Decompositions and products of small matrices on one thread: several wait for each other longer than they compute.

numpy's linear algebra takes all processors. Of a matrix of some hundred rows it makes a step of microseconds a hundred times, of a stack of matrices
one product after the other, and after each all threads meet: beside other programs it took seconds where one thread takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _libraries() -> ThreadpoolController:
    """The libraries of linear algebra in this process: numpy's."""
    from threadpoolctl import ThreadpoolController  # is not there where programs only run

    return ThreadpoolController().select(user_api="blas")


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The function, during which linear algebra has one thread, wherever in the process it is called; then it has as many as before."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with _libraries().limit(limits=1):
            return function(*args, **kwargs)

    return limited
