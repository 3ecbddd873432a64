"""Keep a run as a record: ``python -m docs.build_record NAME DIR --command "pytest ..."``, DIR its report folder.

report.json and history.jsonl are copied into docs/records/NAME as they are, but for the paths of the machine, which
become a reader's (``--path OLD=NEW`` names more of them, for a run on another machine). record.md is written where
there is none yet, and is then anybody's to extend; its figures, like those of README and docs, are quoted from the
raw files (docs/figures.py) and put right at the end. Files beside them are kept: logs, benchmark results, scripts'
output.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docs.figures import RECORDS, ROOT
from docs.figures import main as fill
from pytest_specprobe.report.file import NAME as REPORT
from pytest_specprobe.report.store.history import NAME as HISTORY

READER = "/home/you"
_MACHINE = (
    ("when", "created"),
    ("specprobe", "tool.version"),
    ("CPU", "machine.cpu"),
    ("cores", "machine.cores"),
    ("GPUs", "machine.gpus"),
    ("driver", "machine.gpu_driver"),
    ("system", "machine.system"),
    ("Python", "machine.python"),
)
_ROWS = (
    ("accept length", "acceptance.accept_length"),
    ("tok/s", "throughput.tok_per_s"),
    ("baseline tok/s", "throughput.baseline_tok_per_s"),
    ("speedup", "throughput.speedup"),
    ("round time", "break_even.round_s as ms"),
    ("break-even accept length", "break_even.accept_length"),
)


def readers(text: str, others: Sequence[tuple[str, str]] = ()) -> str:
    """Return the text with a reader's paths in place of a machine's, longest first."""
    here = (
        *others,
        (str(ROOT), f"{READER}/pytest-specprobe"),
        (str(Path(sys.executable).parent), f"{READER}/pytest-specprobe/.venv/bin"),
        (str(Path.home()), READER),
    )
    for old, new in sorted(here, key=lambda pair: -len(pair[0])):
        text = re.sub(rf"{re.escape(old)}(?![\w.-])", new, text)
    return text


def plain(report: Any) -> Any:
    """Return the same report with the kernel's name cut to its version."""
    report["machine"]["system"] = re.sub(r"(\d+\.\d+)\S*", r"\1", report["machine"]["system"])
    return report


def page(name: str, report: Any, *, command: str) -> Iterator[str]:
    """Yield the lines of a new record.md."""
    yield from (f"# {name}", "", "```bash", command, "```", "", "Raw: [report.json](report.json).", "")
    told = [(label, path) for label, path in _MACHINE if _measured(report, path)]
    yield from (f"* {label}: <!-- = {name}:{path} --><!-- . -->" for label, path in told)
    for entry in report["drafters"]:
        at = f"{name}:{entry['name']}"
        yield from ("", f"## {entry['name']} on {entry['target']}: {entry['verdict'] or 'no verdict'}", "")
        if entry["server"] and entry["server"]["version"]:
            torch = f", torch <!-- = {at}.server.torch --><!-- . -->" if entry["server"].get("torch") else ""
            yield (
                f"SGLang <!-- = {at}.server.version --><!-- . --> on <!-- = {at}.server.device --><!-- . -->{torch}."
            )
        rows = [(label, path) for label, path in _ROWS if _measured(entry, path.partition(" as ")[0])]
        if rows:
            yield from ("", "| what | value [95 % interval] |", "| --- | --- |")
        yield from (f"| {label} | <!-- = {at}.{path} --><!-- . --> |" for label, path in rows)


def _measured(found: Any, path: str) -> bool:
    """Tell whether there is anything at this path of two steps, or of one."""
    room, _, name = path.partition(".")
    return bool(found[room]) and (not name or found[room].get(name) is not None)


def build(name: str, folder: Path, *, command: str, paths: Sequence[tuple[str, str]] = ()) -> None:
    """Write the record's files.

    :raises OSError: if the run's report is not there, or the record cannot be written.
    """
    home = RECORDS / name
    home.mkdir(parents=True, exist_ok=True)
    report = plain(json.loads(readers((folder / REPORT).read_text(encoding="utf-8"), paths)))
    # in one line, which takes a fifth less: every clone carries it
    (home / REPORT).write_text(json.dumps(report, separators=(",", ":")) + "\n", encoding="utf-8")
    if (folder / HISTORY).exists():
        (home / HISTORY).write_text(readers((folder / HISTORY).read_text(encoding="utf-8"), paths), encoding="utf-8")
    if not (home / "record.md").exists():
        (home / "record.md").write_text("\n".join(page(name, report, command=command)) + "\n", encoding="utf-8")


def main() -> None:
    """Build the record, then put every quoted figure right."""
    parser = argparse.ArgumentParser(prog="python -m docs.build_record")
    parser.add_argument("name", help="folder below docs/records")
    parser.add_argument("folder", type=Path, help="report folder of the run")
    parser.add_argument("--command", required=True, help="what was typed")
    parser.add_argument("--path", action="append", default=[], metavar="OLD=NEW", help="a path to exchange")
    arguments = parser.parse_args()
    paths = [(old, new) for old, _, new in (pair.partition("=") for pair in arguments.path)]
    build(arguments.name, arguments.folder, command=arguments.command, paths=paths)
    fill()


if __name__ == "__main__":
    main()
