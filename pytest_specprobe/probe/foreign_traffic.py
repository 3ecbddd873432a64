"""Holds what a pass sends against what its server counts, so that someone else's requests are seen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pytest_specprobe.errors import MeasurementError, ServerError
from pytest_specprobe.measure.checks.foreign_traffic import Counting, Prefilled
from pytest_specprobe.server.boot import Server

T = TypeVar("T")


class TrafficWatch:
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

        :raises MeasurementError: if the server does not answer before or after the pass.
        """
        before = about_a_pass(server.client.prefilled_tokens)
        client = Counting(server.client)
        yield client
        after = about_a_pass(server.client.prefilled_tokens)
        counted = None if before is None or after is None else after - before
        self._passes.append(Prefilled(what, client.tokens, counted))


def about_a_pass(ask: Callable[[], T]) -> T:
    """Return the server's answer to a question about a pass.

    :raises MeasurementError: if it does not answer, as for one of the pass's own requests.
    """
    try:
        return ask()
    except ServerError as error:
        raise MeasurementError.because("the server could not be asked about the pass", error) from error
