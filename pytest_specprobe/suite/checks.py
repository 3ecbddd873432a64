"""How a shipped test turns findings into one readable failure."""

from collections.abc import Iterable

from pytest_specprobe.errors import CheckFailed
from pytest_specprobe.findings import Finding, failed


def require(findings: Iterable[Finding]) -> None:
    """Raise one CheckFailed that shows every failing error finding, root causes first."""
    wrong = failed(findings)
    if wrong:
        first = wrong[0]
        more = "\n".join(f"  also: {finding.line()}" for finding in wrong[1:])
        raise CheckFailed(
            f"{first.id}: saw {first.seen}; expected {first.expected}. {first.why}",
            culprit=first.culprit,
            fix=first.fix,
            detail=more,
        )
