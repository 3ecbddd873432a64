"""``specprobe report``: render a report again, from its file alone."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from pytest_specprobe.cli.parser import Verbs

_FORMATS = ("terminal", "json")


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "report",
        help="render a finished run again: terminal, Markdown, HTML or JSON",
        description="Render a finished run again from its report.json alone. Exit 0, or 2 for an unusable file.",
    )
    verb.add_argument(
        "path", nargs="?", type=Path, default=Path(".specprobe"), metavar="DIR|FILE",
        help="a report.json or its directory (default: .specprobe)",
    )  # fmt: skip
    verb.add_argument("--format", choices=_FORMATS, default="terminal", help="what to make (default: terminal)")
    verb.add_argument("--output", type=Path, metavar="FILE", help="write it there instead of printing it")
    verb.add_argument("--schema", action="store_true", help="print the JSON Schema of report.json and stop")
    verb.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.record.read import read_report, schema_text  # noqa: PLC0415 - only when the verb runs
    from pytest_specprobe.record.terminal import WIDTH, summary  # noqa: PLC0415

    if arguments.schema:
        print(schema_text(), end="")
        return 0
    report = read_report(arguments.path)
    if arguments.format == "json":
        text = json.dumps({key: value for key, value in report.items() if key != "path"}, indent=1)
    else:
        width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
        colour = arguments.output is None and sys.stdout.isatty()
        text = "\n".join(summary(report, colour=colour, width=width))
    if arguments.output is None:
        print(text)
    else:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0
