"""The explorer in a real browser: selecting, searching, filtering, paths, replays, keys; a large search stays quick to open."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from einnet.evidence.pages.page import page
from einnet.evidence.pages.report_page import program_html
from einnet.evidence.report.plain import plain
from tests.evidence.pages.conftest import Opened
from tests.evidence.pages.test_report import told


def evaluate(p: Any, code: str) -> Any:
    return p.evaluate(code)


def at(p: Any, state: int) -> tuple[float, float]:
    """Where a state is on the screen."""
    found = evaluate(
        p,
        f"(() => {{ const r = atlas.canvas.getBoundingClientRect(); return [r.x + atlas.x + (atlas.px[{state}] + CELL_W / 2) * atlas.scale,"
        f" r.y + atlas.y + (atlas.py[{state}] + CELL_H / 2) * atlas.scale]; }})()",
    )
    return found[0], found[1]


def test_a_click_selects_the_state_under_it(opened: Any, data: dict[str, Any]) -> None:
    opened.mouse.click(*at(opened, 4))
    text = opened.inner_text("#inspector")
    assert "State #4" in text and "operations" in text
    assert evaluate(opened, "atlas.selected") == 4
    assert opened.query_selector("#inspector svg.flow")


def test_every_state_of_the_search_parses_back_from_the_notation(opened: Any) -> None:
    wrong = evaluate(opened, "data.graphs[0].state.text.filter((t) => parseScope(t).text !== t || !definitions(t).length)")
    assert wrong == []


def test_a_cell_of_the_map_has_its_expression_on_a_line_for_each_definition(opened: Any) -> None:
    lines = evaluate(opened, "model(app.graph).rows(app.graph.start).map((runs) => runs.map(([text]) => text).join(''))")
    assert lines == ["Y = Lh w fΣc r sA[h+r−1, w+s−1, c]\u2009K[r, s, f, c]"]
    counts = evaluate(opened, "data.graphs[0].state.text.map((t, n) => [model(app.graph).rows(n).length, definitions(t).length])")
    assert all(drawn == defined for drawn, defined in counts)
    floor = "rowRuns(definitions('L[h<9] A[(h+1)//2]|-inf')[0]).map(([text]) => text).join('')"
    assert evaluate(opened, f"[nameText(\"BT_2_3''\"), {floor}]") == ["BT₂,₃′′", "Y = LhA[⌊(h+1)∕2⌋]|-inf"]


def test_each_rule_of_the_search_has_a_colour_of_its_own(opened: Any) -> None:
    used = evaluate(opened, "[...new Set(model(app.graph).edges.map((e) => e.rule).filter(Boolean))]")
    assert len(used) > 3
    assert len(set(evaluate(opened, f"{used}.map(ruleColor)"))) == len(used)


def test_the_search_box_and_the_filters_dim_the_rest(opened: Any, data: dict[str, Any]) -> None:
    count = len(data["graphs"][0]["state"]["text"])
    assert opened.inner_text("#matches") == f"{count} states"
    opened.fill("#search", "outside=r,s")
    assert evaluate(opened, "app.found.length") == 1
    opened.press("#search", "Enter")
    assert "sum-split outside=r,s" in opened.inner_text("#inspector")
    opened.keyboard.press("Escape")
    opened.select_option("#rule", "bilinear")
    found = evaluate(opened, "app.found.map((n) => model(app.graph).by[n].rule)")
    assert found and set(found) == {"bilinear"}
    opened.select_option("#rule", "")
    opened.select_option("#operator", "Conv")
    assert 0 < evaluate(opened, "app.found.length") < count
    assert evaluate(opened, "app.found.every((n) => model(app.graph).reached[n].some((r) => r[0] === 'Conv'))")


def test_keys_move_between_states(opened: Any) -> None:
    opened.focus("#canvas")
    opened.keyboard.press("ArrowDown")
    start = evaluate(opened, "atlas.selected")
    assert start == evaluate(opened, "app.graph.start")
    opened.keyboard.press("ArrowDown")
    child = evaluate(opened, "atlas.selected")
    assert evaluate(opened, f"model(app.graph).parent[{child}]") == start
    opened.keyboard.press("ArrowUp")
    assert evaluate(opened, "atlas.selected") == start
    opened.keyboard.press("Escape")
    assert evaluate(opened, "atlas.selected") == -1
    opened.keyboard.press("/")
    assert evaluate(opened, "document.activeElement.id") == "search"


def test_the_path_between_two_states_can_be_replayed(opened: Any) -> None:
    deepest = evaluate(opened, "(() => { const m = model(app.graph); return m.depth.indexOf(Math.max(...m.depth)); })()")
    evaluate(opened, "select(1)")
    opened.click("#markHere")
    evaluate(opened, f"select({deepest})")
    path = evaluate(opened, "atlas.path.map((e) => [e.back ? e.to : e.from, e.back ? e.from : e.to])")
    assert path[0][0] == 1 and path[-1][1] == deepest
    assert all(a[1] == b[0] for a, b in pairwise(path))
    assert not evaluate(opened, f"ways(model(app.graph), 0, {deepest}, false).some((e) => e.back && e.part)")
    opened.click("#replayHere")
    assert f"#1 to #{deepest}" in opened.inner_text("#steps")
    assert opened.is_visible("#step .math")


def test_a_derivation_is_replayed_step_by_step_with_the_change_marked(opened: Any, data: dict[str, Any]) -> None:
    longest = max(range(len(data["graphs"][0]["derivations"])), key=lambda i: len(data["graphs"][0]["derivations"][i]["steps"]))
    steps = data["graphs"][0]["derivations"][longest]["steps"]
    evaluate(opened, f"replayDerivation(0, {longest})")
    assert opened.locator("#steps button.s").count() == len(steps) + 1
    for number, step in enumerate(steps, 1):
        opened.click(f'#steps button[data-step="{number}"]')
        assert f"{number}. by {step['rule']}" in opened.inner_text("#step")
        assert opened.locator("#step .row.changed").count() > 0
        assert "proven" in opened.inner_text("#step .chips") or "tested" in opened.inner_text("#step .chips")
    opened.keyboard.press("ArrowLeft")
    assert evaluate(opened, "app.step") == len(steps) - 1


def test_a_replay_of_a_way_ends_in_the_derivations_own_states(opened: Any) -> None:
    """What the page composes from inner scopes is an expression that parses, and where one rule acts on the whole it is the state itself."""
    evaluate(opened, "select(model(app.graph).edges.find((e) => !e.part && e.outcome === 0 && e.from === app.graph.start).to)")
    opened.click("#replayHere")
    assert evaluate(opened, "app.replay.steps.at(-1).expression === model(app.graph).text[atlas.selected]")
    wrong = evaluate(
        opened,
        "model(app.graph).text.map((_, n) => n).filter((n) => { atlas.selected = n; replayPath(chain(model(app.graph), n), '');"
        " return app.replay.steps.some((s) => parseScope(s.expression).text !== s.expression); })",
    )
    assert wrong == []


def test_refused_rules_and_missed_operators_are_told_on_demand(opened: Any, data: dict[str, Any]) -> None:
    state = data["graphs"][0]["state"]
    one = next(n for n, refused in enumerate(state["refused"]) if refused)
    evaluate(opened, f"select({one})")
    folded = opened.locator("#inspector details", has_text="Rules that do not apply")
    assert folded.count() == 1 and not folded.locator("dl").is_visible()
    folded.locator("summary").click()
    rule, why = state["refused"][one][0]
    assert rule in folded.inner_text() and data["graphs"][0]["why"][why] in folded.inner_text()


def test_dark_light_and_the_rules(opened: Any) -> None:
    light = evaluate(opened, "getComputedStyle(document.body).backgroundColor")
    opened.keyboard.press("d")
    assert evaluate(opened, "getComputedStyle(document.body).backgroundColor") != light
    opened.click('nav button[data-view="rules"]')
    assert opened.locator("#rules .rule").count() == evaluate(opened, "data.rules.length")


def test_printing_shows_every_step(opened: Any, data: dict[str, Any]) -> None:
    evaluate(opened, "replayDerivation(0, data.graphs[0].derivations.findIndex((d) => d.steps.length > 1))")
    opened.emulate_media(media="print")
    evaluate(opened, "window.dispatchEvent(new Event('beforeprint'))")
    assert opened.locator("#step .all h2").count() == evaluate(opened, "app.replay.steps.length")
    assert opened.is_visible("#step .all") and not opened.is_visible("#steps")
    evaluate(opened, "window.dispatchEvent(new Event('afterprint'))")
    assert opened.locator("#step .all").count() == 0


def enlarged(data: dict[str, Any], least: int) -> dict[str, Any]:
    """The search, as many times beside itself as it takes for `least` states; each copy hangs at the start."""
    graph = data["graphs"][0]
    count = len(graph["state"]["text"])
    copies = -(-least // count)
    state = {name: column * copies for name, column in graph["state"].items()}
    edges = [[a + n * count, b + n * count, *rest] for n in range(copies) for a, b, *rest in graph["edges"]]
    edges += [[graph["start"], graph["start"] + n * count, "fold", "all", "exact", 0, ""] for n in range(1, copies)]
    parts = [[a + n * count, path, b + n * count, table] for n in range(copies) for a, path, b, table in graph["parts"]]
    return {**data, "graphs": [{**graph, "state": state, "edges": edges, "parts": parts}]}


def test_the_program_leads_to_its_searches_and_derivations(browser: Any, data: dict[str, Any], tmp_path: Path) -> None:
    """Two subprograms: one was searched and changed, the other is a copy and has no search to show."""
    report, of = told()
    whole = {**data, "graphs": [{**data["graphs"][0], "key": "k1"}], "program": of, "report": report}
    path = tmp_path / "program.html"
    path.write_text(page(plain(whole), program_html(report, of, linked=True)), encoding="utf-8")
    found = Opened(browser, path)
    p = found.page
    p.wait_for_selector("html[data-ready]")
    assert p.is_visible("#program .report") and p.locator("#program button[data-open-key]").count() == 1
    assert "2.50x" in p.inner_text("#program .chapter >> nth=0")
    p.click('#program button[data-replay-key="k1"]')
    assert "Conv 'c'" in p.inner_text("#steps") and p.locator("#steps button.s").count() == report.certificate.steps + 1
    p.keyboard.press("1")
    p.click('#program button[data-open-key="k1"]')
    assert p.is_visible("#canvas")
    found.close()


def test_a_program_without_a_search_has_a_page(browser: Any, data: dict[str, Any], tmp_path: Path) -> None:
    report, of = told()
    path = tmp_path / "nothing.html"
    path.write_text(page(plain({**data, "graphs": [], "program": of, "report": report}), program_html(report, of, linked=True)), encoding="utf-8")
    found = Opened(browser, path)
    found.page.wait_for_selector("html[data-ready]")
    for key in ("2", "ArrowDown", "d", "Escape", "3", "4"):
        found.page.keyboard.press(key)
    found.close()


def test_twenty_thousand_states_open_and_move(browser: Any, data: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(page(enlarged(data, 20_000)), encoding="utf-8")
    began = time.monotonic()
    found = Opened(browser, path)
    found.page.wait_for_selector("html[data-ready]")
    evaluate(found.page, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.monotonic() - began
    assert evaluate(found.page, "model(app.graph).text.length") >= 20_000
    frames = evaluate(
        found.page,
        "(() => { const t = []; for (const [z, n] of [[1.3, 3], [8, 100], [0.2, 9], [30, 15000]]) { const a = performance.now();"
        " atlas.zoom(z); atlas.center(n); atlas.paint(); t.push(performance.now() - a); } return t; })()",
    )
    print(f"{seconds:.2f} s to open, frames of {max(frames):.0f} ms at most")
    drawn = evaluate(found.page, "atlas.drawn")
    assert drawn < 2000, "zoomed in, only what is on the screen is drawn"
    found.close()
