"""What the speed passes measured."""

from typing import Literal

from pydantic import Field

from pytest_specprobe.report.model.base import Added, Amount, Count, Items, Model, Number
from pytest_specprobe.report.model.estimate import Estimate


class Percentiles(Model):
    """Seconds."""

    p50: Amount
    p90: Amount
    p99: Amount
    n: Count


class Latency(Model):
    """Latencies of one server's requests."""

    first_token_s: Percentiles
    inter_token_s: Percentiles | None
    inter_arrival_s: Percentiles | None


class Latencies(Model):
    """Latencies of both sides; null without a baseline."""

    drafter: Latency
    baseline: Latency | None


class Overhead(Model):
    """Client, HTTP and network beside the server's own work."""

    share: Estimate = Field(
        description=(
            "(wall - server) / wall over requests: wall from sending a request to its last token, "
            "server what it reports itself (e2e_latency)."
        )
    )
    per_request_s: Number = Field(description="Mean of wall - server in seconds.")
    requests: Count


class ClientOverhead(Model):
    """Client overhead of both sides; null on a side whose server does not report its own time."""

    drafter: Overhead | None
    baseline: Overhead | None


class SpeedRow(Model):
    """What the speed pass saw of one prompt, on drafter and baseline."""

    id: str
    workload: str
    requests: Count
    tokens: Count = Field(description="Tokens after the first arrival.")
    decode_s: Amount
    total_s: Amount
    rounds: Amount
    accepted: Count = Field(description="Drafts that were accepted and delivered, none past the end of an answer.")
    baseline_tokens: Count | None
    baseline_decode_s: Amount | None
    baseline_total_s: Amount | None = Field(
        default=None, description="From sending a request to its last token, as total_s."
    )


class CurvePoint(Model):
    """Rates at one concurrency."""

    concurrency: Count
    tok_per_s: Estimate = Field(
        description="Decode rate of one stream: tokens after the first arrival / seconds they took."
    )
    baseline_tok_per_s: Estimate | None
    speedup: Estimate | None = Field(description="tok/s over the baseline's, paired by prompt.")
    aggregate_tok_per_s: Amount | None = Field(description="All streams together, over wall time.")
    baseline_aggregate_tok_per_s: Amount | None
    aggregate_speedup: Amount | None


class Throughput(Model):
    """The speed pass: rates of drafter and baseline over the same prompts."""

    tok_per_s: Estimate = Field(
        description="Decode rate of one stream: tokens after the first arrival / seconds they took."
    )
    baseline_tok_per_s: Estimate | None
    baseline_source: Literal["boot", "alternating", "attached", "stored", "declared"] | None
    baseline_age_s: Amount | None = Field(description="Age of a stored baseline.")
    speedup: Estimate | None = Field(description="tok/s over the baseline's, paired by prompt.")
    round_s: Amount = Field(description="S: decode seconds / rounds.")
    break_even_length: Estimate | None
    accept_length: Estimate = Field(description="Strict, of this pass: 1 + accepted / rounds.")
    tokens_per_round: Amount
    end_to_end_tok_per_s: Amount = Field(description="All tokens / seconds from sending a request to its last token.")
    baseline_end_to_end_tok_per_s: Amount | None = Field(
        default=None, description="The baseline's; null where it was not measured in this run."
    )
    end_to_end_speedup: Estimate | None = Field(
        default=None, description="Of whole requests, first-token time included, paired by prompt."
    )
    latency: Latencies
    client_overhead: Added[ClientOverhead] = None
    concurrency: Count
    aggregate_tok_per_s: Amount | None = Field(description="All streams together, over wall time.")
    baseline_aggregate_tok_per_s: Amount | None
    prompts: Items[SpeedRow]
    curve: Items[CurvePoint] | None = Field(description="Rates by concurrency; null if only one was asked for.")
