"""What else was considered for a part, as text."""

from __future__ import annotations

from itertools import count

import pytest

from einnet.evidence.pages.proof_text import candidate_lines
from einnet.evidence.pages.story_schema import CandidateStory, Chapter, DerivationStory


def candidate(operator: str, derived: bool, original: bool = False, chosen: bool = False) -> CandidateStory:
    told = DerivationStory(start=f"L[x<3] {operator}", steps=[], kind="exact", bound=0.0, operators=[operator]) if derived else None
    return CandidateStory(
        operators=[operator], kernels=[operator], rules=[], predicted_ms=1.0, measured_ms=None, chosen=chosen, original=original, derivation=told
    )


@pytest.mark.parametrize("derived", [True, False])
def test_the_original_of_a_changed_part_is_told_of_where_it_is_derived_itself(derived: bool) -> None:
    """By splits of loops: without a derivation it stands in the report already."""
    candidates = [candidate("Chosen", True, chosen=True), candidate("Own", derived, original=True), candidate("Other", True)]
    part = Chapter(
        key="k", changed=True, expression="e", kernels=[], original_kernels=[], measured_ms=None, original_ms=None, states=3, predicted_ms=1.0,
        nodes=[["n"]], candidates=candidates,
    )  # fmt: skip
    text = "\n".join(candidate_lines(part, count(1)))
    assert "Other" in text and "Chosen" not in text
    assert ("Own" in text) == derived
