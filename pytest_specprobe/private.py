"""Files and folders of this user alone: what they say may be believed, and no other user can hold or change them.

Private is a real file or folder (no link) that this user owns and that no other user may write. Where a directory is
shared (a state directory below /tmp, a cache on a common disk), another user can be the first to put something there.
"""

import errno
import os
import stat
import tempfile
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivate(OSError):
    """A file or folder that is not this user's alone; ``strerror`` says why, ``filename`` names it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, why, str(path))


def folder(path: Path) -> None:
    """Make a folder that only this user can enter (mode 0700), or check the one that is there.

    Its parents are made as the umask says: who may write there is their owner's word.

    :raises NotPrivate: if it is a link, another user's, or may be written by others.
    :raises OSError: if it cannot be made.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    require_folder(path)


def require_folder(path: Path) -> None:
    """Check that a folder is private.

    :raises NotPrivate: if it is a link, another user's, or may be written by others.
    :raises OSError: if it is not there.
    """
    _require(path.lstat(), path, folder=True)


def require_file(path: Path) -> None:
    """Check that a file is private, and has no second name (a hard link).

    :raises NotPrivate: if it is not.
    :raises OSError: if it is not there.
    """
    _require(path.lstat(), path, folder=False)


def read(path: Path, *, limit: int) -> bytes:
    """Return the bytes of a private file. A file with a second name (a hard link) is not private.

    :raises NotPrivate: if it is not this user's alone, or larger than ``limit`` bytes.
    :raises OSError: if it cannot be read.
    """
    with os.fdopen(_open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise NotPrivate(path, f"is larger than {limit:,} bytes")
    return data


def write(path: Path, data: bytes) -> None:
    """Replace a file in one step by one of mode 0600; a link there is replaced, never followed.

    :raises OSError: if it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def open_lock(path: Path) -> int:
    """Open, or make, a private file to lock; return its descriptor. Mode 0600, so no other user can hold the lock.

    :raises NotPrivate: if it is not this user's alone.
    :raises OSError: if it cannot be opened.
    """
    return _open(path, os.O_RDWR | os.O_CREAT)


def _open(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPrivate(path, "is a symbolic link") from None
        raise
    try:
        _require(os.fstat(descriptor), path, folder=False)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require(status: os.stat_result, path: Path, *, folder: bool) -> None:
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        raise NotPrivate(path, "is a symbolic link")
    if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        raise NotPrivate(path, "is not a folder" if folder else "is not a regular file")
    if status.st_uid != os.geteuid():
        raise NotPrivate(path, f"belongs to another user (uid {status.st_uid})")
    if mode & _OTHERS_WRITE:
        raise NotPrivate(path, f"can be written by other users (mode {mode & 0o7777:04o})")
    if not folder and status.st_nlink != 1:
        raise NotPrivate(path, "has a second name (a hard link)")
