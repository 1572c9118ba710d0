"""How far `optimize` reaches: small ONNX models whose best known form is known, and what the search makes of each."""

from benchmarks.reach.again import AGAIN, LATE, PATTERNS
from benchmarks.reach.attention import ATTENTION
from benchmarks.reach.constants import CONSTANTS
from benchmarks.reach.filters import FILTERS
from benchmarks.reach.layers import LAYERS
from benchmarks.reach.linear import CHAINS, REDUCED, STRUCTURED
from benchmarks.reach.masks import MASKS
from benchmarks.reach.pairs import PAIRS
from benchmarks.reach.parts import PARTS
from benchmarks.reach.planes import PLANES
from benchmarks.reach.probes import Probe
from benchmarks.reach.squares import SQUARES

PROBES: tuple[Probe, ...] = (
    *CHAINS, *REDUCED, *STRUCTURED, *ATTENTION, *PLANES, *MASKS, *CONSTANTS, *PARTS, *SQUARES, *FILTERS, *AGAIN, *LATE, *PATTERNS, *LAYERS, *PAIRS,
)  # fmt: skip
