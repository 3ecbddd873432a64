"""Holds what a pass sends against what its server counts, so that someone else's requests are seen."""

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_specprobe.errors import MeasurementError, ServerError
from pytest_specprobe.measure.traffic import Counting, Prefilled
from pytest_specprobe.server.boot import Server


class Watch:
    """Collects the prompt tokens of every finished pass: sent, and prefilled by the server."""

    def __init__(self) -> None:
        self._passes: list[Prefilled] = []

    @property
    def passes(self) -> tuple[Prefilled, ...]:
        """The finished passes, in order."""
        return tuple(self._passes)

    @contextmanager
    def over(self, server: Server, what: str) -> Iterator[Counting]:
        """Give a client for one pass on a server; a pass that fails is not counted.

        :raises MeasurementError: if the server does not answer before or after the pass, as for one of its requests.
        """
        before = _prefilled(server)
        client = Counting(server.client)
        yield client
        after = _prefilled(server)
        counted = None if before is None or after is None else after - before
        self._passes.append(Prefilled(what, client.tokens, counted))


def _prefilled(server: Server) -> int | None:
    try:
        return server.client.prefilled_tokens()
    except ServerError as error:
        raise MeasurementError.because("the server could not be asked about the pass", error) from error
