"""A server that we booted: what it is, whether it lives, and how it ends."""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from pytest_specprobe.errors import ServerError
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.closing import Closing
from pytest_specprobe.server.gpu import holders
from pytest_specprobe.server.gpu.memory import GpuMemory
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.log.boot_log import tail
from pytest_specprobe.server.log.file import blot, read_ends, read_log, read_tail
from pytest_specprobe.server.port import HeldPort, OwnPort
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.process.handle import Supervised
from pytest_specprobe.server.process.listeners import Listener, listeners_of
from pytest_specprobe.server.process.supervisor import marked

logger = logging.getLogger(__name__)

_MEMORY_PATIENCE_S = 60.0


class OwnedServer(Closing):
    """A running server that ends with this object, or with this process, whichever is first."""

    owned = True
    vouched = True

    def __init__(
        self,
        supervised: Supervised,
        client: Client,
        *,
        command: tuple[str, ...],
        scrubbed: tuple[str, ...],
        environment: Mapping[str, str],
        log_path: Path,
        scratch: Path,
        device: str,
        api_key: Secret,
        gpu_memory: GpuMemory | None,
        held: HeldPort,
        port: OwnPort,
    ) -> None:
        self.port = port
        self._held = held
        self.client = client
        self.url = client.url
        self.pid: int | None = supervised.pid
        self.command: tuple[str, ...] | None = command
        self.scrubbed = scrubbed
        self.environment: Mapping[str, str] | None = environment
        self.boot_s: float | None = None
        self.log_path: Path | None = log_path
        self.device = device
        self.api_key = api_key
        self._scratch = scratch
        self._supervised = supervised
        self._log_path = log_path
        self._gpu_memory = gpu_memory
        self._stopped = self._closed = False

    def __repr__(self) -> str:
        return f"OwnedServer({self.url!r}, pid={self.pid})"

    def alive(self) -> bool:
        """Tell whether the server process runs."""
        return self._supervised.poll()

    def came_up(self, *, boot_s: float) -> None:
        """Note that the server is ready, ``boot_s`` seconds after its launch."""
        self.boot_s = boot_s
        if self._gpu_memory is not None:
            self._gpu_memory.came_up()

    def sockets(self) -> tuple[Listener, ...]:
        """Return every TCP socket that the server's processes listen on.

        :raises PortTaken: if another process listens on the server's port beside them.
        """
        self.port.answered()
        return listeners_of(self.tree())

    def tree(self) -> tuple[int, ...]:
        """Return the pids of the server's living processes."""
        return self._supervised.tree()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds for the server to end; return whether it still runs."""
        return self._supervised.poll(timeout_s)

    @property
    def variables(self) -> tuple[str, ...]:
        """Nothing to look at: the environment was made here, and forging variables were scrubbed from it."""
        return ()

    @property
    def exit(self) -> tuple[int | None, int | None]:
        """Exit code and signal of a server that has ended; (None, None) while it runs."""
        return self._supervised.exit_code, self._supervised.exit_signal

    def key_file(self) -> Path:
        """Write the API key where this user alone can read it, and return the file; it goes with the server.

        :raises ServerError: if it cannot be written.
        """
        path = self._scratch / "api-key"
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(self.api_key.reveal() + "\n")
        except OSError as error:
            raise ServerError(
                f"the server's key cannot be written to {path}: {error.strerror}",
                culprit="machine",
                fix="give the temporary directory room, or name another with TMPDIR",
            ) from error
        return path

    def log_text(self) -> str:
        """Return the whole log, redacted."""
        return read_log(self._log_path, secrets=(self.api_key,))

    def log_ends(self) -> str:
        """Return how the log begins and ends, redacted; a MiB of each at most."""
        return read_ends(self._log_path, secrets=(self.api_key,))

    def own_log_text(self) -> str:
        """Return the log of the time that this run had the server: all of it."""
        return self.log_text()

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log that say something, redacted."""
        return tail(read_tail(self._log_path, secrets=(self.api_key,)), lines)

    def close(self) -> None:
        """Stop the server and wait until nothing of it is left: no process, no port, no GPU memory.

        :raises ServerError: if a process would not end.
        """
        if self._closed:
            return
        self.client.close()
        try:
            self.suspend()
        finally:
            self._held.close()
        self._closed = True

    def suspend(self) -> None:
        """Stop the server as ``close`` does, and keep its address, key and client for ``boot(..., again=this)``.

        :raises ServerError: if a process would not end.
        """
        if self._stopped:
            return
        if self._gpu_memory is not None:
            self._gpu_memory.leaving(process.pid for process in marked(self._supervised.marker))
        try:
            self._supervised.stop()
        finally:
            # a process that would not end is no reason to leave the key in the log
            blot(self._log_path, self.api_key)
        self._stopped = True
        ownership.forget(self._supervised.marker)
        self._await_memory()

    def resume(self, supervised: Supervised, *, log_path: Path, scratch: Path, gpu_memory: GpuMemory | None) -> None:
        """Take over the process that serves at this address again; whoever holds the client goes on with it."""
        self._supervised, self._stopped = supervised, False
        self.port.follow(supervised.tree)
        self._scratch = scratch
        self.pid, self.boot_s = supervised.pid, None
        self.log_path = self._log_path = log_path
        self._gpu_memory = gpu_memory

    def _await_memory(self) -> None:
        """Wait for the driver, which gives memory back a while after the process is gone."""
        deadline = time.monotonic() + _MEMORY_PATIENCE_S
        while held := self._gpu_memory.held() if self._gpu_memory is not None else "":
            if time.monotonic() > deadline:
                holding = "; ".join(map(str, holders.gpu_holders())) or "no process is named"
                logger.warning("GPU memory has not come back: %s (%s)", held, holding)
                return
            time.sleep(1.0)
