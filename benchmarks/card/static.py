"""What generated CUDA kernels of neglected layers hold and load, by the compiler and by counting: no card, and no time.

    python -m benchmarks.card.static [-o benchmarks/results/card-static.json]

Registers, shared memory and spills are the assembler's (NVRTC, `einnet[nvrtc]`); multiply-adds for each word that a thread reads, and for
each word that a block reads from outside its own memory, are counted from the tiles. Where every element is computed by one thread for itself, a
multiply-add reads two words. Terms that are always 0 (fractional indices) do not count.
"""

from __future__ import annotations

import argparse
import json
from math import prod
from pathlib import Path
from typing import Any

from benchmarks.contest.results import write_whole
from einnet.expr.nodes import Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda.contracted_sizes import faster
from einnet.instantiate.codegen.cuda.emit import lower_cuda
from einnet.instantiate.codegen.cuda.reduction_nest import live_share
from einnet.instantiate.codegen.cuda.staging import staged
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.cuda.tiling import FILE, MEMORY, RESIDENT, WARP, Tile, distinct
from einnet.instantiate.codegen.ir import Load, walk
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.kernels import EOperator, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.runtime.cuda import nvrtc

RESULT = Path(__file__).parents[1] / "results" / "card-static.json"

LAYERS = {
    "FSRCNN 5x5, 1 to 56": ("L[h<32,w<32,f<56] Σ[r<5,s<5] A[h+r-2,w+s-2]*K[f,r,s]", {"A": (32, 32), "K": (56, 5, 5)}),
    "FSRCNN 3x3, 12 to 12": ("L[h<32,w<32,f<12] Σ[c<12,r<3,s<3] A[h+r-1,w+s-1,c]*K[f,c,r,s]", {"A": (32, 32, 12), "K": (12, 12, 3, 3)}),
    "FSRCNN 3x3 at 256x256": ("L[h<256,w<256,f<12] Σ[c<12,r<3,s<3] A[h+r-1,w+s-1,c]*K[f,c,r,s]", {"A": (256, 256, 12), "K": (12, 12, 3, 3)}),
    "FSRCNN transposed 9x9 stride 4, 56 to 1": (
        "L[h<128,w<128] Σ[c<56,r<9,s<9] A[(h-r+4)/4,(w-s+4)/4,c]*K[c,r,s]", {"A": (32, 32, 56), "K": (56, 9, 9)}),
    "InfoGAN transposed 4x4 stride 2, 64 to 3": (
        "L[f<3,h<32,w<32] Σ[c<64,r<4,s<4] A[(h-r+1)/2,(w-s+1)/2,c]*K[c,f,r,s]", {"A": (16, 16, 64), "K": (64, 3, 4, 4)}),
    "DCGAN transposed 4x4 stride 2, 64 to 3": (
        "L[f<3,h<64,w<64] Σ[c<64,r<4,s<4] A[(h-r+1)/2,(w-s+1)/2,c]*K[c,f,r,s]", {"A": (32, 32, 64), "K": (64, 3, 4, 4)}),
    "ResNet-18 stem 7x7 stride 2, 3 to 64": (
        "L[f<64,h<112,w<112] Σ[c<3,r<7,s<7] A[c,2*h+r-3,2*w+s-3]*K[f,c,r,s]", {"A": (3, 224, 224), "K": (64, 3, 7, 7)}),
    "5x5, 32 to 1, batch 16": ("L[n<16,h<224,w<224] Σ[c<32,r<5,s<5] A[n,c,h+r-2,w+s-2]*K[c,r,s]", {"A": (16, 32, 224, 224), "K": (32, 5, 5)}),
}  # fmt: skip


ASSEMBLED = ("registers", "shared_bytes", "spilled_bytes", "occupancy")
"""Figures of the assembler, which are those of one version of the compiler."""

SUMS = {
    "product of 512": ("L[i<512,j<512] Σ[k<512] A[i,k]*B[k,j]", {"A": (512, 512), "B": (512, 512)}),
    "product of 1,024": ("L[i<1024,j<1024] Σ[k<1024] A[i,k]*B[k,j]", {"A": (1024, 1024), "B": (1024, 1024)}),
    "3x3 on 7x7, 512 to 512": (
        "L[f<512,h<7,w<7] Σ[c<512,r<3,s<3] A[c,h+r-1,w+s-1]*K[f,c,r,s]", {"A": (512, 7, 7), "K": (512, 512, 3, 3)}),
    "12 products of 128 by 128, 64 terms": ("L[b<12,i<128,j<128] Σ[k<64] A[b,i,k]*B[b,j,k]", {"A": (12, 128, 64), "B": (12, 128, 64)}),
}  # fmt: skip
"""Sums of products of two arrays whose copies are on their way while they multiply."""


def operator(text: str, boxes: dict[str, tuple[int, ...]]) -> EOperator:
    """The expression over dense arrays."""
    scope = parse(text, {n: Tensor(n, b) for n, b in boxes.items()})
    return EOperator(scope, tuple((n, dense_view(n, t.shape)) for n, t in tensors(scope).items()), dense_view("out", scope.shape))


