"""Answers to "why not?" as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from einnet.evidence.pages.proof_text import ms

Place = Mapping[str, Any]
MOST_WAYS = 4


def why_not_lines(name: str, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One paragraph for each distinct subprogram of a program."""
    for s in found:
        yield ", ".join(s["nodes"]) or "a part that the program passes made"
        yield f"    {verdict(name, s)}"
        for place in s["places"]:
            yield from place_lines(place)
        yield ""


def verdict(name: str, s: Mapping[str, Any]) -> str:
    """Whether it runs; if not, what the best candidate with it costs."""
    if s["runs"]:
        return f"{name} is in what runs ({ms(s['chosen_ms'])})"
    if s["best_ms"] is not None:
        return f"{name} is not in what runs: {ms(s['chosen_ms'])}, against {ms(s['best_ms'])} for the best of {s['candidates']} candidates with it"
    if s["predicted_ms"] is not None:
        return f"{name} is not in what runs: the best candidate with it was predicted to take {ms(s['predicted_ms'])}, and not measured"
    applies = any(p["applies"] for p in s["places"])
    return f"{name} is in none of the candidates that were kept" + ("" if applies else ", for it applies nowhere at the start:")


def place_lines(place: Place) -> Iterator[str]:
    """One scope: the ways, or what stands against it."""
    yield f"    {'scope ' + place['path'] if place['path'] else 'the whole'}: {place['scope']}"
    if place["applies"]:
        more = len(place["applies"]) - MOST_WAYS
        yield f"      applies: {'; '.join(place['applies'][:MOST_WAYS])}" + (f"; and {more} more ways" if more > 0 else "")
    for why in place["against"]:
        yield f"      {'but ' if place['applies'] else 'not: '}{why}"
