"""Which derivations are stored of candidates that do not run."""

from __future__ import annotations

from random import Random

import pytest

from einnet.derivation import einfile
from einnet.evidence import stored_proofs
from einnet.evidence.report.assemble import reported
from einnet.evidence.stored_proofs import considered_told, longest
from tests.compile.test_onnx_part import outcome_of
from tests.models import two_layers


def test_so_many_are_stored_those_of_what_takes_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(two_layers(), Random(1), 0.0)
    rows, texts = considered_told(outcome)
    by_key = {r.key: r for r in outcome.results}
    for row, text in zip(rows, texts, strict=True):
        told = reported(by_key[row.key].choice)[row.candidate]
        assert told is not by_key[row.key].candidate
        assert einfile.parse(text).derivation.end == told.form.tree
    order = list(dict.fromkeys(row.key for row in rows))
    assert order == sorted(order, key=lambda key: longest([r for r in outcome.results if r.key == key]))
    assert len(rows) > 3
    for limit, stored in ((len(texts[0]), 1), (len(texts[0]) + 1, 2), (0, 0), (sum(map(len, texts)) - 1, len(texts))):
        monkeypatch.setattr(stored_proofs, "MOST_TEXT", limit)
        assert considered_told(outcome) == (rows[:stored], texts[:stored])
    monkeypatch.setattr(stored_proofs, "MOST_CONSIDERED", 3)
    assert considered_told(outcome) == (rows[:3], texts[:3])
