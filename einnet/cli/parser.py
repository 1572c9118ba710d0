"""The argument parser: one module for each family of commands registers its own."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from einnet.cli import artifacts, bench, explore, inspect, optimize, profile, quantize, system


class Parser(argparse.ArgumentParser):
    """Wrong arguments are one line on the error stream and exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


class Version(argparse.Action):
    """Prints the version, which is looked up only then."""

    def __call__(self, *_: object) -> NoReturn:
        import einnet

        print(f"einnet {einnet.__version__}")
        raise SystemExit(0)


def build_parser() -> Parser:
    """All commands; parsing sets `run` to the function that takes the parsed options and returns the exit code."""
    parser = Parser(prog="einnet", description="Derive, verify and run faster tensor programs.", allow_abbrev=False)
    parser.add_argument("--version", action=Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for family in (optimize, quantize, artifacts, bench, profile, explore, inspect, system):
        family.register(commands)
    return parser
