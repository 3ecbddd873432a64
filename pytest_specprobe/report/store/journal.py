"""Append-only files of JSON lines, safe for several writers and for a writer that dies.

Invariant: a line is written whole under a lock, is never changed, and one bad line costs that line alone.
"""

import errno
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from pytest_specprobe.reading import Bounds, Unreadable, parse_json, read_bytes

_LOCK_S = 60.0
_LINK = "is a symbolic link, which is not followed"
_LARGEST_FILE = 256 << 20
_LINE = Bounds(size=16 << 20)


@dataclass(frozen=True, slots=True)
class Journal:
    """The readable lines of a file, oldest first, and why others were left out."""

    lines: tuple[Mapping[str, Any], ...]
    skipped: tuple[str, ...]


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Add one record, which names its ``schema``; waits for other writers.

    A line that a killed writer left without its end is closed first, so that it spoils nothing but itself.

    :raises OSError: if the file cannot be written; it, or its lock, is a symbolic link (a repository can hold one).
    :raises filelock.Timeout: if another writer holds the lock for a minute.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    lock = path.with_name(f"{path.name}.lock")
    for place in (path, lock):
        if place.is_symlink():
            raise OSError(errno.ELOOP, _LINK, str(place))
    with FileLock(lock, timeout=_LOCK_S), _open(path) as file:
        if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _open(path: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "a+b")


def read(path: Path, *, schema: int) -> Journal:
    """Return the records of ``path`` that have this schema; a file that is not there is an empty one.

    :raises Unreadable: if the file is there and cannot be read; the message names it.
    """
    lines, skipped = [], []
    if path.is_symlink():
        raise Unreadable(f"{path} {_LINK}")
    try:
        raw = read_bytes(path, limit=_LARGEST_FILE)
    except Unreadable as error:
        if not error.missing:
            raise Unreadable(f"{path} {error}") from error
        raw = b""
    for at, part in enumerate(raw.split(b"\n"), 1):
        if not part.strip():
            continue
        try:
            record = parse_json(part, _LINE)
        except Unreadable as error:
            skipped.append(f"{path}:{at} {error}")
            continue
        found = record.get("schema") if isinstance(record, dict) else None
        if found == schema:
            lines.append(record)
        else:
            skipped.append(f"{path}:{at} has schema {found!r:.40}; this version reads {schema}")
    return Journal(tuple(lines), tuple(skipped))


def read_all(paths: Sequence[Path], *, schema: int) -> Journal:
    """Return the records of several files, each distinct record once."""
    journals = [read(path, schema=schema) for path in paths]
    distinct = {json.dumps(line, sort_keys=True): line for journal in journals for line in journal.lines}
    return Journal(tuple(distinct.values()), tuple(text for journal in journals for text in journal.skipped))
