"""derive, rules and check: commands about expressions and derivations."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from einnet.api.derive import derive
from einnet.derivation import einfile
from einnet.derivation.rules import RULES
from einnet.expr.notation.text import parse

CONV = "L[h<6,w<6,f<4] Σ[c<8,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]"


@pytest.fixture
def derivation(tmp_path: Path) -> Path:
    """A file with the first derivation of two steps that the tree of a convolution holds."""
    tree = derive(CONV, max_depth=2, rules=("sum-split", "substitute"))
    number = next(s.number for s in tree if s.depth == 2)
    path = tmp_path / "conv.ein"
    path.write_text(einfile.write(tree.derivation(number), ["Matmul(m=1, n=1, k=1)"]), encoding="utf-8")
    return path


def test_derive_prints_every_state_below_its_parent(einnet):
    code, out, err = einnet("derive", CONV, "--max-depth", 2, "--rules", "sum-split,substitute")
    assert (code, err) == (0, "")
    tree = derive(CONV, max_depth=2, rules=("sum-split", "substitute"))
    lines = out.splitlines()
    assert lines[0] == f"#0 {parse(CONV).text()}"
    for state in tree:
        assert sum(line.endswith(f" {state.expression.text()}") for line in lines) == 1
    depth_two = next(s for s in tree if s.depth == 2)
    row = next(n for n, line in enumerate(lines) if f"#{depth_two.number} " in line)
    above = [line for line in lines[:row] if line.startswith(("├─ ", "└─ "))]
    assert f"#{depth_two.parent} " in above[-1]
    assert f"{len(tree)} expressions" in out
    assert "Conv(" in out
    assert "Matmul(" in out


def test_derive_reads_files(einnet, derivation, tmp_path):
    (tmp_path / "e.txt").write_text(CONV, encoding="utf-8")
    options = ("--max-depth", 1, "--rules", "sum-split")
    given = einnet("derive", CONV, *options)
    assert einnet("derive", tmp_path / "e.txt", *options) == given
    assert einnet("derive", derivation, *options) == given
    code, out, err = einnet("derive", "absent.txt")
    assert (code, out) == (2, "")
    assert "'absent.txt' is neither a file nor an expression" in err


def test_trees_derivations_and_forms_are_one_line_each():
    tree = derive(CONV, max_depth=1, rules=("sum-split",))
    for shown in (repr(tree), repr(tree.derivation(1)), repr(tree.forms[0])):
        assert CONV[:17] in shown
        assert "\n" not in shown
        assert len(shown) < 1000


def test_derive_json_can_be_parsed_back(einnet):
    code, out, _ = einnet("derive", CONV, "--max-depth", 1, "--json", "-")
    assert code == 0
    data = json.loads(out)
    first, *rest = data["states"]
    assert (first["parent"], first["rule"]) == (None, None)
    assert rest and all(s["parent"] == 0 and s["depth"] == 1 and s["rule"] in {r.name for r in RULES} for s in rest)
    assert all(parse(s["expression"]).text() == s["expression"] for s in data["states"])
    assert any("Matmul" in o for form in data["forms"] for o in form["operators"])


def test_derive_reads_standard_input_with_declarations(einnet, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("A : f32[4,8]\nL[i<4] Σ[k<8] A[i,k]"))
    code, out, _ = einnet("derive", "-", "--max-depth", 0)
    assert code == 0
    assert out.startswith("#0 L[i<4] Σ[k<8] A[i,k]")


@pytest.mark.parametrize("text", ["L[h<5] A[h", "L[h<5] A[h]*", "L[h<5] A[x]", "A[0]", "", "L[h<5,h<6] A[h]", "L[h<5] A[h/0]"])
def test_unparsable_expression_shows_a_caret(einnet, text):
    code, out, err = einnet("derive", text)
    assert (code, out) == (2, "")
    lines = err.rstrip("\n").splitlines()
    assert lines[0].startswith("einnet: line 1, column ")
    assert lines[-1].strip() == "^"
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-depth", "-1"), "max_depth must be 0 or more"),
        (("--rules", "winograd"), "winograd"),
        (("--rules", ","), "expected names"),
        (("--max-depth", "many"), "invalid int value"),
        (("--json", "/nowhere/x.json"), "/nowhere/x.json: cannot be written"),
    ],
)
def test_wrong_arguments_of_derive(einnet, arguments, message):
    code, _, err = einnet("derive", CONV, *arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_rules_are_listed_in_search_order(einnet):
    code, out, _ = einnet("rules")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")] == [r.name for r in RULES]
    for r in RULES:
        assert r.equation in out
        assert r.guard in out
        assert r.kind in out


def test_rules_as_json(einnet):
    data = json.loads(einnet("rules", "--json", "-").out)
    assert [(r["name"], r["equation"], r["guard"], r["class"]) for r in data] == [(r.name, r.equation, r.guard, r.kind) for r in RULES]


def test_check_accepts_a_derivation(einnet, derivation):
    code, out, err = einnet("check", derivation)
    assert (code, err) == (0, "")
    steps = einfile.parse(derivation.read_text(encoding="utf-8")).derivation.steps
    assert f"{len(steps)} steps hold" in out
    assert all(f"{n}. {s.rule}" in out for n, s in enumerate(steps, 1))
    told = json.loads(einnet("check", derivation, "--json", "-").out)
    assert told["passed"] is True
    assert [s["rule"] for s in told["steps"]] == [s.rule for s in steps]
    assert all(s["proof"]["method"] in ("inline", "random") for s in told["steps"])


def test_check_rejects_a_changed_derivation(einnet, derivation):
    text = derivation.read_text(encoding="utf-8")
    last = text[: text.rindex("match")].rstrip().rindex("]")
    at = text.rindex("K[", 0, last)
    derivation.write_text(text[:at] + text[at:].replace("K[r,s,", "K[s,r,", 1), encoding="utf-8")
    code, out, err = einnet("check", derivation)
    assert code == 1
    assert out == ""
    assert err.startswith("einnet: conv.ein: ")
    assert "differ" in err
    told = json.loads(einnet("check", derivation, "--json", "-").out)
    assert told["passed"] is False
    assert "differ" in told["problem"]


@pytest.mark.parametrize("content", ["", "by sum-split\n   L[i<2] A[i]\n", "from L[i<2] A[i\n", "from L[i<2] A[i]\nby fold\n", "junk\n"])
def test_check_of_no_derivation_is_a_wrong_argument(einnet, tmp_path, content):
    path = tmp_path / "bad.ein"
    path.write_text(content, encoding="utf-8")
    code, _, err = einnet("check", path)
    assert code == 2
    assert err.startswith("einnet: bad.ein: ")


def test_check_of_a_file_that_cannot_be_read(einnet, tmp_path):
    assert einnet("check", tmp_path / "none.ein").err == f"einnet: {tmp_path / 'none.ein'}: cannot be read (No such file or directory)\n"
    (tmp_path / "binary.ein").write_bytes(b"\xff\xfe\x00")
    code, _, err = einnet("check", tmp_path / "binary.ein")
    assert code == 2
    assert "not a text file" in err and "optimize" not in err
    (tmp_path / "m.onnx").write_bytes(b"\xff\xfe\x00")
    assert "einnet optimize" in einnet("explore", tmp_path / "m.onnx").err
