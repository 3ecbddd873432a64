"""Make docs/example anew from a real run: ``python -m docs.build_example DIR``, DIR being its report folder.

Paths of the machine it ran on become those of a reader, and the screen in the tutorial becomes that of the new run.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from pytest_specprobe.record.history import NAME as HISTORY
from pytest_specprobe.record.read import read_report
from pytest_specprobe.record.report import NAME as REPORT
from pytest_specprobe.record.terminal import summary

DOCS = Path(__file__).parent
ROOT = DOCS.parent
_BLOCK = re.compile(r"(?<=\$ specprobe report \$EXAMPLE\n).*?(?=^```)", re.DOTALL | re.MULTILINE)


def readers(text: str) -> str:
    """Return the text with a reader's paths in place of this machine's."""
    for here, there in (
        (str(ROOT), "/home/you/pytest-specprobe"),
        (str(Path(sys.executable).parent), "/home/you/pytest-specprobe/.venv/bin"),
        (str(Path.home()), "/home/you"),
    ):
        text = text.replace(here, there)
    return text


def plain(value: Any) -> Any:
    """Return the same report with the kernel's name cut to its version."""
    value["machine"]["system"] = re.sub(r"(\d+\.\d+)\S*", r"\1", value["machine"]["system"])
    return value


def main(folder: Path) -> None:
    """Write report, history and the tutorial's screen."""
    example = DOCS / "example"
    example.mkdir(exist_ok=True)
    report = plain(json.loads(readers((folder / REPORT).read_text(encoding="utf-8"))))
    (example / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (example / HISTORY).write_text(readers((folder / HISTORY).read_text(encoding="utf-8")), encoding="utf-8")
    screen = "\n".join(summary({**read_report(example), "path": "HOME/.specprobe/report.json"})) + "\n"
    tutorial = DOCS / "tutorial.md"
    tutorial.write_text(_BLOCK.sub(lambda _: screen, tutorial.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
