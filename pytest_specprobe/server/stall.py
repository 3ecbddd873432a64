"""Tell a stuck boot from a slow one: no new log line, no CPU time and no I/O in any of its processes."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from pytest_specprobe.server.supervisor import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
# An idle interpreter with a few housekeeping threads uses far less; loading weights, compiling or capturing far more.
_IDLE_SHARE = 0.01
_IDLE_BYTES_PER_S = 4096


def effort(root: int) -> tuple[float, int]:
    """Return the CPU seconds and the bytes of I/O that a process and all below it have used so far."""
    cpu_s, io_bytes = 0.0, 0
    for pid in (root, *(p.pid for p in descendants(root))):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            cpu_s += (int(fields[11]) + int(fields[12])) / _TICKS
            counters = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            io_bytes += int(counters["rchar"]) + int(counters["read_bytes"])
    return cpu_s, io_bytes


class StallWatch:
    """Watches one boot; ``patience_s`` is how long a process may show no sign of life at all.

    A server that spins (a collective that waits for a peer) is busy and never counts as stalled.
    """

    def __init__(self, root: int, *, patience_s: float, look: Callable[[int], tuple[float, int]] = effort) -> None:
        self._root = root
        self._patience_s = patience_s
        self._look = look
        self._since: tuple[float, float, int] | None = None

    def stalled(self, *, now_s: float, quiet_s: float) -> bool:
        """Tell whether nothing has happened for the whole patience; call it every few seconds.

        :param quiet_s: how long the log has not grown.
        """
        cpu_s, io_bytes = self._look(self._root)
        if self._since is None or quiet_s < now_s - self._since[0]:
            # The log has grown since: begin anew.
            self._since = (now_s, cpu_s, io_bytes)
            return False
        begun_s, cpu_before, io_before = self._since
        span_s = now_s - begun_s
        busy = (
            cpu_s - cpu_before > _IDLE_SHARE * span_s + 0.2
            or io_bytes - io_before > _IDLE_BYTES_PER_S * span_s + 65536
        )
        if busy:
            self._since = (now_s, cpu_s, io_bytes)
            return False
        return span_s >= self._patience_s
