"""The two servers of a throughput pass where only one fits on the GPUs: each is ended before the other boots."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from pytest_specprobe.errors import SpecprobeError
from pytest_specprobe.measure.checks.busy_machine import CpuTime
from pytest_specprobe.measure.checks.foreign_traffic import Counting
from pytest_specprobe.measure.passes import Contender
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.probe.foreign_traffic import TrafficWatch
from pytest_specprobe.server.owned import OwnedServer

Boot = Callable[[OwnedServer | None], OwnedServer]
"""Boots a server; given a suspended one, brings that back."""


@dataclass(slots=True)
class AlternatingServer:
    """One of the two: its server once it was booted, whether that is up now, and its client while it has its turn."""

    what: str
    boot: Boot
    server: OwnedServer | None = None
    up: bool = False
    client: Counting | None = field(default=None, init=False)

    def suspend(self) -> None:
        """End the server's processes, if they run; it keeps its address."""
        if self.up and self.server is not None:
            self.server.suspend()
        self.up = False

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        """Run one request on the server."""
        return self._at_work().generate(
            prompt, max_new_tokens=max_new_tokens, ignore_eos=ignore_eos, temperature=temperature
        )

    def flush(self) -> None:
        """Empty the server's prefix cache."""
        self._at_work().flush()

    def running(self) -> OwnedServer:
        """Return the server, which is up."""
        if self.server is None or not self.up:
            raise AssertionError("a server's turn begins with its switch, which boots the server")
        return self.server

    def _at_work(self) -> Counting:
        if self.client is None:
            raise AssertionError("a server's turn begins with its switch, which counts what is sent")
        return self.client


@dataclass(slots=True)
class Alternation:
    """Two runners, of which at most one is up; each turn is watched for requests that are not ours.

    ``turns`` are the moments between which a CPU server had its turn, for ``check_load``. To be left when the pass is
    over: the last turn ends there.
    """

    drafter: AlternatingServer
    baseline: AlternatingServer
    watch: TrafficWatch
    turns: list[tuple[CpuTime, CpuTime]] = field(default_factory=list, init=False)
    _last: AlternatingServer | None = field(default=None, init=False)
    _turn: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        # of a pass that failed nothing is counted, and its server may be gone
        if error is None:
            self._turn.close()
        elif isinstance(error, SpecprobeError) and self._last is self.baseline:
            # the drafter's server is up again all the same: what asks it next would hide the cause
            self.baseline.suspend()
            with suppress(SpecprobeError):
                self.drafter.boot(self.drafter.server)

    def contenders(self) -> tuple[Contender, Contender]:
        """Return the drafter's and the baseline's contender; taking one ends the other's server and boots its own."""
        return (
            Contender(self.drafter, lambda: self._switch(self.drafter, self.baseline)),
            Contender(self.baseline, lambda: self._switch(self.baseline, self.drafter)),
        )

    def _switch(self, to: AlternatingServer, other: AlternatingServer) -> bool:
        """Make ``to`` the one that is up; tell whether it has not been measured since it came up."""
        fresh = self._last is not to
        self._last = to
        if fresh:
            self._turn.close()
        if not to.up:
            other.suspend()
            to.server = to.boot(to.server)
            to.up = True
        if fresh:
            self._turn.enter_context(self._having_its_turn(to))
        return fresh

    @contextmanager
    def _having_its_turn(self, runner: AlternatingServer) -> Iterator[None]:
        server = runner.running()
        pids = () if server.pid is None else (server.pid,)
        before = CpuTime.now(pids)
        with self.watch.over(server, runner.what) as runner.client:
            yield
        runner.client = None
        if server.device == "cpu":
            self.turns.append((before, CpuTime.now(pids)))
