"""Remove staged directories that nobody needs any more.

Ours are only those that this tool made: a directory of the cache with a name it gives, whose manifest lists exactly
the files that are in it. Anything else is left as it is, and so is a cache that is not this user's alone.
"""

import re
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from filelock import Timeout

from pytest_specprobe import private
from pytest_specprobe.staging.cache import lock_of
from pytest_specprobe.staging.stage import MANIFEST, read_manifest

_NAME = re.compile(r"[A-Za-z0-9_-]+-[0-9a-f]{20}")
_HALF_MADE = re.compile(r"\.([A-Za-z0-9_-]+-[0-9a-f]{20})\.[A-Za-z0-9_]+\.tmp")
_UNUSED_S = 14 * 86400.0
_SOURCE_GONE_S = 3600.0


def prune(cache: Path, *, in_use: Collection[str] = (), now: float | None = None) -> tuple[Path, ...]:
    """Remove what dead runs left in a cache of staged directories, and return it.

    Removed are half-made directories of killed runs, staged ones that no run asked for in 14 days, and those whose
    source is gone and that no run asked for in an hour (their copies take its room on the disk).

    :param in_use: staged directories that a running server reads; never removed.
    :param now: seconds since the epoch; None: now.
    """
    moment = time.time() if now is None else now
    removed = []
    try:
        private.require_folder(cache)
    except OSError:
        return ()
    for path in sorted(cache.glob("*")):
        half_made = _HALF_MADE.fullmatch(path.name)
        if path.is_symlink() or not path.is_dir() or str(path) in in_use:
            continue
        if half_made is None and not (_ours(path) and _idle(path, moment)):
            continue
        lock = lock_of(cache, half_made[1] if half_made else path.name)
        try:
            with lock.acquire(timeout=0):
                if half_made or _idle(path, moment):
                    shutil.rmtree(path, ignore_errors=True)
        except (Timeout, OSError):
            continue
        if not path.exists():
            removed.append(path)
    return tuple(removed)


def _ours(path: Path) -> bool:
    manifest = _manifest(path)
    if manifest is None or not _NAME.fullmatch(path.name):
        return False
    try:
        private.require_folder(path)
        return {file.name for file in path.iterdir()} == {*manifest.files, MANIFEST}
    except OSError:
        # Another run has just removed it.
        return False


def _idle(path: Path, now: float) -> bool:
    manifest = _manifest(path)
    if manifest is None:
        return False
    try:
        idle_s = now - path.stat().st_mtime
        return idle_s > (_UNUSED_S if manifest.source.exists() else _SOURCE_GONE_S)
    except OSError:
        # Removed by another run a moment ago, or a source that no file can be called.
        return False


class _Manifest(NamedTuple):
    source: Path
    files: frozenset[str]


def _manifest(path: Path) -> _Manifest | None:
    try:
        found = read_manifest(path)
        return _Manifest(Path(found["source"]), frozenset(found["files"]))
    except (ValueError, KeyError, TypeError):
        return None
