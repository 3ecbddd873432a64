"""Probe a server that someone else runs; it is never stopped."""

from pytest_specprobe.server.boot import Server


def attach(url: str, *, api_key: str | None = None) -> Server:
    """Return a server that is already running, once it answers.

    :param api_key: bearer key; None reads ``SPECPROBE_API_KEY`` from the environment.
    :raises ServerError: if it cannot be reached, or refuses the key.
    """
    raise NotImplementedError
