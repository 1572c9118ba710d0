"""Commands about stored programs: run, verify, explain."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.cli import grid, ranged
from einnet.cli.arguments import assignment
from einnet.cli.colour import show
from einnet.cli.files import check_writable, read_array, read_arrays, write_json, write_whole
from einnet.errors import UsageError
from einnet.graph.dtypes import dtype_name

if TYPE_CHECKING:
    from einnet.api.load import Stored
    from einnet.compile.targets.cuda.stored import StoredCuda
    from einnet.compile.targets.stored import StoredProgram
    from einnet.evidence.report.verdict_schema import Bisected, Constants, Derivations, Kernels, Lifted, Outputs, Verdict

FAILED = 1


def register(commands: Any) -> None:
    """Add the family's commands."""
    one = commands.add_parser("run", help="run a stored program on arrays from .npy files")
    one.add_argument("program", metavar="OUT.einnet", type=Path)
    one.add_argument("--input", dest="inputs", action="append", default=[], type=assignment, metavar="NAME=X.npy", help="an input; once for each")
    one.add_argument("--output-dir", type=Path, default=Path(), metavar="DIR", help="where NAME.npy is written for each output (default: here)")
    one.add_argument("--math", choices=("fp32", "tf32"), default="fp32", help="arithmetic of products on a CUDA device (default: fp32)")
    one.add_argument("--keep-tuning", action="store_true", help="write the algorithms that were chosen on the CUDA device into the program's file")
    one.add_argument("--host", action="store_true", help="run a program for a CUDA device on the processor, slowly: a test of it without a card")
    one.set_defaults(run=run)

    one = commands.add_parser("verify", help="prove that a stored program is the model: its kernels, constants and numbers")
    one.add_argument("model", metavar="MODEL.onnx", type=Path)
    one.add_argument("program", metavar="OUT.einnet", type=Path)
    one.add_argument("--seed", type=int, default=1, help="of the random inputs (default: 1)")
    given = "an input to compare with, or several in one array (default: random)"
    one.add_argument("--input", dest="inputs", action="append", default=[], type=assignment, metavar="NAME=X.npy", help=given)
    one.add_argument("--json", metavar="FILE", help="write the verdict as JSON; - is standard output")
    one.set_defaults(run=verify)

    one = commands.add_parser("bisect", help="the subprogram, and the step of its derivation, that moves a stored program's result most")
    one.add_argument("model", metavar="MODEL.onnx", type=Path)
    one.add_argument("program", metavar="OUT.einnet", type=Path)
    one.add_argument("--seed", type=int, default=1, help="of the random inputs (default: 1)")
    one.add_argument("--json", metavar="FILE", help="write what was found as JSON; - is standard output")
    one.set_defaults(run=bisect)

    one = commands.add_parser("explain", help="the derivations that a stored program stands on, step by step")
    one.add_argument("program", metavar="OUT.einnet", type=Path)
    one.add_argument("--all", action="store_true", help="prove and print the derivations of the candidates that were considered, too")
    one.add_argument("--why-not", metavar="NAME", help="what keeps a rule or a vendor operator from being used, subprogram by subprogram")
    one.add_argument("--limits", action="store_true", help="instead: shares and limits of time for the program's budget, the cost model's constants")
    one.add_argument("--json", metavar="FILE", help="write them as JSON; - is standard output")
    one.set_defaults(run=explain)


def run(options: argparse.Namespace) -> int:
    """Run a program once and write its outputs."""
    from einnet.api.load import load
    from einnet.compile.targets.cuda.stored import ON_HOST, StoredCuda

    stored = load(options.program)
    if isinstance(stored, StoredCuda):
        if options.host and (options.keep_tuning or options.math != "fp32"):
            raise UsageError("--math and --keep-tuning are about a CUDA device, and --host runs on none")
        stored.math = options.math
    elif options.math != "fp32" or options.keep_tuning or options.host:
        raise UsageError(f"{options.program} is a program for the processor: --math, --keep-tuning and --host are about CUDA devices")
    inputs = read_inputs(stored, options.inputs)
    folder: Path = options.output_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror or error})") from error
    files = output_files(folder, list(stored.output_names))
    for path in files.values():
        check_writable(path)
    if isinstance(stored, StoredCuda) and options.host:
        outputs = stored.on_host(inputs)
        print(f"run on {ON_HOST}")
    else:
        outputs = stored(inputs)
    for name, value in outputs.items():
        print(f"{name}: {write_value(files[name], value)}")
    if isinstance(stored, StoredCuda) and options.keep_tuning:
        stored.keep_tuning()
    return 0


