"""Stored programs of drawn candidates, and mutants of them: of the plan, the constants, the object code, the derivations and the manifest.

A mutant is what somebody could write who can seal a file again: nothing is said of its digest.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.drawn import forced
from einnet.compile.targets.stored import StoredProgram, load
from einnet.derivation import einfile
from einnet.evidence.certificate import Certificate, Entry, proofs
from einnet.evidence.comparison.verdicts import model_digest
from einnet.evidence.report.schema import Report
from einnet.evidence.stored_proofs import certificate_rows
from einnet.expr.index import var
from einnet.expr.nodes import Body, Call, Cond, Const, Mul, Read, Scope, Select, children, make_add, rebuild
from einnet.graph.program import Program
from einnet.graph.rewrite import anonymous
from einnet.graph.split import subprograms
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, OpaqueCall, Plan, Post, View
from einnet.records import as_json
from einnet.runtime import artifact
from einnet.runtime.artifact import Loaded
from einnet.runtime.cpu.compile import compile_operators, operator_names
from einnet.runtime.cpu.native.link import ObjectFile
from einnet.runtime.cpu.program import build_code
from einnet.search.forms import Form
from tests.filled import filled

THREADS = 1


@dataclass(frozen=True)
class Mutant:
    """A changed program: what was changed, and how."""

    kind: str
    what: str
    loaded: Loaded


def stored(model: Any, path: Path, seed: int = 0, depth: int = 3, states: int = 120) -> StoredProgram:
    """A stored program of drawn candidates, with all that one has that was optimized."""
    program, plan, forms = forced(model, seed, depth, states)
    derived = [f for f in forms if f.steps]
    entries = [Entry(anonymous(f.start).key, f.derivation, proofs(f.derivation), tuple(f.operators())) for f in derived]
    certificate = Certificate(tuple(entries))
    metadata = {"report": report(model, program, derived), "certificate": as_json(certificate_rows(certificate)), "considered": []}
    texts = [einfile.write(e.derivation, e.matches) for e in entries]
    artifact.save(path, plan, build_code(plan, THREADS), metadata, texts, threads=THREADS)
    return load(path)


def report(model: Any, program: Program, derived: list[Form]) -> dict[str, Any]:
    """As much of a report as a verification reads."""
    keys = {anonymous(f.start).key for f in derived}
    parts = [{"output": p.output.name, "key": p.key, "changed": p.key in keys} for p in subprograms(program)]
    settings = {"allow": "precision", "target": "native"}
    told = {"model": "drawn", "runs": "derived", "settings": settings, "subprograms": parts, "digest": model_digest(model)}
    return dict(as_json(filled(Report, told)))


def mutants(program: StoredProgram, seed: int = 0) -> Iterator[Mutant]:
    """All kinds."""
    generator = random.Random(seed)
    loaded = program.loaded
    loaded = replace(loaded, plan=replace(loaded.plan, constants=dict(loaded.plan.constants)))
    for kind, made in (("plan", plans), ("constants", constants), ("code", codes), ("derivations", derivations), ("manifest", manifests)):
        for what, changed in made(loaded, generator):
            yield Mutant(kind, what, changed)


Made = Iterator[tuple[str, Loaded]]


# ---------------------------------------------------------------------------------------------------------------------------- plans


def plans(loaded: Loaded, generator: random.Random) -> Made:
    """Every kernel changed in one place; kernels left out and exchanged; outputs and inputs exchanged. The code of changed kernels is built again."""
    plan = loaded.plan
    for n, kernel in enumerate(plan.kernels):
        for what, other in (*views(plan, kernel, generator), *posts(kernel), *geometry(kernel), *bodies(kernel)):
            changed = replace(plan, kernels=(*plan.kernels[:n], other, *plan.kernels[n + 1 :]))
            yield f"kernel {n}: {what}", with_plan(loaded, changed)
        yield f"kernel {n} left out", with_plan(loaded, replace(plan, kernels=(*plan.kernels[:n], *plan.kernels[n + 1 :])))
    for n in range(len(plan.kernels) - 1):
        a, b = plan.kernels[n : n + 2]
        yield f"kernels {n} and {n + 1} exchanged", with_plan(loaded, replace(plan, kernels=(*plan.kernels[:n], b, a, *plan.kernels[n + 2 :])))
    if len(plan.outputs) > 1:
        (a, x), (b, y), *rest = plan.outputs
        yield "outputs exchanged", with_plan(loaded, replace(plan, outputs=((a, y), (b, x), *rest)))
    if len(plan.inputs) > 1:
        (a, x), (b, y), *rest = plan.inputs
        yield "inputs exchanged", with_plan(loaded, replace(plan, inputs=((a, y), (b, x), *rest)))


def with_plan(loaded: Loaded, plan: Plan) -> Loaded:
    """The program with another plan and its code."""
    return replace(loaded, plan=plan, code=None)


def views(plan: Plan, kernel: Kernel, generator: random.Random) -> Iterator[tuple[str, Kernel]]:
    """One view moved, turned, or on another buffer."""
    sizes = {b.name: b.size for b in plan.buffers}
    chosen = [*kernel.operand_views, *kernel.result_views]
    view = generator.choice(chosen)
    wide = [d for d, n in enumerate(view.shape) if n > 1]

    def put(other: View) -> Kernel:
        return kernel.map_views(lambda v: other if v == view else v)

    reach = view.offset + sum(s * (n - 1) for s, n in zip(view.strides, view.shape))
    if view.offset:
        yield "a view moved down", put(replace(view, offset=view.offset - 1))
    if reach + 1 < sizes[view.buffer]:
        yield "a view moved up", put(replace(view, offset=view.offset + 1))
    if len(wide) > 1:
        a, b = generator.sample(wide, 2)
        strides = list(view.strides)
        strides[a], strides[b] = strides[b], strides[a]
        turned = replace(view, strides=tuple(strides))
        if turned.offset + sum(s * (n - 1) for s, n in zip(strides, view.shape)) < sizes[view.buffer]:
            yield "a view turned", put(turned)
    if wide and view in kernel.operand_views:
        d = generator.choice(wide)
        yield "a dimension of a view stands still", put(replace(view, strides=tuple(0 if k == d else s for k, s in enumerate(view.strides))))
    others = [b for b in plan.buffers if b.name != view.buffer and b.size >= reach + 1 and b.dtype == "f32"]
    if others and view in kernel.operand_views:
        yield "another buffer", put(replace(view, buffer=generator.choice(others).name))


def posts(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Operations on a result left out, exchanged and changed; a clip that does not belong there."""
    if not isinstance(kernel, (Matmul, Conv)):
        return
    for n, post in enumerate(kernel.post):
        rest = (kernel.post[:n], kernel.post[n + 1 :])
        yield f"{post.kind} left out", replace(kernel, post=(*rest[0], *rest[1]))
        for kind in {"add": ("mul",), "mul": ("add",), "relu": ("tanh", "sigmoid"), "tanh": ("sigmoid",), "sigmoid": ("tanh",)}.get(post.kind, ()):
            yield f"{kind} for {post.kind}", replace(kernel, post=(*rest[0], replace(post, kind=kind), *rest[1]))
        if post.kind in ("clip", "linear"):
            yield f"{post.kind} with another number", replace(kernel, post=(*rest[0], replace(post, beta=post.beta + 0.25), *rest[1]))
    yield "a clip more", replace(kernel, post=(*kernel.post, Post("clip", None, -0.01, 0.01)))


