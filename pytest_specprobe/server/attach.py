"""Probe a server that someone else runs; it is never stopped."""

import os
from pathlib import Path

from pytest_specprobe.server.client import Client
from pytest_specprobe.server.closing import Closing

API_KEY_VARIABLE = "SPECPROBE_API_KEY"


class AttachedServer(Closing):
    """A server that was there before us and stays when we are gone; its log and environment are not ours to see."""

    owned = False

    def __init__(self, client: Client) -> None:
        self.client = client
        self.url = client.url
        self.pid: int | None = None
        self.command: tuple[str, ...] | None = None
        self.scrubbed: tuple[str, ...] = ()
        self.boot_s: float | None = None
        self.log_path: Path | None = None

    def alive(self) -> bool:
        """Tell whether the server answers."""
        return self.client.healthy()

    def log_text(self) -> str:
        """Return nothing: the log is elsewhere."""
        return ""

    def log_tail(self, lines: int = 30) -> str:  # noqa: ARG002 - as an owned server's
        """Return nothing: the log is elsewhere."""
        return ""

    def close(self) -> None:
        """Disconnect; the server runs on."""
        self.client.close()


def attach(url: str, *, api_key: str | None = None) -> AttachedServer:
    """Return a server that is already running, once it has told what it is.

    :param api_key: bearer key; None reads ``SPECPROBE_API_KEY`` from the environment.
    :raises ServerError: if it cannot be reached, or refuses the key.
    :raises MeasurementError: if it is no SGLang server.
    """
    client = Client(url, api_key=api_key or os.environ.get(API_KEY_VARIABLE))
    try:
        client.server_info()
    except BaseException:
        client.close()
        raise
    return AttachedServer(client)
