"""Directives that write parts of the documentation from the code: rules, operators, derivations as pictures, the public interface."""

from __future__ import annotations

import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))


SITE = """
.highlight-text pre { white-space: pre-wrap }
figure, .einnet { margin: 1em 0; overflow-x: auto }
"""


class Written(SphinxDirective):
    """A directive whose content is Markdown lines that a generator gives; raw HTML goes through `raw` fences."""

    has_content = True
    optional_arguments = 4

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.lines()), allow_section_headings=True)


def raw(html: str) -> Iterator[str]:
    """HTML on one line, so that no line of it is taken for Markdown."""
    yield "```{raw} html"
    yield html.replace("\n", " ")
    yield "```"
    yield ""


def expression_html(text: str) -> str:
    from einnet.expr.notation.markup import definitions, rows_html
    from einnet.expr.notation.text import parse

    return f'<div class="einnet">{rows_html(definitions(parse(text)))}</div>'


class Expression(Written):
    """An expression: as definitions, and its data flow."""

    def lines(self) -> Iterator[str]:
        from einnet.expr.notation.picture import svg
        from einnet.expr.notation.text import parse

        text = "\n".join(self.content)
        yield from raw(expression_html(text) + svg(parse(text)))


class DerivationFile(Written):
    """A golden derivation: every step with what changed, and the data flow before and after."""

    required_arguments = 1

    def lines(self) -> Iterator[str]:
        from einnet.derivation import einfile
        from einnet.derivation.checker.check import check
        from einnet.derivation.markup import derivation_html
        from einnet.evidence.pages.proof_text import proof_text
        from einnet.expr.notation.picture import svg

        path = ROOT / self.arguments[0]
        self.env.note_dependency(str(path))
        file = einfile.parse(path.read_text(encoding="utf-8"))
        proofs = [proof_text(p) for p in check(file.derivation)]
        held = f"<p>It holds <b>{escape(', '.join(file.matches))}</b>.</p>" if file.matches else ""
        pictures = f"<figure>{svg(file.derivation.start)}</figure><figure>{svg(file.derivation.end)}</figure>"
        yield from raw(f'<div class="einnet">{derivation_html(file.derivation, proofs)}{held}</div>{pictures}')


class Rules(Written):
    """Every rule of the registry: equation, guard, class, an example from its tests and how the checker proves it."""

    def lines(self) -> Iterator[str]:
        from einnet.derivation.checker.check import check_equal
        from einnet.derivation.markup import derivation_html
        from einnet.derivation.rules import RULES
        from einnet.derivation.steps import Derivation, Step
        from einnet.expr.notation.text import parse
        from tests.derivation.rule_cases import CASES, DECLARED

        for rule in RULES:
            yield from (f"## {rule.name}", "", "```text", rule.equation, "```", "", f"Applies if: {escape(rule.guard)}. Class: {rule.kind}.", "")
            case = CASES[rule.name]
            before, parameters, _ = case.goldens[0]
            start, end = parse(DECLARED + before), next(r.scope for r in rule.rewrites(parse(DECLARED + before)) if r.parameters == parameters)
            proof = check_equal(start, end)
            status = f"{'proven' if proof.method == 'inline' else 'tested'}: {proof.details}"
            step = Step(rule.name, parameters, start, end, (), rule.kind)
            yield from raw(f'<div class="einnet">{derivation_html(Derivation(start, (step,)), [status])}</div>')
            yield from ("It refuses, for example:", "")
            for source, why in case.refusals[:3]:
                yield f"- `{source}` – {why}"
            yield ""


class Operators(Written):
    """The iterator mapping tables of the vendor operators."""

    def lines(self) -> Iterator[str]:
        from einnet.instantiate.registry import TABLES

        groups = ("A, out", "B, out", "A, B", "A, B, out", "A")
        yield from ("| operator | " + " | ".join(groups) + " | attributes read from coefficients |", "|---" * 7 + "|")
        for t in TABLES:
            roles = {", ".join([*(letter for letter, stands in zip("AB", g[:-1]) if stands), *["out"] * g[-1]]): name for name, g in t.roles}
            yield f"| {t.name} | " + " | ".join(roles.get(g, "–") for g in groups) + f" | {t.attributes} |"
        yield ""


