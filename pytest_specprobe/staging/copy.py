"""A copy of a file with bytes of its own, so that no write through it reaches the source.

A hard link is the source's own inode: a write or a change of its mode is one to the source. A write follows a
symbolic link. Permissions stop neither for root, which is who runs in a container. So a file is cloned: where the
file system can (Btrfs, XFS, ZFS), both share their blocks until one is written; elsewhere the bytes are copied.
"""

import fcntl
import hashlib
import os
from collections.abc import Collection
from io import FileIO
from pathlib import Path

from pytest_specprobe.reading import open_regular

_FICLONE = 0x40049409  # linux/fs.h
_PIECE = 1 << 20


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, mode 0600."""
    with os.fdopen(_new(path), "wb") as file:
        file.write(data)


def copy_new(source: Path, copy: Path) -> str:
    """Copy a file to a path that is not there yet, mode 0600; return the SHA-256 (hex) of the bytes that were copied.

    :raises Unreadable: if the source cannot be opened, or is no regular file.
    :raises OSError: if the copy cannot be made.
    """
    total, piece = hashlib.sha256(), memoryview(bytearray(_PIECE))
    with open_regular(source) as (original, _), os.fdopen(_new(copy), "r+b", buffering=0) as file:
        cloned = _clone(original.fileno(), file.fileno())
        while length := (file if cloned else original).readinto(piece):
            total.update(piece[:length])
            if not cloned:
                _write_all(file.fileno(), piece[:length])
    return total.hexdigest()


def same_bytes(copy: Path, source: Path, *, zeroed: Collection[tuple[int, int]] = ()) -> bool:
    """Tell whether a copy holds the bytes of its source, and zeros in the ranges ``[begin, end)`` of ``zeroed``.

    :raises Unreadable: if either cannot be opened, or is no regular file.
    :raises OSError: if either cannot be read.
    """
    wanted, found = bytearray(_PIECE), bytearray(_PIECE)
    with open_regular(source) as (original, size), open_regular(copy) as (file, length):
        if size != length:
            return False
        for at in range(0, size, _PIECE):
            count = min(_PIECE, size - at)
            if not (_fill(original, wanted, count) and _fill(file, found, count)):
                return False
            for begin, end in zeroed:
                first, last = max(begin - at, 0), min(end - at, count)
                if first < last:
                    wanted[first:last] = bytes(last - first)
            # Whole buffers are compared in place; what is behind the last piece is of the piece before.
            if wanted != found if count == _PIECE else wanted[:count] != found[:count]:
                return False
    return True


def _fill(file: FileIO, buffer: bytearray, count: int) -> bool:
    """Read exactly ``count`` bytes; return whether there are so many."""
    view = memoryview(buffer)[:count]
    while view:
        read = file.readinto(view)
        if not read:
            return False
        view = view[read:]
    return True


def _new(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]
