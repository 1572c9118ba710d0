"""The command optimize."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einnet.cli import grid, ranged
from einnet.cli.arguments import assignment, error, names, once, shape, size
from einnet.cli.files import check_writable, read_arrays, write_json, write_whole
from einnet.errors import UsageError

if TYPE_CHECKING:
    from einnet.evidence.report.card_schema import CudaReport

FAILED = 1
ALLOW = "worst class of step: exact, reassociation (default), precision; precision,tested: unproven steps; finite: vendor softmax and pooling"
MAX_ERROR = "most that outputs may err, of max|y|; OUTPUT=E: one: products may round their factors, from 1e-5 on steps are of class precision"
CERTIFIED = "with --max-error: factors round only where a certified bound of the outputs, for one set of inputs, stays within it"
PROGRAM = ".einnet"


def register(commands: Any) -> None:
    """Add the command."""
    one = commands.add_parser("optimize", help="derive, verify and time a faster program for an ONNX model")
    one.add_argument("model", metavar="MODEL.onnx", type=Path)
    one.add_argument("-o", "--output", metavar="OUT", type=Path, help="OUT.einnet: program, derivations, report; OUT.onnx: a standard model")
    one.add_argument("--max-depth", type=int, default=7, metavar="N", help="most explorative steps in a derivation (default: 7)")
    one.add_argument("--time-budget", type=float, default=120.0, metavar="SECONDS", help="for the whole of it (default: 120)")
    one.add_argument("--threads", type=int, metavar="N", help="CPU threads, at most one for each processor (default: the physical cores)")
    one.add_argument("--backend", metavar="NAME", help="cpu or cuda (default: EINNET_BACKEND, else cpu)")
    one.add_argument("--profile", metavar="FILE", type=Path, help="with --backend cuda: times of the device (default: a recorded H100)")
    one.add_argument("--math", choices=("fp32", "tf32", "fp16", "bf16"), help="with --backend cuda: of products (default: fp32, no tensor cores)")
    one.add_argument("--target", default="native", metavar="NAME", help="native (default), or onnx: what is fastest in ONNX Runtime, for -o OUT.onnx")
    one.add_argument("--cpu", default="native", metavar="LEVEL", help="code for native (default) or any x86-64-v2, x86-64-v3 or x86-64-v4 processor")
    one.add_argument("--allow", default="reassociation", metavar="CLASS", help=ALLOW)
    one.add_argument("--max-error", dest="errors", action="append", default=[], type=error, metavar="E", help=MAX_ERROR)
    one.add_argument("--certified", action="store_true", help=CERTIFIED)
    one.add_argument("--strict-nan", action="store_true", help="nothing that is true for finite numbers only: NaN goes where the model has it")
    one.add_argument("--no-derive", dest="derive", action="store_false", help="the model's own operators only")
    one.add_argument("--no-converge", dest="converge", action="store_false", help="no converging derivation towards vendor operators")
    one.add_argument("--no-fingerprint", dest="fingerprint", action="store_false", help="no pruning of expressions that were met before")
    one.add_argument("--fresh", action="store_true", help="search again what an earlier run has found with these settings and as much time")
    one.add_argument("--rules", type=names, metavar="A,B", help="explore these rules only (`einnet rules` lists them)")
    one.add_argument("--shape", dest="shapes", action="append", default=[], type=shape, metavar="NAME=1x3x224x224", help="an input's shape; one each")
    given = "what the program will see, or several such inputs in one array: it is verified, timed and rounded on them (default: random)"
    one.add_argument("--input", dest="inputs", action="append", default=[], type=assignment, metavar="NAME=X.npy", help=given)
    dynamic = "serve all these sizes of dimensions that the model names, or of the batch"
    one.add_argument("--dynamic", metavar="NAME=1..32", nargs="+", action="extend", help=dynamic)
    one.add_argument("--workers", type=int, default=1, metavar="N", help="processes that search (default: 1); measuring is done in one")
    one.add_argument("--scheduler", metavar="ADDRESS", help="search on the workers of this Dask cluster, tcp://HOST:PORT")
    one.add_argument("--seed", type=int, default=0, help="of the random inputs that verify and time (default: 0)")
    one.add_argument("--force", type=int, metavar="SEED", help="for tests: a derived candidate for every part, drawn by a seed, however slow")
    one.add_argument("--memory-limit", type=size, metavar="BYTES", help="most that the program may take (500M, 1.5G); large forms are given up")
    one.add_argument("--json", metavar="REPORT", help="write the report as JSON; - is standard output, without the table")
    one.add_argument("--report", metavar="PAGE.html", type=Path, help="write the report as an HTML page: changes, times, rooflines, derivations")
    one.add_argument("--all", action="store_true", help="show the parts that stay as the model has them, too")
    one.add_argument("--quiet", action="store_true", help="no progress and no table")
    one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """The command. A Ctrl-C that ends it says what is left."""
    try:
        return optimize(options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("no file is half written, and what was explored is there for the next run") from None


def optimize(options: argparse.Namespace) -> int:
    """Optimize a model; exit code 1 where the program that was found does not pass its verification."""
    from einnet.api.optimize import optimize as optimize_model
    from einnet.cli.progress import progress
    from einnet.cli.summary import print_summary
    from einnet.compile.export.onnx_file import SUFFIX, compare
    from einnet.evidence.comparison.verdicts import failed
    from einnet.records import changed

    chosen = settings(options)
    for path in (options.output, options.report, Path(options.json) if options.json and options.json != "-" else None):
        if path is not None:
            check_writable(path)
    check_kind(options.output)
    refuse(options, chosen.backend)
    if options.dynamic:
        optimized = ranged.optimize if len(options.dynamic) == 1 else grid.optimize
        return optimized(options, chosen)
    if chosen.backend == "cuda":
        return optimize_for_cuda(options, chosen)
    with progress(options.quiet) as report:
        result = optimize_model(options.model, chosen, progress=report)
    passed = not failed(result.record.verification)
    if options.output and passed:
        result.save(options.output)
        if options.output.suffix == SUFFIX and not (result.timed.kept_whole or result.timed.onnx_out):
            compared = compare(result, options.model, options.output)
            result.record = changed(result.timed, onnx_out=compared)
            passed = passed and bool(compared.verification.passed)
    if options.json:
        write_json(options.json, result.report)
    if options.report:
        write_whole(options.report, lambda file: file.write(result.html().encode()))
    if not options.quiet and options.json != "-":
        print_summary(result.timed, options.output if passed else None, options.all)
    return 0 if passed else FAILED


def check_kind(output: Path | None) -> None:
    """Raise UsageError for an output whose name does not say what it is to be."""
    from einnet.compile.export.onnx_file import SUFFIX

    if output and output.suffix not in (PROGRAM, SUFFIX):
        raise UsageError(f"{output}: the name says what is written: OUT{PROGRAM}, a program, or OUT{SUFFIX}, a standard model")


def refuse(options: argparse.Namespace, backend: str) -> None:
    """Raise UsageError for what is asked of a kind of run that does not have it."""
    from einnet.compile.export.onnx_file import SUFFIX

    if options.profile and backend != "cuda":
        raise UsageError("--profile describes a CUDA device: it goes with --backend cuda")
    if options.math and backend != "cuda":
        raise UsageError("--math is about products on a CUDA device: it goes with --backend cuda")
    kind = "--dynamic" if options.dynamic else "--backend cuda" if backend == "cuda" else None
    if kind and options.report:
        raise UsageError(f"--report shows the measured times of one program, which {kind} does not have; --json writes what was found")
    if kind and options.output and options.output.suffix == SUFFIX:
        raise UsageError(f"{kind} writes programs of its own, OUT.einnet, not ONNX models")


def optimize_for_cuda(options: argparse.Namespace, chosen: Any) -> int:
    """Optimize for a CUDA device by predicted times; exit code 1 where the program that was found does not pass its verification on the host."""
    from einnet.api.optimize import optimize as optimize_model
    from einnet.cli.progress import progress
    from einnet.evidence.report.card_schema import CudaReport

    with progress(options.quiet) as report:
        result = optimize_model(options.model, chosen, profile=options.profile, math=options.math, progress=report)
    assert isinstance(result.record, CudaReport)
    passed = bool(result.record.verification.passed)
    if options.output and passed:
        result.save(options.output)
    if options.json:
        write_json(options.json, result.report)
    if not options.quiet and options.json != "-":
        print("\n".join(cuda_lines(result.record)))
    return 0 if passed else FAILED


def cuda_lines(report: CudaReport) -> list[str]:
    """What was found, for people."""
    totals, verification = report.totals, report.verification
    passed = "passed" if verification.passed else "FAILED"
    measured = report.profile == "measured"
    source = f"recorded times, {totals.unmeasured} kernels by the card's laws" if measured else "estimated, nothing was measured"
    return [
        f"{report.device} ({source}): {totals.original_predicted_ms:.4g} -> {totals.optimized_predicted_ms:.4g} ms predicted, "
        f"{totals.launches} launches, {report.changed} of {len(report.subprograms)} subprograms changed",
        f"verified on the host ({verification.generated}): {passed}, error {verification.max_rel:.2g}",
        *report.notes,
        *(f"assumes finite inputs: {what}" for what in report.assumes_finite or ()),
    ]


def settings(options: argparse.Namespace) -> Any:
    """The arguments as Settings. Raises UsageError for what makes no sense."""
    from einnet.environment import backend
    from einnet.search.settings import Settings

    shapes = once(options.shapes, lambda name: f"--shape {name} is given twice")
    errors = once(options.errors, lambda name: f"--max-error is given twice{f' for {name}' if name else ''}")
    searching = ("max_depth", "time_budget", "threads", "target", "cpu", "strict_nan", "derive", "converge", "fingerprint", "rules")
    fields = (*searching, "allow", "certified", "fresh", "seed", "workers", "scheduler", "memory_limit", "force")
    same = {name: getattr(options, name) for name in fields}
    limits = {"max_error": errors.pop(None, None), "output_errors": errors}
    return Settings(**same, **limits, backend=options.backend or backend(), shapes=shapes, inputs=read_arrays(options.inputs))
