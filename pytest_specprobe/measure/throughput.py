"""How fast the drafter's server and its baseline decode, paired by prompt.

Invariant: a rate is a ratio of sums over prompts, and tok/s, baseline, speedup and break-even come from the same
resamples, so that ``speedup = delivered tokens per round / break-even accept length`` holds in every one of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.end_to_end import measure_end_to_end, total_s
from pytest_specprobe.measure.latency import Latency, measure_latency
from pytest_specprobe.measure.overhead import Overhead, client_overhead
from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.statistics import CONFIDENCE, SEED, FloatArray, Quantity, Resamples, combine, resample

BaselineSource = Literal["boot", "alternating", "attached", "stored", "declared"]
"""Where a baseline is from; ``alternating`` was booted in turn with the drafter's server, never beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBaseline:
    """A baseline that was not measured in this run: tok/s of one stream, where it is from, and its age in seconds.

    ``first_token_s`` is the median time to the first token of the speculating server beside which it was measured.
    """

    tok_per_s: Estimate
    source: Literal["stored", "declared"]
    age_s: float | None = None
    first_token_s: float | None = None

    def seen_from(self, first_token_s: float) -> "KnownBaseline":
        """Return it as wide as the machine's speed may have changed since, by the first tokens of today's server."""
        if self.first_token_s is None:
            return self
        change = max(first_token_s / self.first_token_s, self.first_token_s / first_token_s)
        rate = self.tok_per_s
        return replace(self, tok_per_s=replace(rate, low=rate.low / change, high=rate.high * change))


def declared(tok_per_s: float) -> KnownBaseline:
    """Return a baseline that the user declared; it has no interval of its own."""
    return KnownBaseline(tok_per_s=Estimate(tok_per_s, tok_per_s, tok_per_s, 0), source="declared")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """One prompt's sums over all its requests: tokens after the first arrival, and the seconds they took.

    ``total_s`` and ``baseline_total_s`` are of whole requests, the time of the first token included.
    """

    id: str
    workload: str
    requests: int
    tokens: int
    decode_s: float
    total_s: float
    rounds: float
    accepted: int
    baseline_tokens: int | None
    baseline_decode_s: float | None
    baseline_total_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The throughput pass.

    ``tok_per_s`` is the decode rate of one stream: sum(tokens after the first arrival) / sum(t_last - t_first).
    ``round_s`` is S, sum(decode seconds) / sum(rounds); ``break_even_length`` is B = S x baseline tok/s;
    ``tokens_per_round`` is what a round delivered, so ``speedup = tokens_per_round / break_even_length`` exactly;
    the strict ``accept_length`` counts delivered drafts, and is the same number unless a first arrival was coalesced.
    ``end_to_end_speedup`` is of whole requests, first-token time included (None without a measured baseline).
    ``aggregate_tok_per_s`` is all tokens over the pass's wall time, all streams and dropped prompts too (None when
    the pass was not timed as a whole).
    """

    tok_per_s: Estimate
    baseline_tok_per_s: Estimate | None
    baseline_source: BaselineSource | None
    baseline_age_s: float | None
    speedup: Estimate | None
    round_s: float
    break_even_length: Estimate | None
    accept_length: Estimate
    tokens_per_round: float
    end_to_end_tok_per_s: float
    baseline_end_to_end_tok_per_s: float | None
    end_to_end_speedup: Estimate | None
    latency: Latency
    baseline_latency: Latency | None
    overhead: Overhead | None
    baseline_overhead: Overhead | None
    concurrency: int
    aggregate_tok_per_s: float | None
    baseline_aggregate_tok_per_s: float | None
    prompts: tuple[SpeedRow, ...]

    @property
    def aggregate_speedup(self) -> float | None:
        """Return all streams' tok/s over those of the baseline; None where one of them was not timed as a whole."""
        own, base = self.aggregate_tok_per_s, self.baseline_aggregate_tok_per_s
        return None if own is None or base is None else own / base


