"""Read a report.json back: the rim where a file becomes a report that the renderings may trust."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeGuard, get_args

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.reading import Bounds, Unreadable, read_json
from pytest_specprobe.report.file import NAME, SCHEMA
from pytest_specprobe.report.model.base import GateResult, Model, Verdict
from pytest_specprobe.report.model.report import DrafterReport, Report

_VERDICTS = (*get_args(Verdict), None)
_GATES = (*get_args(GateResult), None)
_BOUNDS = Bounds(size=256 << 20)


def read_report(path: Path) -> dict[str, Any]:
    """Return the report in ``path``: the file itself, or a directory that holds ``report.json``.

    It has every field that the schema requires of a report and of its drafters, and their verdicts and gates are
    words of the schema; what is deeper inside is as it was found.

    :raises ProfileError: if there is none, it is no report, or it is of another schema version.
    """
    file = path / NAME if path.is_dir() else path
    try:
        report = read_json(file, _BOUNDS)
    except Unreadable as error:
        raise _unusable(file, str(error)) from error
    if not isinstance(report, dict) or "schema" not in report:
        raise _unusable(file, "is no report of pytest-specprobe")
    if report["schema"] != SCHEMA:
        raise _unusable(file, f"has schema {report['schema']!r:.40}; this version reads {SCHEMA}")
    entries = report.get("drafters")
    if not (_holds(report, Report) and isinstance(entries, list) and all(_is_entry(entry) for entry in entries)):
        raise incomplete(file)
    return {**report, "path": str(file)}


def report_of(document: Mapping[str, Any]) -> Report:
    """Return the model of a report; a field that only a later version knows is left out.

    :raises pydantic.ValidationError: a ValueError, if something in it is missing or of another kind.
    """
    return Report.model_validate({key: value for key, value in document.items() if key != "path"}, extra="ignore")


def _is_entry(entry: object) -> bool:
    return _holds(entry, DrafterReport) and entry["verdict"] in _VERDICTS and entry["gate"] in _GATES


def _holds(value: object, model: type[Model]) -> TypeGuard[dict[str, Any]]:
    """Say whether a value has every field that a model requires; JSON may have another kind of value in it."""
    required = {field.alias or name for name, field in model.model_fields.items() if field.is_required()}
    return isinstance(value, dict) and value.keys() >= required


def incomplete(file: Path) -> ProfileError:
    """Return the error of a report in which something is missing, or of another kind than it must be."""
    return _unusable(file, "is not complete")


def schema_text() -> str:
    """Return the published JSON Schema of report.json, as text."""
    return files(__package__).joinpath("schema/report.schema.json").read_text(encoding="utf-8")


def _unusable(file: Path, why: str) -> ProfileError:
    return ProfileError(
        (f"{file} {why}",),
        fix="name a report.json, or the directory of --specprobe-report (default: .specprobe); "
        "`pytest --specprobe-drafter=NAME` writes it",
    )
