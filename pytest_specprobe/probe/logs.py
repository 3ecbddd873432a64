"""Where the logs of one run go: a folder that no other run has, so that two runs in one directory keep apart."""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
_KEPT = 10


class RunLogs:
    """The logs of one run, in a folder below ``root`` that is named by its time (UTC) and by chance.

    The folder is locked as long as the run lives, however that ends. The last ten folders stay, and of older ones
    those whose run still goes on.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        self._lock: int | None = None

    def file(self, name: str) -> Path:
        """Return the path of a log; the first one makes the folder and removes old ones."""
        if self._lock is None:
            # What cannot be made is said by whoever writes the log.
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = _locked(self._folder)
                self._remove_old()
        return self._folder / f"{name}.log"

    def close(self) -> None:
        """Let the folder go; it stays. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _remove_old(self) -> None:
        ours = [path for path in self._root.iterdir() if _NAME.fullmatch(path.name) and not path.is_symlink()]
        for path in sorted(ours)[:-_KEPT]:
            # A running one's is locked; another run may remove the same ones at this moment.
            with contextlib.suppress(OSError):
                lock = _locked(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int:
    """Lock a directory and return its descriptor; the kernel lets go of it with this process.

    :raises OSError: if it is no directory, is locked, or the file system locks no directories.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
