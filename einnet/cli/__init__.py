"""The command line. `main` is the console script `einnet`.

Exit codes: 0 done, 1 a verification or a check failed, 2 a wrong argument, file or model (one message on the error stream), 3 a bug in einnet,
130 interrupted. `EINNET_DEBUG=1` shows tracebacks.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence

from einnet import environment
from einnet.cli.parser import build_parser
from einnet.errors import CertificateError, EinNetError

FAILED, WRONG, BUG, INTERRUPTED = 1, 2, 3, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    atexit.register(gc.freeze)  # the memory goes with the process: looking through millions of objects first takes up to a fifth of a run's time
    try:
        debug = environment.debug() > 0
    except EinNetError as error:
        return tell(str(error), WRONG)
    try:
        return run(arguments)
    except KeyboardInterrupt as stop:
        return tell(": ".join(("interrupted", *map(str, stop.args))), INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone (| head); nothing may be written to it at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except EinNetError as error:
        if debug:
            raise
        return tell(str(error), FAILED if isinstance(error, CertificateError) else WRONG)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("einnet"):
            return tell(f"this needs {error.name}, which is not installed; stored programs run without it", WRONG)
        return tell(f"internal error: {type(error).__name__}: {first_line(error)} (EINNET_DEBUG=1 shows the traceback)", BUG)


def run(arguments: Sequence[str] | None) -> int:
    """Parse the arguments and run their command; the exit code."""
    try:
        options = build_parser().parse_args(arguments)
    except SystemExit as stop:  # --help, --version, or a wrong argument that has been reported
        return stop.code if isinstance(stop.code, int) else WRONG
    code = int(options.run(options))
    sys.stdout.flush()
    return code


def tell(message: str, code: int) -> int:
    """A message on the error stream, and the exit code that goes with it."""
    print(f"einnet: {message}", file=sys.stderr)
    return code


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or ["no message"])[0]
