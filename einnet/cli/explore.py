"""The command explore: a page that shows a search, its derivations and the program that they belong to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from einnet.cli.arguments import names
from einnet.cli.files import check_writable, is_program, subject_text, write_whole
from einnet.errors import UsageError


def register(commands: Any) -> None:
    """Add the command."""
    one = commands.add_parser("explore", help="write an HTML page that shows a search, its derivations and the program")
    one.add_argument(
        "subject", metavar="OUT.einnet|FILE.ein|EXPR", help="a program, a derivation, an expression or a file with one; - is standard input"
    )
    one.add_argument("-o", "--output", metavar="PAGE.html", type=Path, default=Path("explore.html"), help="where to write (default: explore.html)")
    one.add_argument("--max-depth", type=int, metavar="N", help="most explorative steps (default: 3, of FILE.ein 2, of a program the optimizer's)")
    one.add_argument("--states", type=int, metavar="N", help="stop after so many states (default: 20000, of a program the optimizer's)")
    one.add_argument("--time-budget", type=float, default=60.0, metavar="SECONDS", help="for the search (default: 60)")
    one.add_argument("--rules", type=names, metavar="A,B", help="only these rules (`einnet rules` lists them)")
    one.add_argument("--everything", action="store_true", help="visit scopes of any arithmetic intensity and size, too")
    one.set_defaults(run=explore)


def explore(options: argparse.Namespace) -> int:
    """Write the page and say what is in it."""
    from einnet.evidence.pages.page import page
    from einnet.evidence.report.plain import plain
    check_writable(options.output)
    data = found(options)
    text = page(plain(data), program_view(data))
    write_whole(options.output, lambda file: file.write(text.encode()))
    counts = [len(g["state"]["text"]) for g in data["graphs"]]
    searched = f"{len(counts)} searches, " if len(counts) > 1 else ""
    print(f"{searched}{sum(counts)} states, {sum(len(g['derivations']) for g in data['graphs'])} proven derivations -> {options.output}")
    return 0


def program_view(data: dict[str, Any]) -> str:
    """The view of the program that the data are of, if they are of one."""
    from einnet.evidence.pages import card, report_page
    from einnet.evidence.pages.story_schema import CardStory

    if "report" not in data:
        return ""
    if isinstance(data["program"], CardStory):
        return card.program_html(data["program"])
    return report_page.program_html(data["report"], data["program"], linked=True)


def found(options: argparse.Namespace) -> dict[str, Any]:
    """The data of the page, for whatever the subject is."""
    from einnet.api.load import load_one
    from einnet.evidence.pages.explore_page import explore_derivation, explore_expression, explore_program

    path = Path(options.subject)
    if path.suffix == ".einnet" or is_program(path):
        if options.rules or options.everything:
            raise UsageError("--rules and --everything are for an expression; the search of a program is the one that the optimizer made")
        return explore_program(load_one(path), options.max_depth, options.states, options.time_budget)
    states = 20_000 if options.states is None else options.states
    text = subject_text(options.subject)
    if path.suffix == ".ein":
        return explore_derivation(text, 2 if options.max_depth is None else options.max_depth, states, options.time_budget)
    depth = 3 if options.max_depth is None else options.max_depth
    return explore_expression(text, depth, states, options.time_budget, options.rules, options.everything)

