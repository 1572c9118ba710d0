"""Algorithms that the search derives from naive models: the cases, a module of this folder for each family."""

from benchmarks.algorithms.case import Case
from benchmarks.algorithms.recurrences import RECURRENCES

CASES: tuple[Case, ...] = (*RECURRENCES,)
"""All cases, in the order of the table."""
