"""The vendor operators that are contractions, as rows of the operator table (paper table 2)."""

from __future__ import annotations

from dataclasses import replace

from einnet.instantiate.matching.contraction import A_B, A_OUT, ALL, B_OUT
from einnet.instantiate.matching.matmul import match_matmul
from einnet.instantiate.matching.types import Table
from einnet.instantiate.matching.windows import match_conv

MATMUL = Table("Matmul", (("m", A_OUT), ("n", B_OUT), ("k", A_B)), "leading dimensions, transposes", match_matmul)
BATCHED_MATMUL = Table(
    "BatchedMatmul", (("m", A_OUT), ("n", B_OUT), ("k", A_B), ("b", ALL)), "leading dimensions, transposes, batch strides (broadcast)", match_matmul,
    batched=True,
)  # fmt: skip
CONV = Table(
    "Conv", (("n, spatial", A_OUT), ("f", B_OUT), ("c, taps", A_B), ("g", ALL)), "stride, dilation, asymmetric padding, groups, transposed",
    match_conv, windows=True,
)  # fmt: skip

CONV3 = replace(CONV, name="Conv of 3 taps", taps=3)
"""Windows of three taps, for which libraries have their fastest algorithms; longer ones are cut into such."""
