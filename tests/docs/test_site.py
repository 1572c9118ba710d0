"""The site builds without a warning, and no link in it is broken."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.blocks import ROOT

pytestmark = pytest.mark.slow


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


def test_every_rule_and_command_is_on_its_page(site: Path) -> None:
    from einnet.derivation.rules import RULES

    rules = (site / "rules.html").read_text(encoding="utf-8")
    assert all(f'id="{r.name}"' in rules for r in RULES)
    assert rules.count("proven: ") + rules.count("tested: ") == len(RULES)
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in commands for name in ("optimize", "explore", "explain", "check"))
