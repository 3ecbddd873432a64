"""One record for static findings and runtime checks alike."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_specprobe.errors import CheckFailed, Culprit
from pytest_specprobe.foreign import LINE, SAID, one_line

Severity = Literal["error", "warning", "info"]
Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check and how it ended.

    ``id`` is a slug by room (``vocab.absolute-ids``, ``proof.not-speculating``) and never changes meaning.
    ``seen`` and ``expected`` are short texts; ``why`` says what the fault does to a running server, with the
    measured effect where one is known; ``fix`` says what to type or change next.
    A passing check has the same fields, so that a report can say what was looked at.
    """

    id: str
    severity: Severity
    status: Status
    culprit: Culprit
    seen: str
    expected: str
    why: str
    fix: str

    def __post_init__(self) -> None:
        # What was seen and expected repeats others' words: files, answers, logs.
        for name in ("seen", "expected", "why", "fix"):
            limit = SAID if name in ("seen", "expected") else LINE
            object.__setattr__(self, name, one_line(getattr(self, name), limit))

    def line(self) -> str:
        """Return one line for a terminal: id, what was seen, what was expected, who, next step."""
        return (
            f"{self.id} [{self.severity}, {self.culprit}]: saw {self.seen}; expected {self.expected}. "
            f"{self.why} Next: {self.fix}"
        )


MEASUREMENT = "measure."
"""How the ids of self-checks of a measurement begin: a failing one makes it invalid, and no drafter broken."""


def finding(
    finding_id: str,
    *,
    passed: bool,
    culprit: Culprit,
    seen: str,
    expected: str,
    why: str,
    fix: str,
    severity: Severity = "error",
    skipped: bool = False,
) -> Finding:
    """Return the finding of one check; ``skipped`` (there is nothing to look at) goes before ``passed``."""
    status: Status = "skip" if skipped else "pass" if passed else "fail"
    return Finding(
        id=finding_id,
        severity=severity,
        status=status,
        culprit=culprit,
        seen=seen,
        expected=expected,
        why=why,
        fix=fix,
    )


def failed(findings: Iterable[Finding], *, severity: Severity = "error") -> tuple[Finding, ...]:
    """Return the findings of this severity that did not pass, in order."""
    return tuple(f for f in findings if f.status == "fail" and f.severity == severity)


def require(findings: Iterable[Finding]) -> None:
    """Pass if no finding of severity error failed.

    :raises CheckFailed: one readable error that shows every failing finding, the first one as the cause.
    """
    wrong = failed(findings)
    if wrong:
        first = wrong[0]
        raise CheckFailed(
            f"{first.id}: saw {first.seen}; expected {first.expected}. {first.why}",
            culprit=first.culprit,
            fix=first.fix,
            detail="\n".join(f"also: {finding.line()}" for finding in wrong[1:]),
        )
