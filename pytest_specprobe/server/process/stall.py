"""Tell a stuck boot from a slow one: no new log line, no CPU time and no I/O in any of its processes.

Invariant: what a process has used stays counted when it ends, in the parent that waited for it; a boot whose
compilers come and go would seem to use less and less else.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from pytest_specprobe.server.process.supervisor import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
# An idle interpreter with a few housekeeping threads uses far less; loading weights, compiling or capturing far more.
_IDLE_SHARE = 0.01
_IDLE_BYTES_PER_S = 4096


def effort(root: int) -> tuple[float, int]:
    """Return the CPU seconds and the bytes of I/O that a process and all below it have used so far.

    Those that have ended are in it once their parents have waited for them, as the kernel adds them up.
    """
    cpu_s, io_bytes = 0.0, 0
    for pid in (root, *(p.pid for p in descendants(root))):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            cpu_s += sum(map(int, fields[11:15])) / _TICKS  # own user and system time, and the children's
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

    def stalled(self, *, now_s: float, quiet_s: float, compiling: bool = False) -> bool:
        """Tell whether nothing has happened for the whole patience; call it every few seconds.

        :param quiet_s: how long the log has not grown.
        :param compiling: a compiler runs among the processes: the patience begins anew when it has ended.
        """
        cpu_s, io_bytes = self._look(self._root)
        if self._since is None or compiling or quiet_s < now_s - self._since[0]:
            # The log has grown since, or something compiles: begin anew.
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
