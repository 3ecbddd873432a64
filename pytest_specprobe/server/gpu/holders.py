"""Who holds a port or GPU memory, whoever they are: named in messages, never touched."""

import contextlib
from dataclasses import dataclass

import psutil

from pytest_specprobe.server.gpu import nvidia_smi
from pytest_specprobe.server.redaction import redact_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a port or GPU memory; named in messages, never touched.

    ``what`` says what it holds (``port 30000``, ``2048 MiB of GPU-...``). Command and user are "?" where this user
    may not see them.
    """

    pid: int | None
    command: str
    user: str
    what: str

    def __str__(self) -> str:
        return f"{self.what}: pid {self.pid or '?'} ({self.user}) {self.command}"


def port_holders(port: int) -> tuple[Holder, ...]:
    """Return who listens on a local TCP port; the pid is None where this user may not see it."""
    try:
        listening = [c for c in psutil.net_connections(kind="tcp") if c.status == psutil.CONN_LISTEN]
    except (psutil.Error, OSError):
        return ()
    return tuple(_holder(c.pid, f"port {port}") for c in listening if tuple(c.laddr)[1:] == (port,))


def gpu_holders() -> tuple[Holder, ...]:
    """Return who holds GPU memory, by nvidia-smi; empty where there is none or it does not answer."""
    apps = nvidia_smi.rows("--query-compute-apps=pid,used_memory,gpu_uuid", cells=3)
    return tuple(_holder(int(pid), f"{memory} MiB of {gpu}") for pid, memory, gpu in apps if pid.isdigit())


def _holder(pid: int | None, what: str) -> Holder:
    command, user = "?", "?"
    if pid is not None:
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            user = process.username()
            command = " ".join(redact_command(process.cmdline()))[:200] or process.name()
    return Holder(pid=pid, command=command, user=user, what=what)
