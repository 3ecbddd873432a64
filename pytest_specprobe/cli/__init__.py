"""The ``specprobe`` command: a module per verb, named as the verb; nothing heavy is imported before one runs."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

from pytest_specprobe.cli.parser import new_parser
from pytest_specprobe.errors import SpecprobeError

VERBS = ("inspect", "diff", "breakeven", "report", "history", "compare", "doctor", "init", "serve", "servers", "reap")
UNUSABLE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return 0 without errors, 1 with, 2 for unusable arguments or files."""
    parser, verbs = new_parser()
    for verb in VERBS:
        import_module(f"{__name__}.{verb}").add(verbs)
    for stream in (sys.stdout, sys.stderr):
        # Names of files may be no text: shown as escapes, whatever the terminal takes.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = parser.parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except SpecprobeError as error:
        print(f"specprobe {arguments.verb}: {error}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:
        # The reader (head, less) went away. Python flushes once more at exit, which must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    return code
