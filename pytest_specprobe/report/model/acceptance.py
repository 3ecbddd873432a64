"""What the acceptance passes measured."""

from pydantic import Field

from pytest_specprobe.report.model.base import Amount, Count, Items, Model, Number
from pytest_specprobe.report.model.estimate import Estimate


class Part(Model):
    """The accept length over some of the prompts; null for a single prompt."""

    prompts: Count
    rounds: Count
    accepted: Count
    accept_length: Estimate | None


class ContextPart(Model):
    """The accept length over prompts of one range of context lengths; null for a single prompt."""

    from_: Count = Field(alias="from", description="Tokens, inclusive: prompt plus half of the answer.")
    to: Count | None = Field(description="Exclusive; null is without end.")
    beyond_drafter: bool | None = Field(
        description="Whether these contexts are longer than the drafter was trained for."
    )
    prompts: Count
    rounds: Count
    accepted: Count
    accept_length: Estimate | None


class Places(Model):
    """Rounds of one prompt that drafter and blind control started at the same places of the text."""

    rounds: Count
    hits: Count = Field(description="First drafts accepted there, the drafter's.")
    blind_hits: Count = Field(description="The blind control's.")


class SamePlaces(Model):
    """First-position acceptance at the places where drafter and blind control both started a round."""

    rounds: Count
    p1: Estimate
    blind: Estimate


class AcceptanceRow(Model):
    """What the acceptance pass saw of one prompt."""

    id: str
    workload: str
    requests: Count
    prompt_tokens: Count
    completion_tokens: Count
    rounds: Count
    accepted: Count = Field(description="Drafts that were accepted and delivered, none past the end of the answer.")
    histogram: Items[Count] = Field(description="Rounds with exactly i drafts accepted and delivered.")
    finish_reason: str
    blind_rounds: Count | None
    blind_hits: Count | None = Field(description="Rounds of the blind control with at least one accepted draft.")
    blind_accepted: Count | None = Field(default=None, description="Accepted drafts of the blind control.")
    same_places: Places | None = None
    dropped: str | None = Field(description="Why this prompt is in no estimate; null: it is in all.")


class Acceptance(Model):
    """The acceptance pass: greedy, one text per prompt."""

    accept_length: Estimate = Field(description="Strict: 1 + accepted / rounds, of delivered drafts.")
    sglang_accept_length: Amount = Field(
        description="Tokens / rounds, as SGLang counts; above 1.0 even when nothing is accepted, so never gated."
    )
    max_accept_length: Count = Field(description="D + 1, D being the draft depth.")
    rounds: Count
    accepted: Count = Field(description="Drafts that were accepted and delivered, none past the end of an answer.")
    histogram: Items[Count] = Field(description="Rounds with exactly i drafts accepted and delivered.")
    by_position: Items[Estimate] = Field(
        description="Entry i (from 0): share of rounds with more than i drafts accepted and delivered."
    )
    conditional: Items[Number | None] = Field(
        description="Entry i: that share among rounds that got as far as position i."
    )
    floor: Estimate = Field(description="Share of the most common token: what a drafter without context reaches.")
    blind: Estimate | None = Field(
        description="First-position acceptance of the blind control over all its rounds; null if it was not run."
    )
    same_places: SamePlaces | None = Field(
        default=None, description="Null without a blind control, or where arrivals do not show where rounds start."
    )
    blind_accept_length: Estimate | None = Field(default=None, description="The blind control's.")
    length_margin: Estimate | None = Field(
        default=None,
        description="Accept length minus the larger of the blind control's and 1 + floor, paired by prompt.",
    )
    p1_margin: Estimate = Field(
        description=(
            "The lesser of first-position acceptance minus floor, and minus the blind control's at the same places "
            "(over all rounds where same_places is null), paired by prompt."
        )
    )
    coverage: Amount | None = Field(description="Share of output tokens that the drafter's vocabulary can express.")
    by_workload: dict[str, Part]
    by_context: Items[ContextPart]
    dropped: dict[str, str] = Field(description="Prompt id to reason.")
    prompts: Items[AcceptanceRow]


class Sampled(Model):
    """Acceptance at --specprobe-temperature, one sampled text per prompt.

    It is of drafts that the server's own sampling verify takes. It enters no verdict and no gate.
    """

    temperature: Amount
    accept_length: Estimate = Field(description="Strict, of the sampled texts.")
    by_position: Items[Estimate]
    rounds: Count
    accepted: Count
    histogram: Items[Count]
    over_greedy: Estimate = Field(description="Over the greedy accept length, paired by prompt.")
