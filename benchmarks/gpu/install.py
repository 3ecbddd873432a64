"""Installs what ``benchmarks.gpu.pack`` packed: ``python benchmarks/gpu/install.py PIECES SITE``; needs nothing else.

Joins PIECES/site.*, unpacks them into SITE and compiles the modules there: SGLang starts several processes, and each
compiles every module it imports where that was not done before (27 s of every boot on one host).
"""

import compileall
import io
import lzma
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path


class _Joined(io.RawIOBase):
    """Several files read as one."""

    def __init__(self, paths: list[Path]) -> None:
        self._chunks = self._read(paths)
        self._left = b""

    @staticmethod
    def _read(paths: list[Path]) -> Iterator[bytes]:
        for path in paths:
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    yield chunk

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._left = self._left or next(self._chunks, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def main() -> None:
    """Unpack and compile."""
    pieces, site = Path(sys.argv[1]), Path(sys.argv[2])
    start = time.monotonic()
    joined = io.BufferedReader(_Joined(sorted(pieces.glob("site.*"))), 1 << 20)
    with lzma.open(joined) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
        archive.extractall(site, filter="data")
    sys.stdout.write(f"unpacked after {time.monotonic() - start:.0f} s\n")
    compileall.compile_dir(site, quiet=2, workers=0)
    sys.stdout.write(f"compiled after {time.monotonic() - start:.0f} s\n")


if __name__ == "__main__":
    main()