class OnnxOperators(Written):
    """The ONNX operators that become expressions, by family."""

    def lines(self) -> Iterator[str]:
        from einnet.graph.operators.registry import OPERATORS

        families: dict[str, list[str]] = {}
        for name, function in OPERATORS.items():
            families.setdefault(inspect.getmodule(function).__name__.rpartition(".")[2], []).append(name)  # type: ignore[union-attr]
        for family, names in families.items():
            yield f"- **{family}**: {', '.join(f'`{n}`' for n in sorted(names))}"
        yield from ("", f"{len(OPERATORS)} in all.", "")


class ContributedOperators(Written):
    """The operators of other domains that have a function body here."""

    def lines(self) -> Iterator[str]:
        from einnet.graph.onnx.contributed.registry import CONTRIBUTED, DOMAIN

        yield from (f"Of `{DOMAIN}`: {', '.join(f'`{name}`' for name in sorted(CONTRIBUTED))}.", "")


class Coverage(Written):
    """What becomes of the backend test cases of the onnx package, by kind, as `python -m benchmarks.coverage` found it."""

    def lines(self) -> Iterator[str]:
        from benchmarks.coverage import CATEGORIES

        path = ROOT / "benchmarks" / "results" / "coverage.json"
        self.env.note_dependency(str(path))
        data = json.loads(path.read_text(encoding="utf-8"))
        counts = Counter((c["kind"], c["category"]) for c in data["cases"])
        yield from (f"| onnx {data['onnx']} | cases | " + " | ".join(CATEGORIES) + " |", "|---" * (len(CATEGORIES) + 2) + "|")
        for kind in [*dict.fromkeys(c["kind"] for c in data["cases"]), "all"]:
            row = [sum(n for (k, c), n in counts.items() if kind in (k, "all") and c == category) for category in CATEGORIES]
            yield f"| {kind} | {sum(row)} | " + " | ".join(map(str, row)) + " |"
        yield ""


class Interface(Written):
    """Signatures and docstrings of names: `module: name, name`."""

    def lines(self) -> Iterator[str]:
        for line in self.content:
            module, _, names = line.partition(":")
            for name in filter(None, map(str.strip, names.split(","))):
                found: Any = getattr(import_module(module.strip()), name)
                yield from entry(name, found)
                if inspect.isclass(found):
                    for attribute, member in vars(found).items():
                        member = member.fget if isinstance(member, property) else getattr(member, "func", member)
                        if not attribute.startswith("_") and inspect.isfunction(member):
                            yield from entry(f"{name}.{attribute}", member, 4)


def entry(name: str, found: Any, level: int = 3) -> Iterator[str]:
    try:
        signature = str(inspect.signature(found)) if callable(found) and not hasattr(found, "__members__") else ""
    except ValueError:
        signature = ""
    doc = inspect.cleandoc(found.__doc__ or "")
    yield from (f"{'#' * level} {name}", "", "```python", f"{name}{signature}".replace("'", ""), "```", "")
    yield from ("```text", doc, "```", "") if doc else ()


class Command(Written):
    """A command's own help."""

    def lines(self) -> Iterator[str]:
        from einnet.cli.parser import build_parser

        parser = build_parser()
        actions = next(a for a in parser._actions if hasattr(a, "choices") and isinstance(a.choices, dict))
        for name, sub in actions.choices.items():
            help_text = next(c.help for c in actions._choices_actions if c.dest == name)
            yield from (f"## {name}", "", f"{help_text[0].upper()}{help_text[1:]}.", "", "```text", sub.format_help().rstrip(), "```", "")


def setup(app: Any) -> dict[str, Any]:
    from einnet.expr.notation.markup import STYLE

    static = Path(app.srcdir) / "_static"
    static.mkdir(exist_ok=True)
    (static / "einnet.css").write_text(f"{STYLE}\n{SITE}", encoding="utf-8")
    named = {"expression": Expression, "derivation": DerivationFile, "rules": Rules, "operators": Operators, "onnx-operators": OnnxOperators}
    named["contributed-operators"] = ContributedOperators
    for name, directive in {**named, "coverage": Coverage, "interface": Interface, "commands": Command}.items():
        app.add_directive(f"einnet-{name}", directive)
    return {"version": "1", "parallel_read_safe": True}
