"""Algorithms that the search derives from naive models: the cases, a module of this folder for each family."""

from benchmarks.algorithms.case import Case
from benchmarks.algorithms.folds import FOLDS
from benchmarks.algorithms.recurrences import RECURRENCES
from benchmarks.algorithms.transforms import TRANSFORMS

CASES: tuple[Case, ...] = (*RECURRENCES, *FOLDS, *TRANSFORMS)
"""All cases, in the order of the table."""
