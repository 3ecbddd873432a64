"""Boot a server that we own, watch it come up, and make sure that it goes down."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from pytest_specprobe.server.client import Client
from pytest_specprobe.server.spec import ServerSpec

Phase = Literal["launch", "init", "weights", "draft-weights", "kv-cache", "graphs", "listen", "warm-up", "ready"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootProgress:
    """One look at a booting server: its phase, seconds since the launch, and what the log last said.

    ``quiet_s`` is how long the log has not grown; ``usual_s`` how long the last boot of the same model took on
    this machine, if one is known.
    """

    phase: Phase
    elapsed_s: float
    quiet_s: float
    line: str
    usual_s: float | None = None


class Server(Protocol):
    """A server that can be probed: owned (booted here) or attached (someone else's)."""

    client: Client
    url: str
    owned: bool
    pid: int | None
    command: tuple[str, ...] | None
    scrubbed: tuple[str, ...]
    boot_s: float | None
    log_path: Path | None

    def alive(self) -> bool:
        """Tell whether the process runs (owned) or answers (attached)."""

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log, redacted; empty for an attached server."""

    def log_text(self) -> str:
        """Return the whole log, redacted; empty for an attached server."""

    def close(self) -> None:
        """Stop an owned server and wait until nothing of it is left; only disconnect from an attached one."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def boot(
    spec: ServerSpec,
    *,
    log_path: Path,
    timeout_s: float,
    progress: Callable[[BootProgress], None] = lambda _: None,
    label: str = "",
) -> Server:
    """Start a server and return when it is ready to serve.

    :param log_path: file for the server's stdout and stderr; made private (mode 0600).
    :param timeout_s: patience in seconds for the whole boot.
    :param progress: called about once a second, and at each change of phase.
    :param label: profile name for the ownership record.
    :raises BootError: if the server exits, is stuck, or is not ready in time; nothing of it is left running.
    """
    raise NotImplementedError