def measure_throughput(
    drafter: Sequence[Generation],
    *,
    baseline: Sequence[Generation] | KnownBaseline | None,
    baseline_source: BaselineSource = "boot",
    dropped: Mapping[str, str] | None = None,
    concurrency: int = 1,
    wall_s: float | None = None,
    baseline_wall_s: float | None = None,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
) -> Throughput:
    """Turn one throughput pass into rates, paired by prompt.

    :param drafter: the drafter's requests, one or more per prompt, warm-up left out.
    :param baseline: the same prompts on the baseline server, a number known from elsewhere, or None.
    :param baseline_source: where measured baseline requests came from; a ``KnownBaseline`` says it itself.
    :param dropped: prompt ids to leave out, with the reason.
    :param wall_s: seconds that the drafter's part of the pass took, all streams together.
    :param confidence: of every interval; a sweep asks for more than 95 %, since it reads several.
    :raises MeasurementError: if a request has no decode time or no rounds, a prompt is missing on one side, or fewer
        than two prompts are left.
    """
    left_out = dropped or {}
    own = _by_prompt(g for g in drafter if g.prompt_id not in left_out)
    known = baseline if isinstance(baseline, KnownBaseline) else None
    measured = () if baseline is None or isinstance(baseline, KnownBaseline) else baseline
    other = None
    if baseline is not None and known is None:
        other = _by_prompt(g for g in measured if g.prompt_id not in left_out)
        _same_prompts(own, other)
    rows = [_row(requests, None if other is None else other[i]) for i, requests in own.items()]
    resamples = resample([row.workload for row in rows], seed=seed, confidence=confidence)
    tokens, seconds, rounds = (_column(rows, name) for name in ("tokens", "decode_s", "rounds"))
    rate = resamples.ratio(tokens, seconds)
    round_time = resamples.ratio(seconds, rounds)
    requests = [g for group in own.values() for g in group]
    latency = measure_latency(requests)
    if known is not None:
        known = known.seen_from(latency.first_token_s.p50)
    base = _baseline(resamples, rows, known=known, measured=other is not None)
    plain = [g for group in (other or {}).values() for g in group]
    whole = measure_end_to_end(
        resamples, list(own.values()), None if other is None else [other[prompt_id] for prompt_id in own]
    )
    return Throughput(
        tok_per_s=rate.estimate(),
        baseline_tok_per_s=None if base is None else base.estimate(),
        baseline_source=known.source if known else baseline_source if plain else None,
        baseline_age_s=known.age_s if known else None,
        speedup=None if base is None else combine(np.divide, rate, base).estimate(),
        round_s=round_time.value,
        break_even_length=None if base is None else combine(np.multiply, round_time, base).estimate(),
        accept_length=_strict_length(resamples, rows, requests),
        tokens_per_round=float(tokens.sum() / rounds.sum()),
        end_to_end_tok_per_s=whole.tok_per_s,
        baseline_end_to_end_tok_per_s=whole.baseline_tok_per_s,
        end_to_end_speedup=whole.speedup,
        latency=latency,
        baseline_latency=measure_latency(plain) if plain else None,
        overhead=client_overhead(requests),
        baseline_overhead=client_overhead(plain),
        concurrency=concurrency,
        aggregate_tok_per_s=_aggregate(drafter, wall_s),
        baseline_aggregate_tok_per_s=_aggregate(measured, baseline_wall_s),
        prompts=tuple(rows),
    )


def decode_rate(requests: Sequence[Generation]) -> float:
    """Return tok/s of one stream over these requests: sum(tokens after the first arrival) / sum(decode seconds)."""
    return sum(map(_decoded, requests)) / sum(map(_decode_s, requests))


def _by_prompt(generations: Iterable[Generation]) -> dict[str, list[Generation]]:
    groups: dict[str, list[Generation]] = {}
    for generation in generations:
        groups.setdefault(generation.prompt_id, []).append(generation)
    return groups


def _same_prompts(own: Mapping[str, object], other: Mapping[str, object]) -> None:
    alone = sorted(own.keys() ^ other.keys())
    if alone:
        raise MeasurementError(
            f"prompt {alone[0]} ran on only one of the two servers, and so did {len(alone) - 1} more",
            culprit="harness",
            fix="run the same prompts on both servers",
        )


def _row(requests: Sequence[Generation], plain: Sequence[Generation] | None) -> SpeedRow:
    return SpeedRow(
        id=requests[0].prompt_id,
        workload=requests[0].workload,
        requests=len(requests),
        tokens=sum(_decoded(g) for g in requests),
        decode_s=sum(_decode_s(g) for g in requests),
        total_s=total_s(requests),
        rounds=sum(_rounds(g) for g in requests),
        accepted=sum(g.delivered or 0 for g in requests),
        baseline_tokens=None if plain is None else sum(_decoded(g) for g in plain),
        baseline_decode_s=None if plain is None else sum(_decode_s(g) for g in plain),
        baseline_total_s=None if plain is None else total_s(plain),
    )


def _decoded(generation: Generation) -> int:
    return generation.completion_tokens - generation.first_tokens


def _decode_s(generation: Generation) -> float:
    seconds = generation.last_s - generation.first_s
    if _decoded(generation) <= 0 or seconds <= 0:
        raise MeasurementError(
            f"request {generation.prompt_id} has no decode time: {generation.completion_tokens} tokens, "
            f"{generation.first_tokens} of them in the first arrival",
            culprit="workload",
            fix="measure throughput over more new tokens, with a server that streams every token",
        )
    return seconds


def _rounds(generation: Generation) -> float:
    """Return the rounds between first and last arrival.

    The first arrival should carry the prefill token alone; if more tokens were coalesced into it, their rounds are
    outside the timed window, and the rest is taken in proportion.
    """
    if not generation.rounds:
        raise MeasurementError(
            f"request {generation.prompt_id} reports no speculation",
            culprit="engine",
            fix="look for 'speculative' in the server's log; SGLang reports spec_verify_ct from 0.5.9 on",
        )
    return generation.rounds * _decoded(generation) / (generation.completion_tokens - 1)


def _column(rows: Sequence[SpeedRow], name: str) -> FloatArray:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def _baseline(
    resamples: Resamples, rows: Sequence[SpeedRow], *, known: KnownBaseline | None, measured: bool
) -> Quantity | None:
    if known is not None:
        return resamples.known(known.tok_per_s)
    if measured:
        return resamples.ratio(_column(rows, "baseline_tokens"), _column(rows, "baseline_decode_s"))
    return None


def _strict_length(resamples: Resamples, rows: Sequence[SpeedRow], requests: Sequence[Generation]) -> Estimate:
    per_prompt = {row.id: 0 for row in rows}
    for generation in requests:
        per_prompt[generation.prompt_id] += generation.rounds or 0
    rounds = np.array(list(per_prompt.values()), dtype=np.float64)
    return resamples.ratio(rounds + _column(rows, "accepted"), rounds).estimate()


def _aggregate(requests: Sequence[Generation], wall_s: float | None) -> float | None:
    return None if wall_s is None or not requests else sum(g.completion_tokens for g in requests) / wall_s
