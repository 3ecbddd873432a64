"""The log of a server on disk: read redacted, and kept without the key once the server is gone."""

import contextlib
import os
from pathlib import Path

from pytest_specprobe.secret import Secret
from pytest_specprobe.server.redaction import redact_text

_LIMIT = 64 << 20  # bytes of a log that are looked at, from its end
_PIECE = 1 << 20


def read_log(path: Path, *, secrets: tuple[Secret, ...] = (), start: int = 0) -> str:
    """Return a log's text from byte ``start`` on (its last 64 MiB), redacted; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _LIMIT))
            return redact_text(file.read(_LIMIT).decode("utf-8", errors="replace"), secrets=secrets)
    except OSError:
        return ""


def blot(path: Path, key: Secret) -> None:
    """Put asterisks in the place of a key wherever a log holds it: older SGLang prints all its arguments.

    In place and piece by piece: it takes no room on a full disk, and a log of any size fits.
    """
    with contextlib.suppress(OSError), path.open("r+b") as file:
        size = len(key.reveal().encode())
        at = 0
        while len(piece := os.pread(file.fileno(), _PIECE, at)) >= size:
            hit = piece.find(key.reveal().encode())
            if hit >= 0:
                os.pwrite(file.fileno(), b"*" * size, at + hit)
            # the key may begin in this piece and end in the next
            at += hit + size if hit >= 0 else len(piece) - size + 1
