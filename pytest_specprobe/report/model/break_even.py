"""Where speculation pays, and what training or a shorter chain could come to."""

from typing import Literal

from pydantic import Field

from pytest_specprobe.report.model.base import Amount, Count, Items, Model
from pytest_specprobe.report.model.estimate import Estimate


class BreakEvenIntervals(Model):
    """95 % intervals of the break-even point."""

    accept_length: Estimate
    headroom: Estimate


class BreakEven(Model):
    """Where speculation neither costs nor pays."""

    accept_length: Amount = Field(description="B: round time x baseline tok/s; below it speculation costs.")
    max_accept_length: Count
    required_acceptance: Amount | None = Field(
        description="p*: acceptance at every position that gives B; null if B is out of reach, 0 if any drafter pays."
    )
    headroom: Amount = Field(description="L(p_reach) / B.")
    ceiling_speedup: Amount = Field(description="(D + 1) / B.")
    round_s: Amount
    p_reach: Amount
    intervals: BreakEvenIntervals | None


class Goal(Model):
    """The accept length from which on a verdict would hold."""

    verdict: str
    accept_length: Amount
    acceptance: Amount | None


class Published(Model):
    """Published drafters of the same method, as a measure of what is reachable."""

    count: Count
    best: Amount | None
    median: Amount | None
    at_break_even: Count
    best_from: str | None


class Outlook(Model):
    """What training could come to: bounds, not promises."""

    accept_length: Amount
    acceptance: Amount | None
    goals: Items[Goal]
    round_s: Amount
    round_s_for_training: Amount
    published: Published


class Predicted(Model):
    """Bracket of a shorter chain; never an interpolation."""

    num_steps: Count
    accept_length_low: Amount
    accept_length_high: Amount
    tok_per_s_low: Amount | None
    tok_per_s_high: Amount | None
    speedup_low: Amount | None
    speedup_high: Amount | None
    bracket: Literal[True]
