"""Prove what runs before measuring it: pure checks on what the server says, its log, and one canary request."""

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.records import Generation
from pytest_specprobe.server.info import ServerInfo
from pytest_specprobe.server.spec import ServerSpec


def prove(
    info: ServerInfo,
    *,
    spec: ServerSpec,
    log_text: str | None,
    canary: Generation,
    scrubbed: tuple[str, ...] | None,
) -> tuple[Finding, ...]:
    """Return every proof, passing ones too.

    :param log_text: the server's log; None for an attached server, whose log nobody can see (``skip``).
    :param scrubbed: names scrubbed from an owned server's environment; None for an attached server, where simulated
        acceptance cannot be seen from outside.
    """
    raise NotImplementedError
