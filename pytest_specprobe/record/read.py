"""Read a report.json back: the rim where a file becomes a report that the renderings may trust."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.record.report import NAME, SCHEMA

_ENTRY = frozenset({
    "name", "target", "verdict", "gate", "gate_checks", "reasons", "next", "phases", "checks", "server", "workload",
    "acceptance", "throughput", "break_even",
})  # fmt: skip
_LARGEST = 256 * 2**20


def read_report(path: Path) -> dict[str, Any]:
    """Return the report in ``path``: the file itself, or a directory that holds ``report.json``.

    :raises ProfileError: if there is none, it is no report, or it is of another schema version.
    """
    file = path / NAME if path.is_dir() else path
    try:
        if file.stat().st_size > _LARGEST:
            raise _unusable(file, f"is larger than {_LARGEST // 2**20} MiB")
        report = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(file, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise _unusable(file, "is not JSON") from error
    if not isinstance(report, dict) or "schema" not in report:
        raise _unusable(file, "is no report of pytest-specprobe")
    if report["schema"] != SCHEMA:
        raise _unusable(file, f"has schema {report['schema']!r}; this version reads {SCHEMA}")
    entries = report.get("drafters")
    if not isinstance(entries, list) or not all(isinstance(e, dict) and e.keys() >= _ENTRY for e in entries):
        raise _unusable(file, "is not complete")
    return {**report, "path": str(file)}


def schema_text() -> str:
    """Return the published JSON Schema of report.json, as text."""
    return files(__package__).joinpath("schema/report.schema.json").read_text(encoding="utf-8")


def _unusable(file: Path, why: str) -> ProfileError:
    return ProfileError(
        (f"{file} {why}",),
        fix="name a report.json, or the directory of --specprobe-report (default: .specprobe); "
        "`pytest --specprobe-drafter=NAME` writes it",
    )
