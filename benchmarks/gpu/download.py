"""Fetches the wheels of a GPU host: ``python3.12 -m benchmarks.gpu.download WHEELS``, where there is a network.

Takes every wheel that the host can load: CPython 3.12 on x86_64, with its C library or an older one. Each project
names the C library it needs in its own way (``manylinux_2_31``), so the names are counted down, not listed.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_GLIBC_MINOR = 39  # of the host: Ubuntu 24.04
_OLDEST_MINOR = 5
_LEGACY = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")  # of 2.17, 2.12 and 2.5
PINS = Path(__file__).with_name("wheels.txt")


def platforms() -> tuple[str, ...]:
    """Return pip's names of what the host can load, newest C library first."""
    counted = (f"manylinux_2_{minor}_x86_64" for minor in range(_GLIBC_MINOR, _OLDEST_MINOR - 1, -1))
    return (*counted, *_LEGACY)


def command(wheels: Path, *what: str) -> list[str]:
    """Return the command that downloads these requirements and nothing that they need in turn."""
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    words += ["--python-version", "3.12", "--implementation", "cp"]
    words += [word for name in platforms() for word in ("--platform", name)]
    return [*words, "-d", str(wheels), *what]


def main(words: Sequence[str]) -> int:
    """Download all pins; the exit code is pip's."""
    if len(words) != 1:
        raise SystemExit("usage: python3.12 -m benchmarks.gpu.download WHEELS")
    return subprocess.run(command(Path(words[0]), "-r", str(PINS)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
