"""Whether speculation kept the texts."""

from pydantic import Field

from pytest_specprobe.report.model.base import Added, Amount, Count, Items, Model, Number
from pytest_specprobe.report.model.estimate import Estimate


class Divergence(Model):
    """Where the texts of drafter and baseline part."""

    prompt_id: str
    position: Count
    drafter_token: Count | None
    baseline_token: Count | None
    best_tokens: Items[Count] | None = Field(default=None, description="Those two tokens, the best first.")
    gap: Number | None = Field(
        description="Gap of the target's two best tokens there, in log-probability; null if it was not asked."
    )
    near_tie: Added[bool] = Field(
        default=None, description="Whether both tokens are the target's two best and the gap is below near_tie."
    )


class OddTokens(Model):
    """Tokens of some texts that are ``near_tie`` or more below the best that the target says there."""

    texts: Count
    tokens: Count
    odd: Count
    rate: Amount | None = Field(description="Odd tokens per token; null without any token.")


class Excess(Model):
    """Odd tokens in the texts of the same prompts with and without speculation, read by one server of the target."""

    drafter: OddTokens
    baseline: OddTokens
    more: Estimate = Field(description="The drafter's rate less the baseline's, per token, paired by prompt.")


class Losslessness(Model):
    """Whether drafter and baseline wrote the same texts."""

    compared: Count
    identical: Count
    rate: Amount | None
    exact: Added[bool] = Field(
        default=None, description="Whether both servers run in float32 on a CPU, where equality is asserted."
    )
    near_tie: Added[Amount] = Field(default=None, description="The gap below which two tokens may swap.")
    unexplained: Added[Count] = Field(default=None, description="Texts that part elsewhere than at a near-tie.")
    odd_tokens: Excess | None = Field(
        default=None, description="What decides where the arithmetic is not exact; null if the texts were not read."
    )
    divergences: Items[Divergence]
