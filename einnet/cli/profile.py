"""The command profile: times of kernels on a CUDA card, for searches that run anywhere."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from einnet.cli.files import check_writable, write_json
from einnet.errors import UsageError

STEPS = """Three steps, each on a machine of its own or all on one:
  einnet profile --requests MODEL.onnx --prepare pack.zip      searches, lowers and compiles; needs no card
  einnet profile --measure pack.zip -o times.jsonl             times on a card; needs neither TVM nor a search
  einnet profile --merge times.jsonl -o profiles/card.json     adds the times to a profile, or begins one
"""


def register(commands: Any) -> None:
    """Add the command."""
    raw = argparse.RawDescriptionHelpFormatter
    one = commands.add_parser("profile", help="measure on a CUDA card the kernels that searches ask for", description=STEPS, formatter_class=raw)
    one.add_argument("--backend", default="cuda", metavar="NAME", help="cuda; the processor's times are measured while it searches")
    one.add_argument("--requests", nargs="+", type=Path, default=[], metavar="FILE", help="files of requests, or ONNX models to search")
    step = one.add_mutually_exclusive_group()
    step.add_argument("--list", dest="listing", action="store_true", help="write the requests to the output and measure nothing; needs no card")
    step.add_argument("--prepare", type=Path, metavar="PACK", help="write the kernels there, ready to be timed; needs no card")
    step.add_argument("--measure", type=Path, metavar="PACK", help="time the kernels of a pack on the card that is here")
    step.add_argument("--merge", nargs="+", type=Path, metavar="TIMES", help="add times to the profile that the output is, or begin one")
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help="requests, times or the profile; what a profile holds of this card is kept")
    one.add_argument("--profile", type=Path, metavar="FILE", help="what is known of the card: it is not asked for again")
    one.add_argument("--math", choices=("fp32", "tf32", "fp16", "bf16"), nargs="+", default=["fp32"], help="of products (default: fp32)")
    one.add_argument("--architecture", default="sm_90", metavar="NAME", help="that machine code is made for (default: sm_90)")
    one.add_argument("--most", type=int, metavar="N", help="kernels at most, those of the programs that are chosen first")
    one.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that lower kernels (default: one a processor)")
    one.add_argument("--max-depth", type=int, default=7, metavar="N", help="of the search of a model (default: 7)")
    one.add_argument("--allow", default="reassociation", metavar="CLASS", help="of the search of a model (default: reassociation)")
    one.add_argument("--time-budget", type=float, default=120.0, metavar="SECONDS", help="of the search of each model (default: 120)")
    one.add_argument("--seconds", type=float, default=480.0, help="of measuring: what is not measured by then is left out (default: 480)")
    one.set_defaults(run=profile)


def profile(options: argparse.Namespace) -> int:
    """Take the step that is asked for."""
    if options.backend != "cuda":
        raise UsageError(f"profile measures a CUDA card, not {options.backend!r}: times on the processor are measured by optimize")
    if options.prepare is None and options.output is None:
        raise UsageError("name the file to write with --output")
    check_writable(options.prepare or options.output)
    if options.measure is not None:
        return measured(options.measure, options.output, options.seconds)
    if options.merge is not None:
        return merged(options)
    if not options.requests:
        raise UsageError("name ONNX models or files of requests with --requests")
    return listed(options) if options.listing or options.prepare else whole(options)


def kernels_of(options: argparse.Namespace) -> list[Any]:
    """What is asked for."""
    from einnet.compile.targets.cuda.recording import gather
    from einnet.runtime.cuda.profiling.profile import load, shipped
    from einnet.search.settings import Settings

    settings = Settings(backend="cuda", max_depth=options.max_depth, allow=options.allow, time_budget=options.time_budget)
    known = load(options.profile, options.math[0]) if options.profile else shipped(options.math[0])
    return gather(options.requests, settings, known, tell)[: options.most]


def listed(options: argparse.Namespace) -> int:
    """Write requests, or a pack of them."""
    from einnet.compile.targets.cuda.recording import prepare_pack, requests_json

    kernels = kernels_of(options)
    if options.prepare:
        prepare_pack(kernels, options.math, options.prepare, options.architecture, options.workers, tell)
        return 0
    write_json(str(options.output), requests_json(kernels))
    tell(f"{options.output}: {len(kernels)} kernels to measure; nothing was measured")
    return 0


def measured(source: Path, output: Path, seconds: float) -> int:
    """Time a pack."""
    from einnet.runtime.cuda.profiling import measure, pack

    timed, failed = measure.measure(pack.read(source), output, seconds, tell)
    tell(f"{output}: {timed} kernels timed, {failed} do not run there")
    return 0


def merged(options: argparse.Namespace) -> int:
    """Times into a profile."""
    from einnet.compile.targets.cuda.recording import merge, with_finer
    from einnet.runtime.cuda.profiling.profile import held, load, save

    known = {math: load(options.output, math) for math in held(options.output)} if options.output.exists() else {}
    found = [merge(known.get(math), options.merge, math) for math in with_finer(options.math)]
    save(options.output, *found)
    for p in found:
        tell(f"{options.output}: {p.device}, {p.math}: {len(p.seconds)} kernels measured, {len(p.failed)} do not run there")
    return 0


def whole(options: argparse.Namespace) -> int:
    """All three steps on a machine with a card, for its architecture."""
    import tempfile

    from einnet.compile.targets.cuda.recording import prepare_pack
    from einnet.runtime.cuda.driver import Driver

    options.architecture = Driver().architecture
    if options.output.exists() and options.profile is None:
        options.profile = options.output
    with tempfile.TemporaryDirectory() as folder:
        pack, times = Path(folder) / "pack.zip", Path(folder) / "times.jsonl"
        prepare_pack(kernels_of(options), options.math, pack, options.architecture, options.workers, tell)
        measured(pack, times, options.seconds)
        options.merge = [times]
        return merged(options)


def tell(line: str) -> None:
    """Progress goes to the error stream."""
    print(line, file=sys.stderr, flush=True)
