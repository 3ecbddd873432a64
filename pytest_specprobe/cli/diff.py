"""``specprobe diff``: what differs between two drafters, by their files alone."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.foreign import json_text, printable

if TYPE_CHECKING:
    from pytest_specprobe.checkpoint.diff import Difference


def add(verbs: Verbs) -> None:
    """Add the verb."""
    diff = verbs.add_parser(
        "diff",
        help="compare two drafters: mapping, head, config, tensors",
        description="Compare two drafters, B taken as made from A. Exit 0 without errors, 1 if B's head follows A's "
        "mapping although B has another, 2 for unusable arguments.",
    )
    diff.add_argument("a", type=Path, metavar="A", help="directory of a drafter")
    diff.add_argument("b", type=Path, metavar="B", help="directory of another one")
    diff.add_argument("--json", action="store_true", help="print JSON (schema diff.schema.json)")
    diff.set_defaults(run=_diff)


def _diff(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.checkpoint.diff import diff
    from pytest_specprobe.findings import failed

    difference = diff(arguments.a, arguments.b)
    print(json_text(difference.to_json(), indent=2) if arguments.json else printable("\n".join(_lines(difference))))
    return int(bool(failed(difference.findings)))


def _lines(d: "Difference") -> list[str]:
    lines = [
        f"mapping  {d.differing:,} of {d.entries:,} entries differ",
        f"tokens   {d.shared_tokens:,} shared, {d.only_a:,} only in A, {d.only_b:,} only in B",
        f"head     {d.head}",
        "tensors  " + ", ".join(f"{count} {name.replace('_', ' in ')}" for name, count in d.tensors.items()),
    ]
    lines += [f"config   {key}: {_short(old)} -> {_short(new)}" for key, (old, new) in d.config.items()]
    return [*lines, *(f.line() for f in d.findings if f.status == "fail")]


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
