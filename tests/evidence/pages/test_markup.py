"""Expressions and derivations as HTML, LaTeX and pictures; the report as a page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from einnet.derivation import einfile
from einnet.derivation.steps import Derivation
from einnet.evidence.pages.plots import roofline
from einnet.evidence.report.schema import KernelRow
from einnet.expr.nodes import walk
from einnet.expr.notation.markup import definitions, html, index_html, rows_html
from einnet.expr.notation.picture import flow, svg
from einnet.expr.notation.text import parse
from einnet.search.space import Options, Space
from tests.filled import filled

GOLDENS = sorted(Path(__file__).parents[2].joinpath("derivations").glob("*.ein"))


def derivation(path: Path) -> Derivation:
    return einfile.parse(path.read_text(encoding="utf-8")).derivation


def words(markup: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", "", markup, flags=re.S)).strip()


def test_a_scope_becomes_definitions_innermost_first() -> None:
    e = parse("L[h<8] Σ[r<3] {L[r<3,h<8] A[h+r]*2}[r,h]*{L[x<4] b[x]}[h//2]")
    rows = definitions(e)
    assert [r.name for r in rows] == ["T1", "T2", "Y"]
    assert [r.path for r in rows] == [(0,), (1,), ()]
    assert "T1[r, h]" in words(html(e)) and "⌊h∕2⌋" in words(html(e))


@pytest.mark.parametrize(("text", "wanted"), [("(h-r+1)/2", "(h−r+1)∕2"), ("(h+1)//2", "⌊(h+1)∕2⌋"), ("2*h'+3", "2h′+3"), ("-h", "−h"), ("7", "7")])
def test_indices(text: str, wanted: str) -> None:
    e = parse(f"A : f32[99]\nL[h<9,h'<9,r<3] A[{text}]").body.index[0]  # type: ignore[union-attr]
    assert words(index_html(e)) == wanted


@pytest.mark.parametrize("path", GOLDENS, ids=lambda p: p.stem)
def test_each_step_of_a_derivation_marks_what_changed_and_nothing_else(path: Path) -> None:
    d = derivation(path)
    names: dict = {}
    before = definitions(d.start, names)
    for step, state in zip(d.steps, list(d.states())[1:], strict=True):
        after = definitions(state, names, before)
        marked = [r for r, text in ((r, rows_html([r], before)) for r in after) if "row changed" in text]
        there = set(walk(step.after))
        assert marked, step.rule
        assert all(r.scope in there or r.path == step.path[: len(r.path)] for r in marked)
        before = after
    assert d._repr_latex_().count(r"\overset") == len(d.steps) == words(d._repr_html_()).count(". by ")
    assert einfile.parse(str(d)).derivation == d


@pytest.mark.parametrize("path", GOLDENS, ids=lambda p: p.stem)
def test_pictures_are_well_formed_and_hold_every_scope_and_tensor(path: Path) -> None:
    end = derivation(path).end
    nodes, edges = flow(end)
    root = ElementTree.fromstring(svg(end))
    assert len(root.findall("{http://www.w3.org/2000/svg}g")) == len(nodes)
    assert sum(n.kind != "tensor" for n in nodes) == len(set(walk(end)))
    assert all(nodes[a].column < nodes[b].column for a, b in edges)


def test_points_of_the_roofline_lie_where_their_counts_put_them() -> None:
    """A kernel that reaches the bandwidth lies on the roof: its circle's centre is on the slanted line."""
    kernel = {
        "kernel": "k",
        "key": "a",
        "ms": 1.0,
        "flops": 10_000_000,
        "bytes": 10_000_000,
        "gflops": 10.0,
        "gbs": 10.0,
        "share_of_peak": 0.1,
        "share_of_bandwidth": 1.0,
    }
    text = roofline([filled(KernelRow, kernel)], {"a": "#123456"})
    circle = re.search(r'fill="#123456" cx="([\d.]+)" cy="([\d.]+)" r="12"><title>k: 1 ms, 10 Gflop/s, 100% of the roofline', text)
    roof = re.search(r'class="roof" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)H', text)
    assert circle and roof
    x0, y0, x1, y1 = map(float, roof.groups())
    x, y = map(float, circle.groups())
    assert y == pytest.approx(y0 + (y1 - y0) * (x - x0) / (x1 - x0), abs=0.5)


def test_matches_and_forms_show_themselves() -> None:
    forms = Space(Options(max_depth=1, intensity=0.0)).forms(parse("A : f32[6,7]\nB : f32[7,8]\nL[m<6,n<8] Σ[k<7] A[m,k]*B[k,n]"))
    form = next(f for f in forms if f.matches)
    _, match = form.matches[0]
    assert words(match._repr_html_()) == "Matmul(m = m, n = n, k = k)"
    assert match._repr_latex_() == r"$\mathrm{Matmul}(\mathrm{m} = m,\; \mathrm{n} = n,\; \mathrm{k} = k)$"
    assert str(match) in str(form) and "<svg" in form._repr_html_() and form._repr_latex_().startswith("$$")
