"""A log that grows while it is read."""

import re
import time
from pathlib import Path

from pytest_specprobe.server.bootlog import tail


class GrowingLog:
    """The new lines of a log since the last look; a progress bar's states count as lines."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offset = 0
        self._size = 0
        self._grown_s = time.monotonic()
        self.last_line = ""

    def quiet_s(self, now_s: float) -> float:
        """Return for how many seconds the log has not grown (``now_s`` is time.monotonic())."""
        return now_s - self._grown_s

    def new_lines(self, now_s: float) -> list[str]:
        """Return the whole lines since the last call; none if the log cannot be read."""
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        if self._offset + len(data) > self._size:
            self._size = self._offset + len(data)
            self._grown_s = now_s
        # Only whole lines move on; a half-written one is seen again when it is complete.
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._offset += whole
        lines = [line for line in re.split(r"[\r\n]+", data[:whole].decode("utf-8", errors="replace")) if line]
        self.last_line = tail("\n".join(lines), 1)[:160] or self.last_line
        return lines
