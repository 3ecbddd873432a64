"""Probe a server that is already running; it is never stopped.

One that ``specprobe serve`` runs on this machine is *vouched for*: its ownership record says what was started, and
the process that listens on the port is the recorded one (pid, start time, marker), whose environment can be read.
"""

import os
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from pytest_specprobe.secret import Secret, Variables
from pytest_specprobe.server.closing import Closing
from pytest_specprobe.server.http.client import Client, checked_url, is_loopback
from pytest_specprobe.server.log.boot_log import tail
from pytest_specprobe.server.log.file import read_log, read_tail
from pytest_specprobe.server.port import OwnPort
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.process.listeners import Listener, listeners_of

API_KEY_VARIABLE = "SPECPROBE_API_KEY"


class AttachedServer(Closing):
    """A server that was there before us and stays when we are gone.

    :param record: its ownership record, if it was started by this tool on this machine; None if its log, command and
        environment are not ours to see.
    :param api_key: kept out of what the log shows.
    """

    owned = False

    def __init__(
        self, client: Client, *, record: ownership.Owned | None = None, api_key: Secret | None = None
    ) -> None:
        self.client = client
        self.url = client.url
        self.vouched = record is not None
        self.device = record.device if record else ""
        self.pid: int | None = record.pid if record else None
        self.command: tuple[str, ...] | None = record.command if record else None
        self.scrubbed: tuple[str, ...] = record.scrubbed if record else ()
        self.environment = record.environment if record else None
        self.boot_s: float | None = None
        self.log_path: Path | None = Path(record.log_path) if record else None
        self._record = record
        self._secrets = (api_key,) if api_key else ()
        self._log_start = self.log_path.stat().st_size if self.log_path and self.log_path.exists() else 0

    @property
    def drafter(self) -> Path | None:
        """The staged drafter that it was started with; None for a plain server, and where it is not known."""
        return Path(self._record.drafter) if self._record and self._record.drafter else None

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables in the environment of the server's processes; none where they cannot be seen."""
        return ownership.variables_of(self._record) if self._record else ()

    def sockets(self) -> tuple[Listener, ...] | None:
        """Return every TCP socket that the server's processes listen on; None where they are not known."""
        return listeners_of(_pids(self._record)) if self._record else None

    def alive(self) -> bool:
        """Tell whether the server answers."""
        return self.client.healthy()

    def log_text(self) -> str:
        """Return the whole log, redacted; empty where it is elsewhere."""
        return "" if self.log_path is None else read_log(self.log_path, secrets=self._secrets)

    def own_log_text(self) -> str:
        """Return what the log got since this run attached, redacted: earlier probes had their own requests."""
        if self.log_path is None:
            return ""
        return read_log(self.log_path, secrets=self._secrets, start=self._log_start)

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log that say something, redacted; empty where it is elsewhere."""
        return "" if self.log_path is None else tail(read_tail(self.log_path, secrets=self._secrets), lines)

    def close(self) -> None:
        """Disconnect; the server runs on."""
        self.client.close()


def attach(url: str, *, api_key: Secret | None = None) -> AttachedServer:
    """Return a server that is already running, once it has told what it is.

    :param api_key: bearer key; None reads ``SPECPROBE_API_KEY`` from the environment.
    :raises ServerError: if it cannot be reached, or refuses the key.
    :raises PortTaken: if ``specprobe serve`` has a server of this port and another process listens there; the key is
        not sent.
    :raises MeasurementError: if it is no SGLang server.
    """
    key = api_key or Secret.variable(API_KEY_VARIABLE, Variables(os.environ))
    url = checked_url(url, key=None)
    record, port = _recorded(url)
    client = Client(url, api_key=key, connected=port.require) if port else Client(url, api_key=key)
    try:
        client.server_info()
    except BaseException:
        client.close()
        raise
    return AttachedServer(client, record=record, api_key=key)


def _recorded(url: str) -> tuple[ownership.Owned, OwnPort] | tuple[None, None]:
    """Return the record of the server at a URL of this machine, once its own processes are seen to listen there.

    :raises PortTaken: if the recorded server lives and another process listens on its port.
    """
    parts = urlsplit(url)
    if parts.port is None or not is_loopback(parts.hostname or ""):
        # Elsewhere, or behind a proxy: the one who answers is not known to be what runs here.
        return None, None
    for owned in ownership.servers():
        if owned.port == parts.port:
            port = OwnPort(owned.port, tree=partial(_pids, owned))
            if port.answered():
                return owned, port
    return None, None


def _pids(owned: ownership.Owned) -> tuple[int, ...]:
    return tuple(process.pid for process in ownership.processes_of(owned))
