"""Runs the forger: a program of another user that poses as every server that is being booted."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(__file__).with_name("forger.py")
NOBODY = "65534"


class Forger:
    """What a forger took and was sent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def ports(self) -> list[int]:
        return [int(line) for line in (self._folder / "ports").read_text().split()]

    @property
    def heard(self) -> bytes:
        return (self._folder / "heard").read_bytes()


@contextmanager
def forging(folder: Path, *, only: str = "") -> Iterator[Forger]:
    """Run a forger until the block ends, as another user where this one may start such a process.

    :param only: text in the command lines of the servers that it poses as.
    """
    folder.mkdir()
    user = NOBODY if os.geteuid() == 0 else str(os.geteuid())
    process = subprocess.Popen([sys.executable, str(PROGRAM), str(folder), user, only])
    try:
        deadline = time.monotonic() + 30
        while not (folder / "ready").exists() or not (folder / "ready").read_bytes():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield Forger(folder)
    finally:
        process.kill()
        process.wait()
