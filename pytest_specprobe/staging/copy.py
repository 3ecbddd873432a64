"""A copy of a file with bytes of its own, so that no write through it reaches the source.

A hard link is the source's own inode: a write or a change of its mode is one to the source. A write follows a
symbolic link. Permissions stop neither for root, which is who runs in a container. So a file is cloned: where the
file system can (Btrfs, XFS, ZFS), both share their blocks until one is written; elsewhere the bytes are copied.
"""

import fcntl
import hashlib
import os
from pathlib import Path

from pytest_specprobe.checkpoint.header import open_regular

_FICLONE = 0x40049409  # linux/fs.h
_PIECE = 4 << 20


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, mode 0600."""
    with os.fdopen(_new(path), "wb") as file:
        file.write(data)


def copy_new(source: Path, copy: Path) -> str:
    """Copy a file to a path that is not there yet, mode 0600; return the SHA-256 (hex) of the bytes that were copied.

    :raises CheckpointError: if the source cannot be opened, or is no regular file.
    :raises OSError: if the copy cannot be made.
    """
    total = hashlib.sha256()
    with (
        open_regular(source, culprit="drafter-file") as (file, _),
        os.fdopen(_new(copy), "r+b", buffering=0) as target,
    ):
        cloned = _clone(file.fileno(), target.fileno())
        reader = target if cloned else file
        while piece := reader.read(_PIECE):
            total.update(piece)
            if not cloned:
                _write_all(target.fileno(), piece)
    return total.hexdigest()


def _new(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
