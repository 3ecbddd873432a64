"""The table of docs/checks.md; ``python -m pytest_specprobe.checkpoint.table > docs/checks.md`` makes it anew."""

import sys
from itertools import groupby

from pytest_specprobe.checkpoint.check import Check
from pytest_specprobe.checkpoint.inspect import CHECKS

_HEAD = """# Static checks

What `specprobe inspect DRAFTER [--target TARGET]` asks of a drafter's files, and what each fault does to a running
server. Made from the checks themselves (`python -m pytest_specprobe.checkpoint.table > docs/checks.md`), not by hand.

An *error* makes the exit code 1, a *warning* is a hint, an *info* a fact worth knowing. Where one fault breaks many
checks, its consequences are folded into it: the last column names the causes that a check is folded into.
"""
_COLUMNS = ("check", "severity", "culprit", "must hold", "what breaking it does", "next", "folded into")


def markdown() -> str:
    """Return the whole document: one table a room, checks in the order in which they run."""
    parts = [_HEAD]
    for room, checks in groupby(sorted(CHECKS, key=_room), key=_room):
        parts.append(f"\n## {room}\n")
        parts += [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
        parts += [_row(_cells(check)) for check in checks]
    return "\n".join(parts) + "\n"


def _room(check: Check) -> str:
    return check.id.partition(".")[0]


def _cells(check: Check) -> list[str]:
    causes = ", ".join(f"`{cause}`" for cause in check.follows)
    return [f"`{check.id}`", check.severity, check.culprit, check.asks, check.why, check.fix, causes]


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
