"""Installs a packed site: ``python benchmarks/gpu/install.py PIECES SITE [--small-latents]``; needs nothing else.

Joins PIECES/site.*, unpacks them into SITE and compiles the modules there: SGLang starts several processes, and each
compiles every module it imports where that was not done before (27 s of every boot on one host).

``--small-latents`` adds three lines to SGLang 0.5.17: its Triton decode kernel knows latent attention of 512 + 64 and
256 + 32 channels only, and does not compile for the 64 + 16 of the mini family's targets when nothing speculates. A
record made so says so; no other target runs those lines.
"""

import compileall
import io
import lzma
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

_KERNEL = Path("sglang/kernels/ops/attention/decode_attention.py")
_ANY_LATENT = """\
    else:
        BLOCK_DMODEL = triton.next_power_of_2(Lk)
        BLOCK_DPE = 0
    BLOCK_DV = triton.next_power_of_2(Lv)

    # 4-D view"""
_SMALL_LATENT = """\
    elif has_mla:
        BLOCK_DMODEL = Lv
        BLOCK_DPE = Lk - Lv
"""


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


def _let_small_latents(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(_ANY_LATENT) != 1:
        raise SystemExit(f"{path} is not SGLang 0.5.17's")
    path.write_text(text.replace(_ANY_LATENT, _SMALL_LATENT + _ANY_LATENT), encoding="utf-8")
    sys.stdout.write("SGLang's decode kernel was changed for small latents\n")


def main() -> None:
    """Unpack and compile."""
    pieces, site = Path(sys.argv[1]), Path(sys.argv[2])
    start = time.monotonic()
    joined = io.BufferedReader(_Joined(sorted(pieces.glob("site.*"))), 1 << 20)
    with lzma.open(joined) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
        archive.extractall(site, filter="data")
    sys.stdout.write(f"unpacked after {time.monotonic() - start:.0f} s\n")
    if "--small-latents" in sys.argv[3:]:
        _let_small_latents(site / _KERNEL)
    compileall.compile_dir(site, quiet=2, workers=0)
    sys.stdout.write(f"compiled after {time.monotonic() - start:.0f} s\n")


if __name__ == "__main__":
    main()
