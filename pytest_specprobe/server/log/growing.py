"""A log that grows while it is read."""

import time
from pathlib import Path

from pytest_specprobe.foreign import LINE
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.log.boot_log import tail

_PIECE = 1 << 20  # bytes of one look
_BEHIND = 16 << 20  # bytes: a log that is so far ahead is read on from its end
_LINES = 10_000  # of one look


class GrowingLog:
    """The new lines of a log since the last look; a progress bar's states count as lines.

    One look is bounded in bytes and lines, whatever the server writes: what is left is seen by the next looks, and
    of a log that grows faster than that only the end.
    """

    def __init__(self, path: Path | None, *, secrets: tuple[Secret, ...] = ()) -> None:
        self._path = path
        self._secrets = secrets
        self._offset = 0
        self._size = 0
        self._grown_s = time.monotonic()
        self.last_line = ""

    def quiet_s(self, now_s: float) -> float:
        """Return for how many seconds the log has not grown (``now_s`` is time.monotonic())."""
        return now_s - self._grown_s

    def new_lines(self, now_s: float) -> list[str]:
        """Return the whole lines since the last call, each cut, without the secrets; none if it cannot be read."""
        if self._path is None:
            return []
        try:
            size = self._path.stat().st_size
            if size - self._offset > _BEHIND:
                self._offset = size - _PIECE
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_PIECE)
        except OSError:
            return []
        if size > self._size:
            self._size = size
            self._grown_s = now_s
        # Only whole lines move on; a half-written one is seen again when it is complete, or longer than a look.
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 or (len(data) if len(data) == _PIECE else 0)
        self._offset += whole
        text = data[:whole].decode("utf-8", errors="replace")
        del data
        for secret in self._secrets:
            text = secret.hide(text)
        lines = [line[:LINE] for line in text.replace("\r", "\n").split("\n")[-_LINES:] if line]
        self.last_line = tail("\n".join(lines[-50:]), 1)[:160] or self.last_line
        return lines
