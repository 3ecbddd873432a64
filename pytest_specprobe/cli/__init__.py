"""The ``specprobe`` command. Each module of ``GROUPS`` adds its verbs; nothing heavy is imported before one runs."""

import sys
from collections.abc import Sequence
from importlib import import_module

from pytest_specprobe.cli.parser import new_parser
from pytest_specprobe.errors import SpecprobeError

GROUPS = ("checkpoint", "decide", "report")
UNUSABLE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return 0 without errors, 1 with, 2 for unusable arguments or files."""
    parser, verbs = new_parser()
    for group in GROUPS:
        import_module(f"{__name__}.{group}").add(verbs)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except SpecprobeError as error:
        print(f"specprobe {arguments.verb}: {error}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:
        # The reader (head, less) went away; Python would complain once more when it closes stdout.
        sys.stderr.close()
        return UNUSABLE
