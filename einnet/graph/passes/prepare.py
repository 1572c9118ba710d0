"""The program passes before the search."""

from __future__ import annotations

from einnet.graph.onnx.opaque_joins import join_opaque
from einnet.graph.passes.factor_tables import factor_tables
from einnet.graph.passes.integers.as_bytes import as_bytes
from einnet.graph.passes.integers.byte_tables import byte_tables
from einnet.graph.passes.integers.integer_sums import integer_sums
from einnet.graph.passes.long_filters import long_filters
from einnet.graph.passes.places.zeros import drop_zero_places
from einnet.graph.passes.settled import settle
from einnet.graph.passes.simplify import simplify
from einnet.graph.passes.storage_order import channels_last, permute
from einnet.graph.passes.weight_structure import recover_structure
from einnet.graph.program import Program


def prepare(program: Program, permuted: bool = True, tables: bool = False, in_bytes: bool = False, finite: bool = True) -> Program:
    """Simplification, and if `permuted` data in the dimension order that its convolutions want.

    With `tables` long filters are computed by waves, and weights read as products of tables. That changes numbers by the tables' rounding and by
    their distance from the products: it is for derivations of class precision. With `in_bytes` tensors of few integers are kept as bytes, and
    products of these added up as integers; what is made of one byte is looked up. `finite` says that what is the same for all numbers need not be
    computed.
    """
    program = simplify(program)
    program = settled(program) if finite else program
    order = channels_last(program) if permuted else {}
    program = recover_structure(join_opaque(simplify(permute(program, order)) if order else program))
    program = factor_tables(long_filters(program)) if tables else program
    return byte_tables(integer_sums(as_bytes(program))) if in_bytes else program


def settled(program: Program) -> Program:
    """Without what is computed for expressions and for terms of sums that depend on no input."""
    found = drop_zero_places(settle(program))
    return program if found.settled == program.settled else simplify(found)
