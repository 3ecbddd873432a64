"""One check: what it asks, whom it blames, what it costs a server, and the function that answers.

A check is a value, so that the table of docs/checks.md, the folding of consequences and the tests read the same
facts. A room (``vocab``, ``fc``, ...) is a module that exports ``CHECKS``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specprobe.checkpoint.files.folder import Config
from pytest_specprobe.checkpoint.files.read import TargetFiles, Weights
from pytest_specprobe.errors import CheckpointError, Culprit
from pytest_specprobe.findings import Finding, Severity, Status

if TYPE_CHECKING:
    from pytest_specprobe.profiles import Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything a check may look at.

    ``weights`` is None when the files could not be read; ``faults`` then holds why. ``serving_context`` is the
    context length the server will run with (the target's own if None), ``algorithm`` the launch flag,
    ``engine_version`` the SGLang that will serve it, ``sample_ids`` token ids of a text sample for coverage,
    ``parent`` the weights this drafter was fine-tuned from.
    """

    path: Path
    config: Config
    weights: Weights | None
    listing: tuple[str, ...]
    target: TargetFiles | None = None
    speculation: "Speculation | None" = None
    serving_context: int | None = None
    algorithm: str = "EAGLE3"
    engine_version: str | None = None
    sample_ids: Sequence[int] | None = None
    parent: Weights | None = None
    faults: tuple[CheckpointError, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one check ended; ``why``, ``fix`` and ``culprit`` override the check's own where a case is special."""

    status: Status
    seen: str
    expected: str
    why: str | None = None
    fix: str | None = None
    culprit: Culprit | None = None


def passed(seen: str, *, expected: str = "") -> Outcome:
    """Return that the check looked and found nothing wrong."""
    return Outcome("pass", seen, expected or seen)


def skipped(reason: str) -> Outcome:
    """Return that the check had nothing to look at."""
    return Outcome("skip", reason, "")


def failed(
    seen: str, *, expected: str, why: str | None = None, fix: str | None = None, culprit: Culprit | None = None
) -> Outcome:
    """Return that the check found the fault."""
    return Outcome("fail", seen, expected, why, fix, culprit)


def judged(wrong: str, *, expected: str, good: str) -> Outcome:
    """Return a failure that shows ``wrong``, or a pass that shows ``good`` where nothing is wrong (an empty text)."""
    return failed(wrong, expected=expected) if wrong else passed(good)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question about a drafter.

    ``asks`` states what must hold; ``why`` what breaking it does to a running server, with the measured effect
    where one is known; a failure is folded into any of ``follows`` that failed too, since it is then only a
    consequence.
    """

    id: str
    severity: Severity
    culprit: Culprit
    asks: str
    why: str
    fix: str
    run: Callable[[Subject], Outcome]
    follows: tuple[str, ...] = ()

    def finding(self, outcome: Outcome) -> Finding:
        """Return the outcome as a Finding with this check's words."""
        return Finding(
            id=self.id,
            severity=self.severity,
            status=outcome.status,
            culprit=outcome.culprit or self.culprit,
            seen=outcome.seen,
            expected=outcome.expected or self.asks,
            why=outcome.why or self.why,
            fix=outcome.fix or self.fix,
        )


def check(
    id: str,  # noqa: A002 - the word users see in reports
    *,
    severity: Severity = "error",
    culprit: Culprit = "drafter-file",
    asks: str,
    why: str,
    fix: str,
    follows: tuple[str, ...] = (),
) -> Callable[[Callable[[Subject], Outcome]], Check]:
    """Turn a function of a Subject into a :class:`Check`."""

    def wrap(run: Callable[[Subject], Outcome]) -> Check:
        return Check(
            id=id,
            severity=severity,
            culprit=culprit,
            asks=asks,
            why=why,
            fix=fix,
            run=run,
            follows=follows,
        )

    return wrap
