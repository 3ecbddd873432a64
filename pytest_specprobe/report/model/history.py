"""The run beside the earlier ones of its key."""

from typing import Literal

from pydantic import Field

from pytest_specprobe.report.model.base import Amount, Count, Items, Model, Trend
from pytest_specprobe.report.model.estimate import Estimate


class Change(Model):
    """One measure against earlier runs of the same key."""

    measure: Literal["accept_length", "tok_per_s", "speedup", "baseline_tok_per_s"]
    trend: Trend
    ratio: Estimate | None = Field(
        description=(
            "This run over the median of the references, paired by prompt; null where they share "
            "fewer than two prompts."
        )
    )
    references: Count
    minimum: Amount = Field(description="The least change that counts.")
    spread: Amount = Field(description="Standard deviation between runs (of logarithms) that the interval holds.")
    noisy: bool = Field(description="Other processes used the machine, so that times cannot be compared.")


class EarlierRun(Model):
    """An earlier run of the same key."""

    created: str
    commit: str | None
    values: dict[str, Estimate]


class History(Model):
    """This run beside the earlier runs of its key."""

    key: str = Field(description="Names everything that makes runs comparable.")
    kept: bool = Field(description="Whether this run was appended to history.jsonl.")
    problem: str | None
    across: Items[str] = Field(
        default=(), description="Parts of the key in which the compared runs differ from this one, as asked."
    )
    trend: Trend | None
    changes: Items[Change]
    runs: Items[EarlierRun] = Field(
        description="The earlier runs of the same key that were compared with, oldest first."
    )
