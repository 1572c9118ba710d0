"""Code blocks of Markdown files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line it starts in."""

    language: str
    text: str
    line: int


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a file, in order."""
    text = path.read_text(encoding="utf-8")
    for m in re.finditer(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", text, re.M | re.S):
        yield Block(m[1], m[2], text.count("\n", 0, m.start()) + 1)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output
