"""Text for a terminal in colour; plain where it goes to a file or a pipe, or where NO_COLOR is set."""

from __future__ import annotations

import sys

STYLES = (
    (r"(?m)^\s*\d+\. by \S+", "bold cyan"),
    (r"(?m)^(Derivation \d+\.|Kept as|Where the time).*$", "bold"),
    (r"\[[^\]\n]*(exact|reassociation|precision)[^\]\n]*\]$", "dim"),
    (r"proven", "green"),
    (r"tested", "yellow"),
    (r"\b(L|Σ|max|min)(?=\[)", "magenta"),
    (r"(?m)^\s+(forced|for \w+|a choice of the search).*$", "italic dim"),
    (r"(?m)^\s+not: .*$", "yellow"),
    (r"\b\d[\d.e+-]* ms\b", "bold"),
)


def show(text: str) -> None:
    """Print."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    styled = Text(text)
    for pattern, style in STYLES:
        styled.highlight_regex(f"(?m){pattern.removeprefix('(?m)')}", style)
    Console(highlight=False).print(styled, soft_wrap=True)