def counted(t: Tile) -> dict[str, Any]:
    """A tile's sizes and its multiply-adds for each word read."""
    loads = list(dict.fromkeys(e for e in walk(t.reduce.body) if isinstance(e, Load)))
    sums = {i.name: i.extent for i in t.reduce.sums}
    written = {**t.points, **{n: sums[n] for n in t.unrolled}}
    walked = prod(e for n, e in sums.items() if n not in t.unrolled)
    steps = -(-walked // t.team[1])
    copied = {f.load: f for f in t.staged}
    rounds = prod(-(-e // (t.chunks or {}).get(n, e)) for n, e in sums.items()) if t.staged else 0
    reads = {x: t.block * steps * distinct(x.address, written) for x in loads}
    filled = rounds * sum(f.elements for f in t.staged)
    useful = t.block * steps * prod(written.values()) * live_share(t.reduce)
    outside = filled + sum(n for x, n in reads.items() if x not in copied)
    return {
        "threads": t.block, "blocks": t.blocks, "elements_of_a_thread": prod(t.points.values()), "lanes_that_share_a_sum": t.team[1],
        "copies": len(t.staged), "terms_for_each_word_read": round(useful / sum(reads.values()), 2),
        "terms_for_each_word_from_outside": round(useful / outside, 2), "without_tiles": round(1 / len(loads), 2),
        "cycles_by_the_model": round(t.cycles),
    }  # fmt: skip


def occupancy(t: Tile, registers: int, shared: int) -> float:
    """The share of the warps that a multiprocessor can hold that it can hold of this kernel."""
    return held_at_once(t.block, registers, shared)


def held_at_once(threads: int, registers: int, shared: int) -> float:
    """The same for blocks of so many threads."""
    warps = -(-threads // WARP)
    blocks = min(RESIDENT // warps, FILE // (WARP * warps * -(-registers // 8) * 8), MEMORY // (shared + 1024))
    return round(blocks * warps / RESIDENT, 2)


def row(text: str, boxes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """All that is known of a layer's kernel without a card."""
    op = operator(text, boxes)
    (nest,) = staged(resolve(op)).nests
    found = tile(normalise(nest))
    assert found is not None, text
    result = {"expression": text, **counted(found)}
    if nvrtc.available() is None:
        (held,) = nvrtc.resources(lower_cuda(op, "kernel").text).values()
        result |= {"registers": held.registers, "shared_bytes": held.shared, "spilled_bytes": held.spilled}
        result["occupancy"] = occupancy(found, held.registers, held.shared)
    return result


def ahead(text: str, boxes: dict[str, tuple[int, ...]], tensor: bool) -> dict[str, Any]:
    """What is known without a card of a kernel that walks its sum in stages."""
    op = operator(text, boxes)
    nest = normalise(resolve(op))
    found, other = faster(nest, tensor), tile(nest)
    assert found is not None and other is not None, text
    s = found.sizes
    result: dict[str, Any] = {
        "expression": text, "tensor_cores": s.tensor, "threads": s.threads, "rows": s.rows, "columns": s.columns, "terms_of_a_stage": s.step,
        "stages": s.stages, "blocks_of_a_cluster": s.cluster, "cycles_by_the_model": round(found.cycles), "cycles_of_tiles": round(other.cycles),
    }  # fmt: skip
    if nvrtc.available() is None:
        rounded = op.in_arithmetic(ARITHMETICS["tf32"]) if tensor else op
        (held,) = nvrtc.resources(lower_cuda(rounded, "kernel").text).values()
        result |= {"registers": held.registers, "shared_bytes": held.shared, "spilled_bytes": held.spilled}
        result["occupancy"] = held_at_once(s.threads, held.registers, held.shared)
    return result


def compiler() -> str:
    """Whose figures those of the assembler are: another version gives the same text a few registers more or less."""
    return f"NVRTC {nvrtc.version()}" if nvrtc.version() else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    path: Path = parser.parse_args().output
    rows = {name: row(*layer) for name, layer in LAYERS.items()}
    sums = {f"{name}{', tensor cores' * tensor}": ahead(*layer, tensor) for name, layer in SUMS.items() for tensor in (False, True)}
    kind = "static analysis: counts, and the assembler's figures for sm_90; nothing was run on a card, and nothing here is a time"
    write_whole(path, json.dumps({"kind": kind, "compiler": compiler(), "layers": rows, "sums": sums}, indent=1) + "\n")
    for name, r in rows.items():
        held = ", ".join(f"{k} {r[k]}" for k in ASSEMBLED if k in r)
        reads = f"{r['terms_for_each_word_read']} terms a word read ({r['without_tiles']} without tiles)"
        print(f"{name}: {reads}, {r['blocks']} x {r['threads']} threads, {held}")
    for name, r in sums.items():
        print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in r.items() if k != "expression"))


if __name__ == "__main__":
    main()
