"""Generated kernels: eOperators become loop nests (`resolve`, `normalise`, `schedule`), and loop nests become TVM functions (`cpu`).

`lower` and `build` need TVM, which is imported when one of them is first asked for; counting (`cost`) does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from einnet.instantiate.codegen.cpu import LoweredKernel, build, lower

__all__ = ["LoweredKernel", "build", "lower"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    from einnet.instantiate.codegen import cpu

    return getattr(cpu, name)
