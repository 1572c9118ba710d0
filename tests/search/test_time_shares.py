"""The table of time: it is the only one, and all that stands in it is used."""

from __future__ import annotations

import re
from pathlib import Path

import einnet
from einnet.cli import main
from einnet.runtime.cpu import roofline
from einnet.search import time_shares
from tests.models import two_layers

PACKAGE = Path(einnet.__file__).parent


def test_every_limit_is_used_and_no_share_of_time_stands_elsewhere() -> None:
    texts = {p: p.read_text() for room in ("compile", "evidence", "search", "api") for p in (PACKAGE / room).rglob("*.py")}
    table = Path(time_shares.__file__)
    others = "\n".join(text for path, text in texts.items() if path != table)
    limits = [name for name, value in vars(time_shares).items() if isinstance(value, time_shares.Limit)]
    assert len(limits) > 20
    assert [name for name in limits if not re.search(rf"\b{name}\b", others)] == []
    assert re.findall(r"(?m)^[A-Z_]*SHARE[A-Z_]* = .*", others) == []


def test_the_table_is_told_for_the_budget_of_a_program(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = einnet.optimize(two_layers(), derive=False, time_budget=3, threads=1).save(tmp_path / "p.einnet")
    assert main(["explain", str(path), "--limits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["of", "3", "s"]
    row = next(line for line in lines if line.startswith("costing share"))
    assert row.split()[2:6] == ["0.4", "of", "the", "budget"] and "1.2 s" in row
    end = lines.index("")
    assert end == 1 + sum(isinstance(value, time_shares.Limit) for value in vars(time_shares).values())
    assert lines[end + 1] == "what the making took, in seconds" and any(line.startswith("building programs ") for line in lines)
    assert len(lines[lines.index("the processor's cost model") + 1 :]) == len(roofline.CONSTANTS)
    assert any(line.split()[:3] == ["vendor", "share", str(roofline.VENDOR_SHARE)] for line in lines)
