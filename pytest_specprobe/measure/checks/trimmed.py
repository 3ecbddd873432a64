"""How much of what the server accepted was never delivered, because the answer ended before it?

What is past the end is in no estimate. A large share says that the answers are little more than their ends.
"""

from collections.abc import Sequence

from pytest_specprobe.findings import Finding, finding
from pytest_specprobe.measure.checks.texts import dropped_prompts
from pytest_specprobe.measure.request import Generation

MANY = 0.10
MOST = 1 / 3
# Trimmed drafts per round: what would move the accept length by less is no matter, however few were accepted.
_MATTERS = 0.02


def check_trimmed(texts: Sequence[Generation]) -> Finding:
    """Check that few accepted drafts lie past the end of an answer, of the drafter's texts that are measured."""
    dropped = dropped_prompts(texts)
    measured = [g for g in texts if g.prompt_id not in dropped]
    accepted = sum(g.accepted or 0 for g in measured)
    trimmed = accepted - sum(g.delivered or 0 for g in measured)
    matters = trimmed > _MATTERS * sum(g.rounds or 0 for g in measured)
    share = trimmed / accepted if accepted and matters else 0.0
    return finding(
        "measure.trimmed",
        passed=share <= MANY,
        severity="error" if share > MOST else "warning",
        culprit="workload",
        seen=f"{trimmed:,} of {accepted:,} accepted drafts are past the end of their answer",
        expected=f"at most {MANY:.0%}; they are counted in no number",
        why="What follows an end is drafted unlike text, and a round spent on it delivers less than it accepts.",
        fix="use prompts that ask for longer answers; raise max_new_tokens if it cuts them",
    )
