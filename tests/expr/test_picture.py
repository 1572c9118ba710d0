"""Pictures of the data flow: what is drawn lies within its box, and says what the expression says."""

from __future__ import annotations

from xml.etree import ElementTree

from einnet.expr.notation.picture import flow, svg
from einnet.expr.notation.tags import tag
from einnet.expr.notation.text import parse

SVG = "{http://www.w3.org/2000/svg}"
SCOPE = parse("A : f32[1111,2222,3333,4444,5555]\nB : weight f32[7]\nL[a<1111,b<2222,c<3333,d<4444] Σ[e<5555] A[a,b,c,d,e]*B[a%7]")


def test_long_dimensions_are_set_within_their_box_and_short_ones_as_they_are() -> None:
    shown = {}
    for group in ElementTree.fromstring(svg(SCOPE)).findall(f"{SVG}g"):
        box, _, dims = group
        shown[dims.text] = (int(dims.get("textLength", 0)), int(box.get("width", 0)))
    assert shown.pop("7")[0] == 0
    assert set(shown) == {"1111×2222×3333×4444×5555", "1111×2222×3333×4444"}
    for _, (text, width) in sorted(shown.items()):
        assert text < width and (text == 0 or text > width // 2)
    assert shown["1111×2222×3333×4444×5555"][0] > 0


def test_nodes_and_wires_of_a_product() -> None:
    nodes, edges = flow(SCOPE)
    assert [(n.kind, n.weight, n.column, n.row) for n in nodes] == [("tensor", False, 0, 0), ("tensor", True, 0, 1), ("product", False, 1, 0)]
    assert edges == [(0, 2), (1, 2)]


def test_elements_are_closed_and_what_holds_nothing_by_itself() -> None:
    assert tag("rect", width=2.5, class_="a b") == '<rect width="2.5" class="a b"/>' and tag("rect", "x") == "<rect>x</rect>"
    assert tag("g") == "<g></g>" and tag("g", "<b>") == "<g><b></g>"
    assert tag("text", "x", stroke_width=3.0, rx=None, title='<"') == '<text stroke-width="3" title="&lt;&quot;">x</text>'
