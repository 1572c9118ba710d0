"""The commands that write pages: explore, optimize --report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run

PRODUCT = "A : f32[40,30]\nB : f32[30,50]\nC : f32[50,20]\nL[m<40,n<20] Σ[k<30,l<50] A[m,k]*B[k,l]*C[l,n]"


def data(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.S)
    assert found
    return json.loads(found[1])


def test_an_expression(einnet: Run, tmp_path: Path) -> None:
    result = einnet("explore", PRODUCT, "-o", tmp_path / "page.html", "--max-depth", 2, "--everything")
    assert result.code == 0 and "states" in result.out
    graph = data(tmp_path / "page.html")["graphs"][0]
    assert {e[2] for e in graph["edges"]} >= {"sum-split"}
    assert any("Matmul" in o for d in graph["derivations"] for o in d["operators"])
    assert all(s["proof"]["method"] in ("inline", "random") for d in graph["derivations"] for s in d["steps"])


def test_a_stored_program(einnet: Run, optimized: Path, tmp_path: Path) -> None:
    result = einnet("explore", optimized / "small.einnet", "-o", tmp_path / "page.html", "--max-depth", 0)
    assert result.code == 0, result.err
    found = data(tmp_path / "page.html")
    report = json.loads((optimized / "report.json").read_text())
    assert {g["key"] for g in found["graphs"]} <= {s["key"] for s in report["subprograms"]}
    assert {g["depth"] for g in found["graphs"]} == {0}, "its own depth, not that of the search"
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f'data-open-key="{s["key"]}"' in text for s in report["subprograms"])


def test_the_search_of_a_stored_program_is_the_one_that_the_optimizer_made(einnet: Run, optimized: Path, tmp_path: Path) -> None:
    result = einnet("explore", optimized / "small.einnet", "-o", tmp_path / "page.html")
    assert result.code == 0, result.err
    met = {s["key"]: s["states"] for s in json.loads((optimized / "report.json").read_text())["subprograms"]}
    graphs = data(tmp_path / "page.html")["graphs"]
    assert graphs and {g["key"]: g["counts"]["states"] for g in graphs} == {g["key"]: met[g["key"]] for g in graphs}
    assert einnet("explore", optimized / "small.einnet", "--rules", "merge", "-o", tmp_path / "no.html").code == 2


def test_a_derivation_is_the_first_of_its_page(einnet: Run, tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "derivations" / "g13.ein"
    assert einnet("explore", source, "-o", tmp_path / "page.html", "--max-depth", 1).code == 0
    found = data(tmp_path / "page.html")
    text = source.read_text(encoding="utf-8")
    assert found["replay"] == 0 and [s["rule"] for s in found["graphs"][0]["derivations"][0]["steps"]] == re.findall(r"^by (\S+)", text, re.M)
    broken = tmp_path / "broken.ein"
    broken.write_text(text.replace("]*", "]*2*", 1), encoding="utf-8")
    result = einnet("explore", broken, "-o", tmp_path / "no.html")
    assert result.code == 1 and "step 1" in result.err and not (tmp_path / "no.html").exists()


def test_pages_load_nothing_and_close_no_script_early(einnet: Run, tmp_path: Path) -> None:
    einnet("explore", "L[h<4] A[h]", "-o", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=|@import|https?://(?!www\.w3\.org)", text)
    assert text.count("<script") == text.count("</script>") == 2


def test_what_cannot_be_explored_is_said(einnet: Run, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert einnet("explore", "L[h<4] A[x]", "-o", out).code == 2
    assert "not bound" in einnet("explore", "L[h<4] A[x]", "-o", out).err
    assert einnet("explore", tmp_path / "missing.einnet", "-o", out).code == 2
    assert einnet("explore", "L[h<4] A[h]", "-o", tmp_path / "no" / "page.html").code == 2
    assert "no rule" in einnet("explore", "L[h<4] A[h]", "-o", out, "--rules", "nonsense").err
    assert not out.exists()


def test_the_report_page(einnet: Run, models: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    arguments = ("--time-budget", 3, "--max-depth", 1, "--threads", 1, "--report", page, "--json", tmp_path / "r.json", "--quiet")
    assert einnet("optimize", models / "small.onnx", *arguments).code == 0
    text, report = page.read_text(encoding="utf-8"), json.loads((tmp_path / "r.json").read_text())
    assert f"{report['totals']['speedup']:.2f}x" in text and "roofline" in text
    assert text.count('class="chapter"') == len({s["key"] for s in report["subprograms"]})
    assert "<script" not in text
    assert einnet("optimize", models / "small.onnx", "--report", tmp_path / "no" / "r.html").code == 2
