"""The log of a server on disk: read redacted, and kept without the key once the server is gone."""

import contextlib
import os
from pathlib import Path

from pytest_specprobe.foreign import cut_lines
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.redaction import redact_text

_LIMIT = 64 << 20  # bytes of a log that are looked at, from its end
_TAIL = 256 << 10
_PIECE = 1 << 20


def read_log(path: Path, *, secrets: tuple[Secret, ...] = (), start: int = 0) -> str:
    """Return a log's text from byte ``start`` on (its last 64 MiB), redacted; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _LIMIT, 0))
            return _shown(file.read(_LIMIT), secrets)
    except OSError:
        return ""


def read_ends(path: Path, *, secrets: tuple[Secret, ...] = (), size: int = 1 << 20) -> str:
    """Return a log's first and last ``size`` bytes (the whole of a shorter one), redacted; empty if unreadable.

    A boot looks at no more: its deadline holds however much a server writes.
    """
    try:
        with path.open("rb") as file:
            whole = file.seek(0, os.SEEK_END)
            if whole <= 2 * size:
                return _shown(os.pread(file.fileno(), 2 * size, 0), secrets)
            first, last = (_shown(os.pread(file.fileno(), size, at), secrets) for at in (0, whole - size))
            return f"{first}\n[{whole - 2 * size:,} bytes left out]\n{last}"
    except OSError:
        return ""


def read_tail(path: Path, *, secrets: tuple[Secret, ...] = ()) -> str:
    """Return the last 256 KiB of a log, redacted; empty if it cannot be read."""
    try:
        return read_log(path, secrets=secrets, start=path.stat().st_size - _TAIL)
    except OSError:
        return ""


def _shown(data: bytes, secrets: tuple[Secret, ...]) -> str:
    """Hide the known secrets before any line is cut, what looks like one after it."""
    text = data.decode("utf-8", errors="replace")
    del data
    for secret in secrets:
        text = secret.hide(text)
    return redact_text(cut_lines(text))


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
