"""A real browser on a page of the explorer; without one, the tests that need it are skipped and say why."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from einnet.evidence.pages.explore_page import explore_expression
from einnet.evidence.pages.page import page
from einnet.evidence.report.plain import plain

CONV = "A : f32[56,56,64]\nK : weight f32[3,3,64,64]\nL[h<56,w<56,f<64] Σ[c<64,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install -e '.[browser]')")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the path")
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def data() -> dict[str, Any]:
    """The search from a convolution."""
    return plain(explore_expression(CONV, 2))


class Opened:
    """A page that must not complain, nor ask the network for anything."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": 1440, "height": 900})
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(path.as_uri())
        self.path = path

    def close(self) -> None:
        self.page.close()
        assert self.complaints == []
        assert self.asked == [self.path.as_uri()]


@pytest.fixture
def opened(browser: Any, data: dict[str, Any], tmp_path: Path) -> Iterator[Any]:
    """The explorer of `data`, ready."""
    path = tmp_path / "page.html"
    path.write_text(page(data), encoding="utf-8")
    found = Opened(browser, path)
    found.page.wait_for_selector("html[data-ready]")
    yield found.page
    found.close()
