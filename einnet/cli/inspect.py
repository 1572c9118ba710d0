"""Commands about expressions and derivations: derive, rules, check."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einnet.cli import ranged
from einnet.cli.arguments import names
from einnet.cli.colour import show
from einnet.cli.files import is_program, read_text, subject_text, write_json
from einnet.errors import CertificateError, EinNetError

if TYPE_CHECKING:
    from einnet.api.derive import DerivationTree, State


def register(commands: Any) -> None:
    """Add the family's commands."""
    one = commands.add_parser("derive", help="show what an expression can be derived to")
    about = "an expression, with declarations before it where wanted, a file with one, or a derivation's start; - reads standard input"
    one.add_argument("expression", metavar="EXPR|FILE|FILE.ein", help=about)
    one.add_argument("--max-depth", type=int, default=2, metavar="N", help="most explorative steps (default: 2)")
    one.add_argument("--rules", type=names, metavar="A,B", help="only these rules (`einnet rules` lists them)")
    one.add_argument("--states", type=int, default=5000, metavar="N", help="stop after so many expressions (default: 5000)")
    one.add_argument("--why-not", metavar="NAME", help="instead: what keeps a rule or a vendor operator from applying to each scope")
    one.add_argument("--json", metavar="FILE", help="write the tree as JSON; - is standard output")
    one.set_defaults(run=derive)

    one = commands.add_parser("rules", help="list the derivation rules")
    one.add_argument("--json", metavar="FILE", help="write them as JSON; - is standard output")
    one.set_defaults(run=rules)

    one = commands.add_parser("check", help="prove every step of a derivation in a .ein file, or of all that a stored program stands on")
    one.add_argument("file", metavar="FILE.ein|OUT.einnet", help="the derivation, or a program for one size; - reads standard input")
    one.add_argument("--json", metavar="FILE", help="write the proofs as JSON; - is standard output")
    one.set_defaults(run=check)


def derive(options: argparse.Namespace) -> int:
    """Print the derivation tree."""
    from einnet.api.derive import derive as derive_tree
    from einnet.evidence.pages.proof_text import tree

    text = expression_text(options.expression)
    if options.why_not:
        return derive_why_not(text, options)
    found = derive_tree(text, options.max_depth, rules=options.rules, most=options.states)
    if options.json:
        write_json(options.json, tree_data(found))
    if options.json != "-":
        for line in tree([s.parent for s in found], [label(s) for s in found]):
            print(line)
        print(f"\n{len(found)} expressions, {len(found.forms)} ways to run the first. Vendor operators reached:")
        for operator in operators(found):
            print(f"  {operator}")
    return 0


def expression_text(subject: str) -> str:
    """The expression that is named; of a derivation's file the one that it starts from."""
    text = subject_text(subject)
    if Path(subject).suffix != ".ein":
        return text
    from einnet.derivation import einfile

    return str(einfile.parse(text).derivation.start)


def derive_why_not(text: str, options: argparse.Namespace) -> int:
    """Print what a rule or an operator does at each scope of an expression, and what stands against it."""
    from einnet.evidence.pages.why import why_not_expression
    from einnet.evidence.pages.why_lines import place_lines
    from einnet.expr.notation.text import parse

    found = why_not_expression(parse(text), options.why_not)
    if options.json:
        write_json(options.json, found)
    if options.json != "-":
        show("\n".join(line for place in found for line in place_lines(place)))
    return 0


def label(state: State) -> str:
    """One state in the tree."""
    how = f"{state.step.rule} {state.step.parameters}: " if state.step else ""
    return f"#{state.number} {how}{state.expression.text()}"


def operators(found: DerivationTree) -> list[str]:
    """The vendor operators that some form holds, each once."""
    return list(dict.fromkeys(o for form in found.forms for o in form.operators())) or ["none"]


def tree_data(found: DerivationTree) -> dict[str, object]:
    """The tree as plain data."""
    states = [
        {
            "number": s.number,
            "depth": s.depth,
            "parent": None if s.parent < 0 else s.parent,
            "rule": s.step.rule if s.step else None,
            "parameters": s.step.parameters if s.step else None,
            "path": list(s.step.path) if s.step else None,
            "kind": s.step.kind if s.step else None,
            "expression": s.expression.text(),
            "key": str(s.expression.key),
        }
        for s in found
    ]
    return {"states": states, "forms": [{"operators": f.operators(), "expression": f.tree.text(), "steps": len(f.steps)} for f in found.forms]}


def rules(options: argparse.Namespace) -> int:
    """Print the rules in search order."""
    from einnet.derivation.rules import RULES

    if options.json:
        write_json(options.json, [{"name": r.name, "equation": r.equation, "guard": r.guard, "class": r.kind, "family": r.family} for r in RULES])
    if options.json != "-":
        for r in RULES:
            print(f"{r.name}   [{r.family}, {r.kind}]\n    {r.equation}\n    if {r.guard}\n")
    return 0


def check(options: argparse.Namespace) -> int:
    """Print a proof for every step. CertificateError (exit code 1) at the first step that does not hold."""
    from einnet.derivation import einfile
    from einnet.derivation.checker import check as checker
    from einnet.evidence.certificate import Entry
    from einnet.evidence.pages.story import derivation_story
    from einnet.records import as_json

    if is_program(Path(options.file)):
        return check_program(options)
    text, title = read_text(options.file), "standard input" if options.file == "-" else Path(options.file).name
    if ranged.is_ranged(text):
        return ranged.check(options, text, title)
    try:
        file = einfile.parse(text)
        proofs = checker.check(file.derivation)
    except EinNetError as error:
        if options.json and isinstance(error, CertificateError):
            write_json(options.json, {"file": title, "passed": False, "problem": str(error), "point": getattr(error, "point", None)})
        raise type(error)(f"{title}: {error}") from error
    if options.json:
        told = derivation_story(Entry("", file.derivation, tuple(proofs), file.matches))
        write_json(options.json, {"file": title, "passed": True, **as_json(told)})
    if options.json != "-":
        for number, (step, proof) in enumerate(zip(file.derivation.steps, proofs), 1):
            print(f"{number}. {step.rule} {step.parameters}".rstrip() + f"   [{step.kind}]   {proof.method}: {proof.details}")
        print(f"{title}: {len(proofs)} steps hold")
    return 0


def check_program(options: argparse.Namespace) -> int:
    """Prove the derivations that a stored program stands on. CertificateError (exit code 1) at the first step that does not hold.

    What they have to do with a model is what `verify` looks at.
    """
    from einnet.api.load import load_one
    from einnet.derivation.checker import check as checker

    stored, found = load_one(options.file), []
    for number, entry in enumerate(stored.certificate.entries, 1):
        try:
            proofs = checker.check(entry.derivation)
        except CertificateError as error:
            if options.json:
                write_json(options.json, {"file": str(options.file), "passed": False, "derivation": number, "problem": str(error)})
            raise CertificateError(f"{options.file}: derivation {number}: {error}") from error
        found.append({"from": entry.derivation.start.text(), "steps": len(proofs), "methods": [p.method for p in proofs]})
    if options.json:
        write_json(options.json, {"file": str(options.file), "passed": True, "derivations": found})
    if options.json != "-":
        for number, told in enumerate(found, 1):
            print(f"derivation {number}: {told['steps']} steps hold, from {told['from']}")
        print(f"{options.file}: {len(found)} derivations hold; whether they start from a model's expressions: einnet verify MODEL {options.file}")
    return 0
