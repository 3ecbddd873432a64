"""A sweep over speculation settings."""

from typing import Literal

from pydantic import Field

from pytest_specprobe.report.model.base import Amount, Count, Items, Model, Positive, Verdict
from pytest_specprobe.report.model.break_even import Predicted
from pytest_specprobe.report.model.estimate import Estimate


class SweepArm(Model):
    """One setting of a sweep.

    Its intervals are wider than 95 %: sweep_best.confidence each, so that those of all settings hold at once.
    """

    setting: str = Field(description="steps/topk/draft tokens")
    how: Literal["one-boot", "own-boot", "attached", "lower-estimate", "skipped"] = Field(
        description=(
            "Pinned on a server that all chains share; on a server of its own; on the attached "
            "server; bracketed from the longer chain (see bracket); or not run."
        )
    )
    note: str = Field(
        description="Why it was skipped, or how far its speed is to be trusted; empty if there is nothing to say."
    )
    own: bool = Field(description="The profile's own setting.")
    best: bool = Field(description="The fastest of those whose times can be compared, surely so or not.")
    apart: bool = Field(description="The own setting or the baseline did not fit beside it and ran at another time.")
    verdict: Verdict | None
    candidates: Items[str]
    accept_length: Estimate | None
    max_accept_length: Count
    by_position: Items[Estimate]
    histogram: Items[Count] = Field(description="Rounds by accepted drafts, of all prompts that count.")
    tok_per_s: Estimate | None = Field(
        description="Null, as all times and the verdict, on a shared boot that is not shown to be as fast as its own."
    )
    speedup: Estimate | None
    over_own: Estimate | None = Field(
        description="tok/s over the own setting's, paired by prompt; null for that one."
    )
    break_even: Estimate | None = Field(description="Accept length at which this setting costs nothing.")
    round_s: Amount | None
    bracket: Predicted | None


class Parity(Model):
    """The own setting on the shared boot against itself on a boot of its own, in turns."""

    setting: str
    ratio: Estimate
    bound: Amount
    shown: bool = Field(description="The whole interval is within the bound of 1.")
    identical: Count = Field(description="Prompts with the same tokens and the same accept histogram on both.")
    compared: Count


class SweepBest(Model):
    """The fastest setting of a sweep, and how sure that is."""

    setting: str
    own: str = Field(description="The profile's own setting.")
    over_own: Estimate | None = Field(
        description="The best setting's tok/s over the own one's, paired by prompt; null if the own one is best."
    )
    speedup: Estimate | None
    surely_better: bool = Field(
        description="over_own is wholly above 1, at the confidence below: picking the best of several gains nothing."
    )
    settings: Positive = Field(description="How many settings the intervals hold for at once.")
    concurrency: Positive = Field(description="Requests in flight.")
    confidence: Amount = Field(description="Of each interval of a setting: 1 - 0.05 / settings (Bonferroni).")
    parity: Parity | None
    fallback: str | None = Field(description="Why chains did not share one boot.")
