"""report.json as a whole."""

from typing import Literal

from pydantic import Field

from pytest_specprobe.report.model.acceptance import Acceptance, Sampled
from pytest_specprobe.report.model.base import Added, Count, GateResult, Items, Model, Number, Timestamp, Verdict
from pytest_specprobe.report.model.break_even import BreakEven, Outlook, Predicted
from pytest_specprobe.report.model.checks import Finding, GateCheck, Phase
from pytest_specprobe.report.model.estimate import Estimate
from pytest_specprobe.report.model.history import History
from pytest_specprobe.report.model.losslessness import Losslessness
from pytest_specprobe.report.model.servers import Machine, ServerReport, Staging, Tool
from pytest_specprobe.report.model.sweep import SweepArm, SweepBest
from pytest_specprobe.report.model.throughput import Throughput


class Speculation(Model):
    """The speculation flags of the drafter's server."""

    num_steps: Count
    eagle_topk: Count
    num_draft_tokens: Count


class Digests(Model):
    """Identity of both checkpoints; null before they were read."""

    drafter: str | None
    target: str | None


class Workload(Model):
    """The prompts, and how they were asked."""

    name: str
    digest: str
    prompts: Count
    rendered: str | None = Field(
        default=None,
        description=(
            "SHA-256 of the prompts as token ids: what the target's chat template, tokenizer and "
            "thinking mode made of them."
        ),
    )
    undated: str | None = Field(
        default=None,
        description=(
            "Digest of tokenizer files and chat template, where the template writes the date into "
            "prompts and `rendered` differs by the day."
        ),
    )
    thinking: bool | None = Field(
        default=None,
        description="Thinking mode that the chat template was told; null: nothing, so the template decided.",
    )
    max_new_tokens: Added[Count] = Field(default=None, description="The most tokens of an answer, thoughts included.")
    cut: Added[Count] = Field(default=None, description="Answers that ended at that limit and not by themselves.")


class DrafterReport(Model):
    """One drafter's probe; what was not measured is null."""

    name: str
    target: str
    verdict: Verdict | None
    candidates: Items[str] = Field(description="Verdicts that the intervals allow.")
    gate: GateResult | None
    gate_checks: Items[GateCheck]
    reasons: Items[str]
    next: Items[str]
    more_prompts: Count | None = Field(description="About how many more prompts would settle what is open.")
    speculation: Speculation
    digests: Digests
    phases: Items[Phase]
    checks: Items[Finding]
    staging: Staging | None
    server: ServerReport | None
    workload: Workload | None
    invalid: Items[str] = Field(description="Why a measurement is invalid.")
    acceptance: Acceptance | None
    sampled: Sampled | None = Field(
        default=None, description="null if no temperature was asked for, or nothing was sampled."
    )
    throughput: Throughput | None
    break_even: BreakEven | None
    outlook: Outlook | None
    losslessness: Losslessness | None
    sweep: Items[SweepArm]
    sweep_best: SweepBest | None = None
    predicted: Items[Predicted]
    history: History | None


class Ranking(Model):
    """Drafters of one target by one measure, over shared prompts."""

    measure: Literal["accept_length", "speedup", "tok_per_s"]
    order: Items[str]
    estimates: dict[str, Estimate]
    lead: dict[str, Estimate]
    chances: dict[str, Number]
    winner: str | None
    prompts: Count


class Comparison(Model):
    """The drafters that share one target."""

    target: str
    accept_length: Ranking | None = Field(description="Null where the drafters share too few prompts.")
    speed: Ranking | None


class Report(Model):
    """What one pytest run with --specprobe-drafter saw.

    Undefined is null, never 0 or -1. Later versions may add fields; a field that is here keeps its meaning while
    schema is 1.
    """

    schema_: Literal[1] = Field(alias="schema")
    created: Timestamp
    tool: Tool
    machine: Machine
    drafters: Items[DrafterReport]
    comparisons: Items[Comparison] = Field(description="Drafters that share a target, ranked over shared prompts.")
