"""The folder of a checkpoint: the names in it, and the JSON files that say what it is. Nothing is written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_specprobe.checkpoint.files.header import open_regular, shown
from pytest_specprobe.errors import FILE_BAD_JSON, FILE_LFS_POINTER, FILE_MISSING, CheckpointError, Culprit
from pytest_specprobe.reading import Bounds, Unreadable, parse_json, pieces

CONFIG = "config.json"
MAX_CONFIG_BYTES = 4 << 20
MAX_LISTED = 10_000

Config = Mapping[str, Any]


def require_directory(path: Path, *, culprit: Culprit) -> None:
    """Raise :class:`CheckpointError` unless ``path`` is a directory that can be listed."""
    try:
        found = path.is_dir()
        if found:
            os.scandir(path).close()
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{shown(path)} cannot be read: {error}", culprit=culprit, fix="check the path and its permissions"
        ) from error
    if not found:
        raise CheckpointError(
            f"there is no directory {shown(path)}",
            culprit=culprit,
            finding_id=FILE_MISSING,
            fix="give the directory that holds config.json and the safetensors files",
        )


def list_files(path: Path) -> tuple[str, ...]:
    """Return the names in a directory, sorted, at most ``MAX_LISTED``; odd bytes come as surrogate escapes."""
    with os.scandir(path) as entries:
        names = [entry.name for entry, _ in zip(entries, range(MAX_LISTED), strict=False)]
    return tuple(sorted(names))


def read_json(path: Path, *, limit: int, culprit: Culprit) -> dict[str, Any]:
    """Return one JSON object of at most ``limit`` bytes; raise :class:`CheckpointError` for anything else."""
    with open_regular(path, culprit=culprit) as (file, size):
        body = b"" if size > limit else b"".join(pieces(file, limit + 1))
    if max(size, len(body)) > limit:
        raise bad_json(path, culprit, f"{size:,} bytes is beyond the {limit:,} that are read")
    if body.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            f"{shown(path)} is a Git LFS pointer",
            culprit=culprit,
            finding_id=FILE_LFS_POINTER,
            fix="run `git lfs pull` in the checkpoint's repository",
        )
    try:
        # Some real configs say Infinity, and a staged copy says it too.
        value = parse_json(body, Bounds(size=limit), numbers="any")
    except Unreadable as error:
        raise bad_json(path, culprit, f"it {error}") from error
    if not isinstance(value, dict):
        raise bad_json(path, culprit, "not an object")
    return value


def read_config(path: Path, *, culprit: Culprit) -> dict[str, Any]:
    """Return a ``config.json``; raise :class:`CheckpointError` if it is missing or no JSON object."""
    return read_json(path, limit=MAX_CONFIG_BYTES, culprit=culprit)


def bad_json(path: Path, culprit: Culprit, what: str) -> CheckpointError:
    """Return the error of a file that is no usable JSON."""
    return CheckpointError(
        f"{shown(path)} is not usable JSON: {what}",
        culprit=culprit,
        finding_id=FILE_BAD_JSON,
        fix="restore the file",
    )
