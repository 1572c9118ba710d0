"""The command profile: times of kernels on a CUDA card, for searches that run anywhere."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from einnet.cli.files import check_writable, write_json
from einnet.errors import UsageError


def register(commands: Any) -> None:
    """Add the command."""
    one = commands.add_parser("profile", help="measure on a CUDA card the kernels that searches ask for")
    one.add_argument("--backend", default="cuda", metavar="NAME", help="cuda; the processor's times are measured while it searches")
    one.add_argument("--requests", nargs="+", type=Path, required=True, metavar="FILE", help="files of requests, or ONNX models to search")
    one.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the profile; what it holds of this card is kept")
    one.add_argument("--list", dest="listing", action="store_true", help="write the requests to the output and measure nothing; needs no card")
    one.add_argument("--math", choices=("fp32", "tf32"), default="fp32", help="arithmetic of products (default: fp32, no tensor cores)")
    one.add_argument("--max-depth", type=int, default=7, metavar="N", help="of the search of a model (default: 7)")
    one.add_argument("--allow", default="reassociation", metavar="CLASS", help="of the search of a model (default: reassociation)")
    one.add_argument("--time-budget", type=float, default=120.0, metavar="SECONDS", help="of the search of each model (default: 120)")
    one.add_argument("--seconds", type=float, default=480.0, help="for all of it: what is not measured by then is left out (default: 480)")
    one.set_defaults(run=profile)


def profile(options: argparse.Namespace) -> int:
    """Measure, or list what is to be measured."""
    from einnet.api.recording import gather, record_profile, requests_json
    from einnet.api.settings import Settings
    from einnet.runtime.cuda.profile import H200

    if options.backend != "cuda":
        raise UsageError(f"profile measures a CUDA card, not {options.backend!r}: times on the processor are measured by optimize")
    check_writable(options.output)
    settings = Settings(backend="cuda", max_depth=options.max_depth, allow=options.allow, time_budget=options.time_budget)
    if options.listing:
        kernels = gather(options.requests, settings, H200, tell)
        write_json(str(options.output), requests_json(kernels))
        tell(f"{options.output}: {len(kernels)} kernels to measure; nothing was measured")
        return 0
    found = record_profile(options.requests, options.output, settings, options.math, options.seconds, tell)
    tell(f"{options.output}: {found.device}, {len(found.seconds)} kernels measured, {len(found.failed)} do not run there")
    return 0


def tell(line: str) -> None:
    """Progress goes to the error stream."""
    print(line, file=sys.stderr, flush=True)
