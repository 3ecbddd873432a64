"""Whole simulated probes, from rounds and seconds to the decision, whose truth is known.

The simulation shares no code with the package: prompts differ (beta), rounds come in bursts, machines drift (shared
by the two servers of an interleaved pair) and every request has noise of its own.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_specprobe.decide.breakeven import measured_break_even
from pytest_specprobe.decide.verdict import Decision, decide, evidence
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import measure_throughput
from pytest_specprobe.profiles import Gate

DEPTH = 2
TOKENS = 128
ZIPF = 1 / np.arange(1, 400) ** 0.9  # the most common token is about 5 % of the text
ZIPF /= ZIPF.sum()


@dataclass(frozen=True)
class World:
    """The truth: acceptance per position of the drafter and its blind control, and what steps cost (seconds)."""

    accept: float
    blind: float | None
    round_s: float = 0.0288
    plain_s: float = 1 / 82
    spread: float = 6.0  # concentration of the beta: small is heterogeneous


def rounds_of(rng: np.random.Generator, p: float) -> list[int]:
    accepted: list[int] = []
    easy, tokens = True, 1
    while tokens < TOKENS:
        if rng.random() < 0.15:
            easy = rng.random() < 0.5
        q = min(p * (1.3 if easy else 0.7), 0.98)
        a = 0
        while a < DEPTH and rng.random() < q:
            a += 1
        accepted.append(a)
        tokens += a + 1
    return accepted


def request(i: int, workload: str, accepted: list[int] | None, ids: NDArray[np.int64], seconds: float) -> Generation:
    """A request of ``TOKENS`` tokens; its steps take ``seconds`` each."""
    steps = TOKENS - 1 if accepted is None else len(accepted)
    last = 1.0 + seconds * steps
    return Generation(
        prompt_id=f"p{i}", workload=workload, prompt_tokens=20, cached_tokens=0, completion_tokens=TOKENS,
        output_ids=tuple(ids.tolist()), text="", finish_reason="length",
        rounds=None if accepted is None else steps,
        accepted=None if accepted is None else sum(accepted),
        histogram=None if accepted is None else tuple(accepted.count(k) for k in range(DEPTH + 1)),
        sglang_accept_length=None, start_s=0.9, first_s=1.0, last_s=last, first_tokens=1,
        chunk_tokens=(1, TOKENS - 1), chunk_s=(1.0, last),
    )  # fmt: skip


def probe(world: World, rng: np.random.Generator, *, prompts: int = 24, timed: bool = True) -> Decision:
    own, blind, base = [], [], []
    for i in range(prompts):
        workload = f"w{i % 4}"
        ease = rng.beta(world.spread * 0.5, world.spread * 0.5) * 2  # mean 1, the prompt's own
        ids = rng.choice(len(ZIPF), p=ZIPF, size=TOKENS)
        drift = rng.uniform(1, 1.3)
        noise = rng.normal(1, 0.03, size=2)
        own.append(request(i, workload, rounds_of(rng, world.accept * ease), ids, world.round_s * drift * noise[0]))
        base.append(request(i, workload, None, ids, world.plain_s * drift * noise[1]))
        if world.blind is not None:
            blind.append(request(i, workload, rounds_of(rng, world.blind * ease), ids, world.round_s))
    acceptance = measure_acceptance(own, depth=DEPTH, blind=blind or None)
    throughput = measure_throughput(own, baseline=base) if timed else None
    point = None
    if throughput is not None and throughput.break_even_length is not None:
        point = measured_break_even(throughput.break_even_length, round_s=throughput.round_s, depth=DEPTH)
    return decide(evidence(acceptance, throughput, point), gate=Gate())
