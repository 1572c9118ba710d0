"""A named dimension of a model that has a range of sizes."""

from __future__ import annotations

from typing import NamedTuple


class Dimension(NamedTuple):
    """A named dimension and its sizes, `lowest` to `highest`, both included."""

    name: str
    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.name} in {self.lowest}..{self.highest}"

    @property
    def sizes(self) -> range:
        return range(self.lowest, self.highest + 1)