def write_value(path: Path, value: Any) -> str:
    """Write an output, and say what was written where: an array, of texts, too, as it is; a sequence or a map into a file of JSON of that name."""
    if isinstance(value, np.ndarray):
        array = value.astype(str) if value.dtype == object else value
        write_whole(path, lambda file: np.save(file, array, allow_pickle=False))
        return f"{array_type(array)} -> {path}"
    other = path.with_suffix(".json")
    write_json(str(other), nested(value))
    return f"{type(value).__name__} -> {other}"


def nested(value: Any) -> Any:
    """Sequences, maps and arrays as JSON has them."""
    if isinstance(value, dict):
        return {str(key): nested(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [nested(v) for v in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def read_inputs(stored: Stored, given: list[str], partial: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of `name=file` arguments. Raises UsageError for what is unknown, given twice, missing (unless `partial`) or no array.

    What is no tensor of numbers, texts mostly, is for ONNX Runtime to look at.
    """
    from einnet.compile.targets.stored import StoredProgram

    found: dict[str, np.ndarray[Any, Any]] = {}
    names = list(stored.executable.input_names if isinstance(stored, StoredProgram) else stored.inputs)
    for text in given:
        name = max((n for n in names if text.startswith(f"{n}=")), key=len, default=None)
        if name is None:
            raise UsageError(f"unknown input {text.partition('=')[0]!r}; the program takes {signature(stored)}")
        if name in found:
            raise UsageError(f"input {name!r} is given twice")
        path = Path(text[len(name) + 1 :])
        found[name] = value = read_array(path)
        if name not in stored.inputs:
            continue
        dtype, shape = stored.inputs[name]
        if dtype_name(value.dtype) != dtype or len(value.shape) != len(shape) or any(n != m for n, m in zip(value.shape, shape) if m >= 0):
            raise UsageError(f"{path}: {array_type(value)}, but input {name!r} is {dtype}[{','.join(map(str, shape))}]")
    missing = [n for n in names if n not in found]
    if missing and not partial:
        raise UsageError(f"input {missing[0]!r} is missing; the program takes {signature(stored)}")
    return found


def array_type(value: np.ndarray[Any, Any]) -> str:
    """f32[1,3,224,224]; numpy's name for a type that no program takes."""
    return f"{dtype_name(value.dtype) or value.dtype}[{','.join(map(str, value.shape))}]"


def signature(stored: Stored) -> str:
    """The inputs: `--input x=FILE.npy with f32[1,3,224,224]`."""
    return ", ".join(f"--input {n}=FILE.npy with {dtype}[{','.join(map(str, shape))}]" for n, (dtype, shape) in stored.inputs.items()) or "no inputs"


def output_files(folder: Path, names: list[str]) -> dict[str, Path]:
    """A file for every output: its name, with what cannot stand in a file name replaced, and a number where two would be equal."""
    found: dict[str, Path] = {}
    for name in names:
        stem = re.sub(r"[^\w.+=-]", "_", name).lstrip(".") or "output"
        taken = set(found.values())
        choices = [folder / f"{stem}.npy", *(folder / f"{stem}.{n}.npy" for n in range(1, len(names) + 1))]
        found[name] = next(path for path in choices if path not in taken)
    return found


def verify(options: argparse.Namespace) -> int:
    """Print the verdict; exit code 1 where it is not "passed"."""
    from einnet.api.load import load_told
    from einnet.cli.progress import checks
    from einnet.compile.grid.served import GridProgram
    from einnet.compile.ranges.served import RangedProgram
    from einnet.evidence.audit import audit

    stored = load_told(options.program)
    if isinstance(stored, GridProgram):
        return grid.verify(options, stored)
    if isinstance(stored, RangedProgram):
        return ranged.verify(options, stored)
    with checks() as tell:
        verdict = audit(options.model, stored, options.seed, tell, read_arrays(options.inputs))
    if options.json:
        write_json(options.json, verdict)
    if options.json != "-":
        print("\n".join(verdict_lines(verdict)))
    return 0 if verdict["passed"] else FAILED


def verdict_lines(verdict: Verdict) -> list[str]:
    """The verdict for people: first whether it passed, then one line for each kind of evidence, with its problems, and what is left to trust."""
    rows = [("derivations", derivations_row(verdict["certificate"]), verdict["certificate"]["problems"])]
    if "lifting" in verdict:
        parts, constants = verdict["lifting"], verdict["constants"]
        rows += [("subprograms", lifting_row(parts), parts["problems"])]
        rows += [("constants", constants_row(constants), constants["problems"])]
    if "kernels" in verdict:
        rows += [("kernels", kernels_row(verdict["kernels"]), verdict["kernels"]["problems"])]
    numbers = verdict["verification"]
    rows += [("numbers", numbers_row(numbers), numbers.get("problems", []))]
    rows += [("", ties_row(numbers["ties"]), [])] if "ties" in numbers else []
    rows += [("", standard_row(numbers["standard"]), [])] if "standard" in numbers else []
    rows += [("", special_row(numbers["special"]), [])] if "special" in numbers else []
    lines = ["passed" if verdict["passed"] else "FAILED"]
    for name, text, problems in rows:
        lines += [f"{name:<12} {text}", *(f"  {problem}" for problem in problems)]
    lines += [line for name, e in numbers.get("outputs", {}).items() for line in output_lines(name, e, numbers)]
    lines += [f"run on {numbers['on']}"] if "on" in numbers else []
    return [*lines, *(f"{'trusted' if n == 0 else '':<12} {what}" for n, what in enumerate(verdict.get("trusted", [])))]


def derivations_row(told: Derivations) -> str:
    """How many derivations hold, how their steps were proven, and the classes of these."""
    counts = ", ".join(f"{n} {'by normal form' if m == 'inline' else 'at random points'}" for m, n in told["methods"].items())
    used = ", ".join(f"{n} {kind}" for kind, n in told["classes"].items())
    return f"{told['derivations']} with {told['steps']} steps" + (f": {counts}" if counts else "") + (f"; classes: {used}" if used else "")


def lifting_row(told: Lifted) -> str:
    """How many subprograms are proven from the model to the plan."""
    proven = told["proven"] + told["by_derivation"]
    ways = [f"{told['proven']} by normal form"]
    ways += [f"{told['by_derivation']} by derivation"] if told["by_derivation"] else []
    ways += [f"{told['tested']} tested at points only"] if told["tested"] else []
    opaque = f"; {told['opaque']} nodes run in ONNX Runtime" if told["opaque"] else ""
    return f"{proven} of {told['subprograms']} proven from the model to the plan ({', '.join(ways)}), {told['derived']} derived{opaque}"


def constants_row(told: Constants) -> str:
    """How many constants were compared, and with what."""
    good = told["weights"] + told["computed"] + told["tables"]
    kinds = f"{told['weights']} weights of the model, {told['computed']} computed again, {told['tables']} tables"
    return f"{good} of {told['constants']} as they must be: {kinds}"


def kernels_row(told: Kernels) -> str:
    """How many kernels were run alone."""
    good = told["exact"] + told["bounded"]
    kinds = f"{told['generated']} generated, {told['vendor']} of a library"
    ways = f"{told['exact']} bit for bit, {told['bounded']} within their bound"
    return f"{good} of {told['distinct']} distinct ones right on integers ({kinds}): {ways}"


def numbers_row(told: Outputs) -> str:
    """How many subprograms' numbers lie within their bounds."""
    parts, draws = told.get("subprograms"), told.get("draws", ["normal"])
    if not parts:
        return f"outputs compared with ONNX Runtime's for {', '.join(draws)} inputs" if "outputs" in told else "not compared"
    missing = f", {len(parts['not_compared'])} not compared" if parts["not_compared"] else ""
    shares = f"errors are at most {parts['share']:.2g} of a bound, bounds at most {parts['bound']:.2g} of a subprogram's max|y|"
    on = f"on {', '.join(parts['draws'])} inputs"
    further = f"; outputs compared for {', '.join(more)} inputs, too" if (more := [d for d in draws if d not in parts["draws"]]) else ""
    return f"{parts['subprograms']} of {parts['of']} subprograms within their a-priori bounds {on}{missing}: {shares}{further}"


def ties_row(moved: float) -> str:
    """That equal numbers are compared in the model, and what it means for the outputs of zero inputs."""
    return f"zero inputs decide little: ONNX Runtime's outputs move by {moved:.2g} of max|y| where these do by a rounding; twice that is allowed"


def standard_row(wrong: list[str]) -> str:
    """That ONNX Runtime is wrong here, and what the outputs are compared with."""
    return f"beside the evaluator of the standard: ONNX Runtime cuts sums of bytes at 16 bits on this processor, of {', '.join(wrong)}"


def special_row(told: dict[str, list[str]]) -> str:
    """Where NaN and infinity in an input lead to, beside ONNX Runtime; it is told and decides nothing, as derivations are about numbers."""
    leads = {what: f"elsewhere than in ONNX Runtime for {', '.join(names)}" if names else "as in ONNX Runtime" for what, names in told.items()}
    return "one in every input leads, " + "; ".join(f"{what}: {where}" for what, where in leads.items())


def output_lines(name: str, e: dict[str, Any], numbers: Outputs) -> list[str]:
    """One output beside ONNX Runtime's."""
    lines = [f"output {name}  max error {e['max_abs']:.3g}, {e['max_rel']:.3g} of max|y|; allowed {numbers['tolerance']:g}"]
    if name in numbers.get("statistics", {}):
        s = numbers["statistics"][name]
        ranks = ", ".join(f"{value:.2g} ({p} %)" for p, value in s["percentiles"].items())
        lines.append(f"  mean {s['mean_abs']:.2g}, percentiles {ranks}; greatest at {s['where']}: {s['got']:.7g}, ONNX Runtime {s['wanted']:.7g}")
    return lines


def bisect(options: argparse.Namespace) -> int:
    """Print how much each derived subprogram moves the result, and the errors along the derivation of the first."""
    from einnet.api.load import load_one
    from einnet.evidence.bisect import bisect as search

    found = search(options.model, load_one(options.program), options.seed)
    if options.json:
        write_json(options.json, found)
    if options.json != "-":
        print("\n".join(bisect_lines(found)))
    return 0


def bisect_lines(found: Bisected) -> list[str]:
    """What was found, for people."""
    lines = [f"{s['moved']:.3g} of max|y|  {s['output']}: {', '.join(s['nodes'])}" for s in found["subprograms"]]
    if found["apart"]:
        lines.append(f"{found['apart']} derived for subprograms together: not looked at one by one")
    if found["steps"]:
        lines.append("the first, step by step, in f32 beside float64:")
    for n, step in enumerate(found["steps"]):
        mark = "  <- adds most" if n == found["step"] else ""
        lines.append(f"  {n}. {step['rule']} {step['parameters']} [{step['kind']}]  {step['error']:.3g}{mark}")
    return lines


def explain(options: argparse.Namespace) -> int:
    """Print the derivations."""
    from einnet.api.load import load_told
    from einnet.compile.grid.served import GridProgram
    from einnet.compile.ranges.served import RangedProgram
    from einnet.derivation.checker.check import check
    from einnet.evidence.certificate import Entry
    from einnet.evidence.pages import card, proof_text
    from einnet.evidence.pages.story_schema import CardStory
    from einnet.evidence.pages.times import stage_table
    from einnet.evidence.pages.why import reasons
    from einnet.runtime.cpu.roofline import CONSTANTS
    from einnet.search.time_shares import table

    stored = load_told(options.program)
    if isinstance(stored, GridProgram):
        return grid.explain(options, stored)
    if options.limits:
        costs = [f"{name:<24} {value:<5} {meaning} ({source})" for name, value, meaning, source in CONSTANTS]
        taken = ["", *stages] if (stages := stage_table(getattr(stored.record, "stages", None) or [])) else []
        show("\n".join([*table(stored.record.settings.time_budget), *taken, "", "the processor's cost model", *costs]))
        return 0
    if isinstance(stored, RangedProgram):
        return ranged.explain(options, stored)
    if options.why_not:
        return explain_why_not(stored, options)
    others = stored.considered if options.all else []
    considered = [(c.candidate, Entry(c.key, c.derivation, tuple(check(c.derivation)), c.matches)) for c in others]
    told = stored.story(considered, reasons)
    if options.json:
        write_json(options.json, told)
    if options.json != "-":
        show(card.explain(told) if isinstance(told, CardStory) else proof_text.explain(told))
    return 0


def explain_why_not(stored: StoredProgram | StoredCuda, options: argparse.Namespace) -> int:
    """Print what stands against a rule or an operator."""
    from einnet.evidence.pages.why import why_not
    from einnet.evidence.pages.why_lines import why_not_lines

    found = why_not(stored, options.why_not)
    if options.json:
        write_json(options.json, found)
    if options.json != "-":
        show("\n".join(why_not_lines(options.why_not, found)).rstrip())
    return 0