def geometry(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Padding and dilation of a convolution moved."""
    if isinstance(kernel, Conv):
        begin, *more = kernel.pads_begin
        end, *ends = kernel.pads_end
        moved = begin + 1 if end else begin - 1
        yield "padding moved", replace(kernel, pads_begin=(moved, *more), pads_end=(end - 1 if end else end + 1, *ends))
        if kernel.w.shape[3] > 1:
            dilations = (kernel.dilations[0] + 1, *kernel.dilations[1:])
            yield "another dilation", replace(kernel, dilations=dilations)
        if kernel.w.shape[1] == kernel.w.shape[2] > 1:
            w = kernel.w
            swapped = replace(w, strides=(w.strides[0], w.strides[2], w.strides[1], *w.strides[3:]))
            yield "weights turned", replace(kernel, w=swapped)


def bodies(kernel: Kernel) -> Iterator[tuple[str, EOperator]]:
    """The expression of a generated kernel changed: a factor, half of the result, an index, a function, a bound of a sum."""
    if not isinstance(kernel, EOperator):
        return
    scope = kernel.scope
    yield "times 1.001", replace(kernel, scope=replace(scope, body=Mul((Const(Fraction(1001, 1000)), scope.body))))
    wide = [i for i in scope.loops if i.extent > 1]
    if wide and scope.reduce == "sum":
        i = wide[-1]
        zero = Select((Cond(var(i.name) - (i.lo + i.hi) // 2),), scope.body, Const(Fraction(0)))
        yield "half is zero", replace(kernel, scope=replace(scope, body=zero))
    if scope.sums and scope.sums[0].extent > 1:
        short = scope.sums[0]._replace(hi=scope.sums[0].hi - 1)
        yield "a sum one shorter", replace(kernel, scope=replace(scope, sums=(short, *scope.sums[1:])))
    yield from ((what, replace(kernel, scope=replace(scope, body=body))) for what, body in inside(scope.body))


EXCHANGED = {"relu": "abs", "exp": "tanh", "tanh": "sigmoid", "sigmoid": "tanh", "max": "min", "min": "max", "sqrt": "abs", "erf": "tanh"}


def inside(body: Body) -> Iterator[tuple[str, Body]]:
    """A body with one part of it changed."""
    match body:
        case Const(v) if not isinstance(v, float):
            yield "another number", Const(v + Fraction(1, 1000))
        case Call(name, args) if name in EXCHANGED:
            yield f"{EXCHANGED[name]} for {name}", Call(EXCHANGED[name], args)
            if name == "relu":
                yield "a relu left out", args[0]
        case Read(base, index, fill) if index and not isinstance(base, Scope) and base.shape[-1] > 1:
            yield "an index moved", Read(base, (*index[:-1], index[-1] + 1), fill)
    args = children(body)
    for n, arg in enumerate(args):
        for what, other in inside(arg):
            yield what, rebuild(body, (*args[:n], other, *args[n + 1 :]))


# -------------------------------------------------------------------------------------------------------------------- constants


def constants(loaded: Loaded, generator: random.Random) -> Made:
    """Every constant with one element or all of them changed; what is said of it left out; and what is said changed with it."""
    plan = loaded.plan
    for name, held in plan.constants.items():
        values = np.asarray(held)
        if values.dtype != np.float32 or not values.size:
            continue
        at = generator.randrange(values.size)
        changes: dict[str, Callable[[np.ndarray[Any, Any]], None]] = {
            "one element times 1.001": lambda x, at=at: x.__setitem__(at, x[at] * np.float32(1.001) or np.float32(1e-3)),
            "all times 1.00005": lambda x: x.__imul__(np.float32(1.00005)),
            "one element of the other sign": lambda x, at=at: x.__setitem__(at, -x[at]),
            "one unit in the last place": lambda x, at=at: x.__setitem__(at, np.nextafter(x[at], np.float32(np.inf))),
            "rolled": lambda x: x.__setitem__(slice(None), np.roll(x, 1)),
        }
        for what, change in changes.items():
            other = values.copy()
            change(other)
            yield f"constant {name}: {what}", replace(loaded, plan=replace(plan, constants={**plan.constants, name: other}))
        if name in plan.expressions:
            scope = plan.expressions[name]
            yield f"constant {name}: nothing said", replace(
                loaded, plan=replace(plan, expressions={n: s for n, s in plan.expressions.items() if n != name})
            )
            scaled = replace(scope, body=Mul((Const(Fraction(1001, 1000)), scope.body)))
            other = (values.astype(np.float64) * 1.001).astype(np.float32)
            yield f"constant {name}: changed as is said", replace(
                loaded, plan=replace(plan, expressions={**plan.expressions, name: scaled}, constants={**plan.constants, name: other})
            )


# ------------------------------------------------------------------------------------------------------------------------ code


def codes(loaded: Loaded, generator: random.Random) -> Made:
    """The machine code of a kernel that of another expression, under its name; and numbers in object code patched."""
    assert loaded.code is not None
    operators = [k for k in loaded.plan.kernels if isinstance(k, EOperator)]
    names = operator_names(operators)
    of = dict(zip(names, operators))
    for n, kernel in enumerate(loaded.code.kernels):
        file = ObjectFile(kernel)
        name = next((name for name in of if any(s.name == f"einnet_kernel_{name}" for s in file.symbols)), None)
        if name is None:
            continue
        for what, other in bodies(of[name]):
            try:
                made = compile_operators({name: other}, THREADS)
            except Exception:  # what the generator does not take is no mutant
                continue
            yield f"code of kernel {name[:6]}: {what}", with_code(loaded, n, made)
        for what, data in patched(kernel, file, generator):
            yield f"code of kernel {name[:6]}: {what}", with_code(loaded, n, data)


def with_code(loaded: Loaded, place: int, data: bytes) -> Loaded:
    code = loaded.code
    assert code is not None
    return replace(loaded, code=replace(code, kernels=(*code.kernels[:place], data, *code.kernels[place + 1 :])))


def patched(data: bytes, file: ObjectFile, generator: random.Random) -> Iterator[tuple[str, bytes]]:
    """A number among the constants of object code times 1.001."""
    for section in file.sections:
        if section.name.startswith(".rodata") and section.size >= 4:
            places = range(section.offset, section.offset + section.size - 3, 4)
            known = [p for p in places if 1e-6 < abs(struct.unpack_from("<f", data, p)[0]) < 1e6]
            for p in generator.sample(known, min(2, len(known))):
                (x,) = struct.unpack_from("<f", data, p)
                other = bytearray(data)
                struct.pack_into("<f", other, p, x * 1.001)
                yield f"a constant {x:.4g} of {section.name} times 1.001", bytes(other)


# ------------------------------------------------------------------------------------------------------- derivations, manifest


def derivations(loaded: Loaded, generator: random.Random) -> Made:
    """Derivations left out, exchanged, cut short, and with another expression in the middle."""
    texts, records = loaded.derivations, list(loaded.metadata["certificate"])

    def told(chosen: list[tuple[str, Any]]) -> Loaded:
        return replace(loaded, derivations=tuple(t for t, _ in chosen), metadata={**loaded.metadata, "certificate": [r for _, r in chosen]})

    pairs = list(zip(texts, records))
    yield "all derivations left out", told([])
    for n, (text, record) in enumerate(pairs):
        yield f"derivation {n} left out", told(pairs[:n] + pairs[n + 1 :])
        if len(pairs) > 1:
            yield f"derivation {n} is that of another", told([*pairs[:n], pairs[(n + 1) % len(pairs)], *pairs[n + 1 :]])
        file = einfile.parse(text)
        steps = file.derivation.steps
        last = steps[-1]
        grown = replace(last, after=replace(last.after, body=make_add((last.after.body, Const(Fraction(1))))))
        wrong = einfile.write(replace(file.derivation, steps=(*steps[:-1], grown)), file.matches)
        yield f"derivation {n} with another end", told([*pairs[:n], (wrong, record), *pairs[n + 1 :]])


def manifests(loaded: Loaded, generator: random.Random) -> Made:
    """What the manifest says of the program."""
    report = dict(loaded.metadata["report"])

    def with_report(**changes: Any) -> Loaded:
        return replace(loaded, metadata={**loaded.metadata, "report": {**report, **changes}})

    yield "another digest", with_report(digest="0" * 32)
    yield "said to be kept whole", with_report(kept_whole="because")
    yield "said to run whole", with_report(runs="whole model")
    yield "another class allowed", with_report(settings={**report["settings"], "allow": "exact"})
    yield "said to be unchanged", with_report(subprograms=[{**s, "changed": False} for s in report["subprograms"]])
    yield "another target", with_report(settings={**report["settings"], "target": "onnx"})
    yield "an opaque kernel more", with_plan(loaded, replace(loaded.plan, kernels=(*loaded.plan.kernels, OpaqueCall(b"", (), (), ""))))
