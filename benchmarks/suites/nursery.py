"""A process that has imported everything, of which each problem's process is a fork: python -m benchmarks.suites.nursery.

It reads orders, a line of JSON each, and answers with the number of the process that carries them out; what that finds stands in the file named
`out` of the orders, what it says in `err`. No thread is started before a fork: orders are for one thread, or engines start theirs in the child.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import einnet

NEEDED = (
    "onnxruntime", "onnxscript", "torch._inductor.compile_fx", "torch.onnx._internal.exporter._registration", "torch.testing", "tvm",
    "benchmarks.suites.worker", "benchmarks.graphnet.load", "benchmarks.kernelbench.load",
)  # fmt: skip


def prepare() -> None:
    """Import what problems need, all of einnet too (so that a tree that changes meanwhile changes nothing), and warm what every one asks for."""
    for name in (*NEEDED, *(found.name for found in pkgutil.walk_packages(einnet.__path__, "einnet.") if not found.name.endswith("__main__"))):
        with suppress(ImportError):  # of another extra
            importlib.import_module(name)
    importlib.import_module("einnet.api.torch.partition").decompositions()


def child(orders: Mapping[str, Any]) -> None:
    """Carry out the orders in this process, and leave it."""
    from benchmarks.suites import worker

    code = 1
    try:
        os.setsid()
        for name, stream in (("out", 1), ("err", 2)):
            os.dup2(os.open(orders[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        worker.main(orders)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork for each line of orders, wait for the child, and tell its exit code."""
    prepare()
    for line in sys.stdin:
        orders = json.loads(line)
        process = os.fork()
        if process == 0:
            child(orders)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
