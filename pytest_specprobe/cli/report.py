"""``specprobe report``: render a report again, from its file alone."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from pytest_specprobe.cli.parser import Verbs

_FORMATS = ("terminal", "markdown", "html", "json")


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
    from pytest_specprobe.errors import ProfileError
    from pytest_specprobe.foreign import printable
    from pytest_specprobe.report.read import incomplete, read_report, schema_text

    if arguments.schema:
        print(schema_text(), end="")
        return 0
    report = read_report(arguments.path)
    try:
        text = _rendered(report, arguments)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise incomplete(Path(report["path"])) from error
    if arguments.format != "terminal":  # which has colours of its own, and checks every other text
        text = printable(text)
    if arguments.output is None:
        print(text)
        return 0
    if arguments.output.is_symlink() and not arguments.output.is_relative_to("/dev"):
        # /dev/stdout is one too; one in a working directory may be a pull request's.
        raise ProfileError(
            (f"{arguments.output} is a symbolic link to {arguments.output.readlink()}, which is not followed",),
            fix="remove the link, or name the file that it leads to",
        )
    try:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ProfileError(
            (f"{arguments.output} cannot be written: {error.strerror}",), fix="name another file"
        ) from error
    return 0


def _rendered(report: dict[str, Any], arguments: argparse.Namespace) -> str:
    from pytest_specprobe.report.read import report_of

    if arguments.format == "json":
        return json.dumps({key: value for key, value in report.items() if key != "path"}, indent=1)
    whole = report_of(report)
    if arguments.format == "html":
        from pytest_specprobe.report.render.html import page

        return page(whole)
    if arguments.format == "markdown":
        from pytest_specprobe.report.render.markdown import markdown

        return "\n".join(markdown(whole))
    from pytest_specprobe.report.render.terminal import WIDTH, summary

    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
    return "\n".join(
        summary(
            whole,
            path=report["path"],
            colour=arguments.output is None and sys.stdout.isatty(),
            width=width,
        )
    )
