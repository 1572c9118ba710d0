"""All rules, in search order. This tuple is the registry: what is not in it does not exist."""

from einnet.derivation.rule import Rule
from einnet.derivation.rules.band import band
from einnet.derivation.rules.bilinear import bilinear
from einnet.derivation.rules.collect import collect
from einnet.derivation.rules.commute import commute
from einnet.derivation.rules.delta import delta
from einnet.derivation.rules.distribute import distribute
from einnet.derivation.rules.divide import divide
from einnet.derivation.rules.drop import drop
from einnet.derivation.rules.fold import fold
from einnet.derivation.rules.join import join
from einnet.derivation.rules.merge import merge
from einnet.derivation.rules.relax import relax
from einnet.derivation.rules.relayout import relayout
from einnet.derivation.rules.residue import residue
from einnet.derivation.rules.scale import scale
from einnet.derivation.rules.store import store
from einnet.derivation.rules.substitute import reorder_loops, substitute_loops, substitute_sums
from einnet.derivation.rules.sum_split import sum_split
from einnet.derivation.rules.taps import taps
from einnet.derivation.rules.tighten import tighten
from einnet.derivation.rules.tile import tile
from einnet.derivation.rules.triangle import triangle

RULES: tuple[Rule, ...] = (
    sum_split, substitute_loops, substitute_sums, reorder_loops, tile, band, triangle, merge, tighten, relax, relayout, residue, bilinear,
    divide, distribute, scale, store, taps, join, collect, commute, delta, drop, fold,
)  # fmt: skip
