"""The phases of a probe: one live line, one entry in the report, each."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from pytest_specprobe.measure.passes import Progress

PhaseName = Literal["free", "inspect", "stage", "patch", "boot", "prove", "warm up", "probe", "decide", "record"]
Status = Literal["running", "done", "failed"]
SAY_EVERY_S = 10.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase as the report shows it: ``what`` tells apart the boots of one probe (drafter, baseline, blind)."""

    name: PhaseName
    what: str
    status: Status
    seconds: float


class PhaseLog:
    """The phases of one drafter's probe, in the order they began.

    ``say`` shows one line to the person who waits; ``changed`` is called after each change, with whether a phase
    ended, so that the report on disk tells how far a run came even when it dies. A phase within another (a boot
    between two turns of a pass) takes its seconds out of the outer one's, so that all of them add up to the time that
    passed.
    """

    def __init__(self, drafter: str, *, say: Say, changed: Callable[[bool], None] = lambda _: None) -> None:
        self._drafter = drafter
        self._say = say
        self._changed = changed
        self._phases: list[Phase] = []
        self._within: list[float] = []

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases so far, in the order they began."""
        return tuple(self._phases)

    @contextmanager
    def phase(self, name: PhaseName, what: str) -> Iterator[Callable[[str], None]]:
        """Time one phase; yields a function that says what is being waited for now."""
        start = time.monotonic()
        at = len(self._phases)
        self._phases.append(Phase(name, what, "running", 0.0))
        self._tell(name, 0.0, what)
        self._changed(False)  # noqa: FBT003 - a callback has no keywords
        self._within.append(0.0)
        done = False
        try:
            yield lambda awaited: self._tell(name, time.monotonic() - start, awaited)
            done = True
        finally:
            elapsed = time.monotonic() - start
            seconds = elapsed - self._within.pop()
            if self._within:
                self._within[-1] += elapsed
            status: Status = "done" if done else "failed"
            self._phases[at] = Phase(name, what, status, round(seconds, 3))
            if not done or seconds >= 1:
                self._tell(name, seconds, f"{what}: {status}")
            self._changed(True)  # noqa: FBT003 - as above

    def note(self, text: str) -> None:
        """Show a line that belongs to the phase just ended."""
        self._tell(self._phases[-1].name if self._phases else "free", 0.0, text)

    def _tell(self, name: str, seconds: float, awaited: str) -> None:
        self._say(f"{self._drafter}  {name:<8} {seconds:6.1f} s  {awaited}")


def narrator(what: str, say: Say) -> Callable[[Progress], None]:
    """Return a progress callback for a pass: one line every ten seconds."""
    said_s = 0.0

    def narrate(progress: Progress) -> None:
        nonlocal said_s
        if progress.elapsed_s - said_s < SAY_EVERY_S:
            return
        said_s = progress.elapsed_s
        length = "" if progress.accept_length is None else f", accept length {progress.accept_length:.2f}"
        left = "" if progress.left_s is None else f", about {progress.left_s:.0f} s left"
        say(f"{what}: {progress.done} of {progress.total} requests, {progress.rounds} rounds{length}{left}")

    return narrate
