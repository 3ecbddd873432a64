"""The two servers of a throughput pass where only one fits on the GPUs: each is ended before the other boots."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_specprobe.measure.passes import Seat
from pytest_specprobe.measure.records import Generation, Prompt
from pytest_specprobe.server.owned import OwnedServer

Boot = Callable[[OwnedServer | None], OwnedServer]
"""Boots a server; given a suspended one, brings that back."""


@dataclass(slots=True)
class Runner:
    """One of the two: its server once it was booted, and whether that is up now."""

    boot: Boot
    server: OwnedServer | None = None
    up: bool = False

    def suspend(self) -> None:
        """End the server's processes, if they run; it keeps its address."""
        if self.up and self.server is not None:
            self.server.suspend()
        self.up = False

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        """Run one request on the server."""
        return self._running().client.generate(
            prompt, max_new_tokens=max_new_tokens, ignore_eos=ignore_eos, temperature=temperature
        )

    def flush(self) -> None:
        """Empty the server's prefix cache."""
        self._running().client.flush()

    def _running(self) -> OwnedServer:
        if self.server is None or not self.up:
            raise AssertionError("a seat's turn begins with its switch, which boots the server")
        return self.server


@dataclass(slots=True)
class Relay:
    """Two runners, of which at most one is up."""

    drafter: Runner
    baseline: Runner
    _last: Runner | None = field(default=None, init=False)

    def seats(self) -> tuple[Seat, Seat]:
        """Return the drafter's and the baseline's seat; taking one ends the other's server and boots its own."""
        return (
            Seat(self.drafter, lambda: self._switch(self.drafter, self.baseline)),
            Seat(self.baseline, lambda: self._switch(self.baseline, self.drafter)),
        )

    def _switch(self, to: Runner, other: Runner) -> bool:
        """Make ``to`` the one that is up; tell whether it has not been measured since it came up."""
        fresh = self._last is not to
        self._last = to
        if not to.up:
            other.suspend()
            to.server = to.boot(to.server)
            to.up = True
        return fresh
