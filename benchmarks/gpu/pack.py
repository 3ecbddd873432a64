"""Packs wheels for a host without a network: ``python3.12 -m benchmarks.gpu.pack WHEELS PIECES [--piece-mb 45]``.

Installs them into a folder and leaves out what a Hopper GPU with the Triton backend never loads: FlashAttention 3
(1.1 GB of sglang-kernel), kernels for other GPUs, static libraries, symbols, data of tokenizers. 65 MB are left.
Needs pip and strip of this machine, and CPython 3.12.
"""

import argparse
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

_KERNEL = re.compile(r"^sgl_kernel/(flash_ops|infllm_ops|flashmla_ops|sm100/)")
_UNUSED = (
    "bin",
    "pycountry/locales",
    "jedi/third_party/typeshed",
    "mistral_common/data",
    "xgrammar/lib/libxgrammar.a",
)
_STRIPPED = ("xgrammar/*.so", "zstandard/*.so")


def lean(wheel: Path, folder: Path) -> Path:
    """Return a copy of sglang-kernel's wheel without what is not needed; any other wheel as it is."""
    if not wheel.name.startswith("sglang_kernel"):
        return wheel
    copy = folder / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            if _KERNEL.match(entry.filename):
                continue
            data = old.read(entry.filename)
            if entry.filename.endswith("RECORD"):
                data = b"\n".join(line for line in data.split(b"\n") if not _KERNEL.match(line.decode()))
            new.writestr(entry.filename, data)
    return copy


def pieces(archive: Path, size: int) -> Iterator[bytes]:
    """Yield a file in pieces of ``size`` bytes."""
    with archive.open("rb") as file:
        while piece := file.read(size):
            yield piece


def main() -> None:
    """Install, trim, archive, cut."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.pack", description=__doc__.split("\n")[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("pieces", type=Path)
    parser.add_argument("--piece-mb", type=int, default=45)
    given = parser.parse_args()
    given.pieces.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        site, archive = Path(scratch) / "site", Path(scratch) / "site.tar.xz"
        wheels = [str(lean(wheel, Path(scratch))) for wheel in sorted(given.wheels.glob("*.whl"))]
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--target",
            str(site),
        ]
        subprocess.run([*install, *wheels], check=True)
        for name in _UNUSED:
            path = site / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for pattern in _STRIPPED:
            subprocess.run(["strip", "--strip-unneeded", *map(str, site.glob(pattern))], check=True)
        with lzma.open(archive, "wb", preset=6) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
            tar.add(site, arcname=".")
        for number, piece in enumerate(pieces(archive, given.piece_mb * 10**6)):
            (given.pieces / f"site.{number:02}").write_bytes(piece)


if __name__ == "__main__":
    main()
