"""The argument parser that every verb shares."""

import argparse
from typing import TYPE_CHECKING

from pytest_specprobe import __version__

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - the public type has no name
else:
    Verbs = object


def new_parser() -> tuple[argparse.ArgumentParser, Verbs]:
    """Return the parser and the place where groups add their verbs."""
    parser = argparse.ArgumentParser(
        prog="specprobe",
        description="Is this EAGLE-3 drafter wired right, does the target accept it, does it pay?",
    )
    parser.add_argument("--version", action="version", version=f"pytest-specprobe {__version__}")
    return parser, parser.add_subparsers(dest="verb", metavar="VERB", required=True)
