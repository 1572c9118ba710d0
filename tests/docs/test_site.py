"""The site builds without a warning, and no link in it is broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.blocks import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed, reason=f"{needed} is not installed (pip install -e '.[docs]')")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fresh-env", "--fail-on-warning", "-b", "html", str(ROOT / "docs"), str(out)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0 and not result.stderr.strip(), result.stderr
    return out


def test_every_link_leads_somewhere_and_none_outside_is_loaded(site: Path) -> None:
    pages = {p: p.read_text(encoding="utf-8") for p in site.rglob("*.html")}
    for page, text in pages.items():
        assert not re.search(r'<(script|img|link)[^>]+(src|href)="https?://', text), page
        for href in re.findall(r'\shref="([^"]*)"', text):
            if re.match(r"(https?:|mailto:|data:)", href):
                continue
            file, _, anchor = re.sub(r"\?[^#]*", "", href).partition("#")
            target = (page.parent / unquote(file)).resolve() if file else page
            assert target.exists(), f"{page.name}: {href}"
            if anchor and target.suffix == ".html":
                assert f'id="{anchor}"' in pages[target], f"{page.name}: {href}"


OUTSIDE = {"https://github.com/pradyunsg/furo"}
"""All that the site links to elsewhere: the line under each page that says what built it."""


def test_links_to_elsewhere_are_the_listed_ones(site: Path) -> None:
    found = {href for p in site.rglob("*.html") for href in re.findall(r'\shref="(https?://[^"]*)"', p.read_text(encoding="utf-8"))}
    assert found <= OUTSIDE


def test_figures_of_the_paper_are_measured_or_said_to_be_missing(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    pages = pytest.importorskip("paper_pages")
    text = (site / "paper.html").read_text(encoding="utf-8")
    assert text.count("From <code") + text.count("Not measured: ") == len(pages.FIGURES)
    for name, (files, _, _) in pages.FIGURES.items():
        there = [pages.RESULTS / f for f in files if (pages.RESULTS / f).exists()]
        said = "\n".join(pages.measured(name))
        assert there[0].name in said if there else said.startswith("*Not measured: there is no")
    data = json.loads((pages.RESULTS / "cpu-models.json").read_text())
    fastest = max(m["speedup"] for m in data["models"])
    assert f"{fastest:.2f}x" in text
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    assert all("".join(pages.measured(name)).startswith("*Not measured") for name in pages.FIGURES)


def test_the_drawn_search_space_is_what_the_search_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    pages = pytest.importorskip("paper_pages")
    nodes, holds = pages.space_tree("A : f32[9,8,4]\nB : weight f32[4,6]\nL[h<9,w<8,f<6] Σ[c<4] A[h,w,c]*B[c,f]", 1, 4)
    assert nodes[0] == (-1, "start", "") and all(parent < n for n, (parent, _, _) in enumerate(nodes))
    assert any("Matmul" in h for h in holds) and not {n for n, h in enumerate(holds) if not h} - {parent for parent, _, _ in nodes}, "each leaf holds"
    assert pages.tree_svg(nodes, holds).count("<rect") == len(nodes)


def test_every_rule_and_command_is_on_its_page(site: Path) -> None:
    from einnet.derivation.rules import RULES

    rules = (site / "rules.html").read_text(encoding="utf-8")
    assert all(f'id="{r.name}"' in rules for r in RULES)
    assert rules.count("proven: ") + rules.count("tested: ") == len(RULES)
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in commands for name in ("optimize", "explore", "explain", "check"))
