"""Algorithms that the search derives from naive models: the cases, a module of this folder for each family."""

from benchmarks.algorithms.case import Case
from benchmarks.algorithms.folds import FOLDS
from benchmarks.algorithms.mixers import MIXING
from benchmarks.algorithms.recurrences import RECURRENCES
from benchmarks.algorithms.transforms import TRANSFORMS

FIRST = (
    "STFT 128 x 8 x 1024", "STFT 100 x 10 x 1000", "long filter 256 x 2048", "inverse STFT 128 x 2048", "retention 512", "selective scan 512",
    "state space by a loop 512", "gated linear attention by a scan 512", "receptance by keys by a scan 512", "gated delta by a scan 512",
    "linear attention 512", "from a half spectrum 512", "from a half spectrum 2048", "retention 2048", "selective scan 2048",
    "state space by a loop 2048", "gated linear attention by a scan 2048", "receptance by keys by a scan 2048",
)  # fmt: skip
"""Those that have a target, which a run that ends early is to have."""

_ALL = (*RECURRENCES, *FOLDS, *MIXING, *TRANSFORMS)

CASES: tuple[Case, ...] = (*(c for name in FIRST for c in _ALL if c.name == name), *(c for c in _ALL if c.name not in FIRST))
"""All cases, in the order of the table."""
