"""The cache of staged directories: this user's alone, and one process at a time makes a directory in it."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout
from platformdirs import user_cache_path

from pytest_specprobe import private
from pytest_specprobe.errors import StagingError

logger = logging.getLogger(__name__)

_LOCK_PATIENCE_S = 900.0


def staged_cache() -> Path:
    """Return where this user's staged directories are; nothing is made."""
    return user_cache_path("specprobe") / "staged"


def prepare(cache: Path) -> None:
    """Make the cache, mode 0700, or take it over if it is this user's.

    An earlier version made it as the umask says, often readable by all: a private checkpoint was readable through it.

    :raises StagingError: if it is a link, another user's, or may be written by others.
    :raises OSError: if it cannot be made.
    """
    try:
        private.folder(cache)
    except private.NotPrivate as error:
        raise StagingError(
            f"the cache of staged drafters is not yours alone: {error.filename} {error.strerror}",
            culprit="machine",
            fix=f"if all that is in it is yours, `chmod 700 {cache}`; else remove it, or name a directory of your "
            "own with XDG_CACHE_HOME",
        ) from error
    cache.chmod(0o700)


def lock_of(cache: Path, name: str) -> BaseFileLock:
    """Return the lock of a staged directory of this name: whoever makes, looks at or removes one holds it."""
    return FileLock(cache / f".{name}.lock", mode=0o600)


@contextlib.contextmanager
def locked(cache: Path, name: str) -> Iterator[None]:
    """Hold the lock of a name, waiting for a process that has it.

    :raises StagingError: if another process has it for 15 minutes.
    """
    lock = lock_of(cache, name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting for another process that stages the same checkpoint (lock %s)", lock.lock_file)
        try:
            lock.acquire(timeout=_LOCK_PATIENCE_S)
        except Timeout as error:
            raise StagingError(
                f"another process has held {lock.lock_file} for {_LOCK_PATIENCE_S:.0f} s",
                culprit="machine",
                fix="wait for the other run, or end it",
            ) from error
    try:
        yield
    finally:
        lock.release()
