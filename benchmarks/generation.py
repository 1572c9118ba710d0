"""Text that models generate token by token under torch.compile: einnet and Inductor, each beside eager mode.

    python -m benchmarks.generation [MODEL ...] [--cache static|dynamic] [--tokens 32] [-o benchmarks/results/generation.json]

Models have the sizes of published ones and random weights. What generates is transformers' `generate`, greedily, with a cache of fixed size
(`static`) or one that grows (`dynamic`); the model's forward is compiled. Each engine has a process of its own, in which it and eager mode take
turns; `first_s` is the first text with each, all that is made included: nothing is taken from a cache. What is there already is left out unless
`--fresh`. Exit code 1 where tokens differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import rows as by_row
from benchmarks.contest.machine import description
from benchmarks.contest.results import keep, read
from benchmarks.rows import ROOT, Row

ENGINES, CACHES = ("inductor", "einnet"), ("static", "dynamic")
PROMPT, ROUNDS = 32, 7
"""Tokens of a prompt, and texts that are timed."""


def gpt2() -> tuple[Any, dict[str, Any]]:
    """The smallest GPT-2, 124 million parameters."""
    import transformers

    config = transformers.GPT2Config()
    return transformers.GPT2LMHeadModel(config), prompt(config.vocab_size)


def smollm() -> tuple[Any, dict[str, Any]]:
    """SmolLM, 135 million parameters: a Llama of 30 layers with grouped queries."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), prompt(config.vocab_size)


def t5() -> tuple[Any, dict[str, Any]]:
    """T5-small, 60 million parameters: an encoder and a decoder of 6 layers."""
    import transformers

    config = transformers.T5Config(num_layers=6, decoder_start_token_id=0)
    return transformers.T5ForConditionalGeneration(config), prompt(config.vocab_size)


def whisper() -> tuple[Any, dict[str, Any]]:
    """Whisper-tiny, 39 million parameters, on half a minute of sound."""
    import torch
    import transformers

    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536,
        decoder_ffn_dim=1536, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config), {"input_features": torch.randn(1, config.num_mel_bins, 3000)}


MODELS: Mapping[str, Callable[[], tuple[Any, dict[str, Any]]]] = {"gpt2": gpt2, "smollm": smollm, "t5": t5, "whisper": whisper}


def prompt(words: int) -> dict[str, Any]:
    """Tokens at random."""
    import torch

    return {"input_ids": torch.randint(3, words - 1, (1, PROMPT))}


def measure(name: str, cache: str, engine: str, tokens: int, threads: int, options: Mapping[str, float]) -> Row:
    """One engine beside eager mode, in this process: ms of a text, the seconds of the first one, and whether the tokens are eager mode's."""
    import torch
    import torch._inductor.config

    import einnet.api.torch  # noqa: F401 - torch knows the backend, where no package is installed either

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    model, inputs = MODELS[name]()
    model = model.eval()
    asked: dict[str, Any] = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}
    if cache == "static":
        asked |= {"cache_implementation": "static", "disable_compile": True}
    eager = model.forward
    torch._inductor.config.force_disable_caches = True
    compiled = torch.compile(eager, backend=engine, options={**options, "store": False} if engine == "einnet" else None)

    def text(forward: Any) -> tuple[Any, float]:
        model.forward = forward
        begin = time.perf_counter()
        found = model.generate(**inputs, **asked)
        return found, time.perf_counter() - begin

    times: dict[str, list[float]] = {"eager": [], engine: []}
    with torch.no_grad():
        wanted, _ = text(eager)
        found, first_s = text(compiled)
        equal = bool(torch.equal(found, wanted))
        text(compiled)
        for _ in range(ROUNDS):
            for kind, forward in (("eager", eager), (engine, compiled)):
                text(forward)  # whose threads were asleep
                times[kind].append(text(forward)[1])
    ratio = [a / b for a, b in zip(times["eager"], times[engine], strict=True)]
    return {
        "ms": {kind: 1e3 * statistics.median(found) for kind, found in times.items()}, "first_s": first_s, "equal": equal,
        "speedup": statistics.median(ratio), "noise": (max(ratio) - min(ratio)) / statistics.median(ratio) / 2,
    }  # fmt: skip


def table(cases: Sequence[Row], machine: str) -> str:
    """The cases in Markdown."""
    lines = [
        f"Texts under torch.compile on {machine}: ms, and how many times as fast as eager mode in its process; the first text with all that is made.",
        "", "| model | tokens | eager | Inductor | | first text | einnet | | first text | its tokens |", "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for case in (case for case in cases if all(engine in case["engines"] for engine in ENGINES)):
        both = case["engines"]
        cells = [f"{one['ms'][name]:.0f} | {one['speedup']:.2f}x | {one['first_s']:.0f} s" for name, one in ((n, both[n]) for n in ENGINES)]
        differ = ", ".join(name for name in ENGINES if not both[name]["equal"])
        same = f"others by {differ}" if differ else "eager mode's"
        lines.append(f"| {case['name']} | {case['asked']['tokens']} | {both['einnet']['ms']['eager']:.0f} | {' | '.join(cells)} | {same} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for and write it."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__, formatter_class=raw)
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default: all)")
    options.add_argument("--cache", choices=CACHES, default=CACHES[0])
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--time-budget", type=float, default=20.0, help="of each search, in seconds")
    options.add_argument("--graph-budget", type=float, default=120.0, help="for the programs of a graph, in seconds")
    options.add_argument("--fresh", action="store_true", help="measure rows again that are there")
    options.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks/results/generation.json")
    options.add_argument("--one", help=argparse.SUPPRESS)
    given = by_row.asked(options, arguments, MODELS)
    if given.one:
        return by_row.one(measure, given.one)
    budgets = {"time_budget": given.time_budget, "graph_budget": given.graph_budget}
    asked, machine = {"tokens": given.tokens, "threads": given.threads, **budgets}, description()
    cases: list[Row] = read(given.output)["cases"] if given.output.exists() else []
    for name in given.models or MODELS:
        case = {"name": called(name, given.cache), "asked": asked}
        there = [] if given.fresh else [row["engines"] for row in cases if case.items() <= row.items()]
        found = dict(there[0]) if there else {}
        missing = [engine for engine in ENGINES if engine not in found]
        for engine in missing:
            orders = (name, given.cache, engine, given.tokens, given.threads, budgets)
            found[engine] = by_row.apart("benchmarks.generation", orders, f"{name}, {engine}")
            print(f"{case['name']}, {engine}: {found[engine]['speedup']:.2f}x of eager mode", file=sys.stderr, flush=True)
        if not missing:  # the file says on which machine it was
            continue
        case |= {"engines": {engine: found[engine] for engine in ENGINES}}
        cases = keep(given.output, machine, case, (called(n, cache) for n in MODELS for cache in CACHES))
        given.output.with_suffix(".md").write_text(table(cases, machine["cpu"]))
    print(table(cases, machine["cpu"]))
    return 0 if all(one["equal"] for case in cases for one in case["engines"].values()) else 1


def called(name: str, cache: str) -> str:
    """A case's name."""
    return f"{name}, {cache} cache"


if __name__ == "__main__":
    raise SystemExit(main())
