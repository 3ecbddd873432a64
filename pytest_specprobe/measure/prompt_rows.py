"""What the acceptance passes counted of each prompt.

Invariant: a draft counts where it was delivered; a prompt that is left out has its row all the same, with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.round_starts import Places, same_places
from pytest_specprobe.measure.statistics import FloatArray, Quantity, Resamples, combine


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One prompt's counts, summed over its requests; ``dropped`` says why it is in no estimate (None: in all)."""

    id: str
    workload: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    rounds: int
    accepted: int
    histogram: tuple[int, ...]
    finish_reason: str
    blind_rounds: int | None
    blind_hits: int | None
    blind_accepted: int | None
    same_places: Places | None
    dropped: str | None


def accept_length(resamples: Resamples, rows: Sequence[PromptRow], *, depth: int, blind: bool = False) -> Quantity:
    """Return the strict accept length over these prompts, the drafter's or its blind control's."""
    rounds, accepted = (column(rows, f"{'blind_' * blind}{name}") for name in ("rounds", "accepted"))
    share = resamples.ratio(accepted, rounds)
    # Weighted sums round: without the limit, every draft accepted could read a hair above D + 1.
    return combine(lambda drafts: 1.0 + np.minimum(drafts, depth), share)


def prompt_rows(
    generations: Sequence[Generation],
    blind: Sequence[Generation] | None,
    *,
    depth: int,
    dropped: Mapping[str, str],
) -> list[PromptRow]:
    """Sum the requests of each prompt, and those of its blind control.

    :raises MeasurementError: if a request reports no speculation, a histogram is deeper than ``depth``, or a prompt
        has no round on the control.
    """
    controls = _by_prompt(blind or ())
    rows = []
    for prompt_id, own in _by_prompt(generations).items():
        histogram = _histogram(own, depth)
        control = _histogram(controls.get(prompt_id, ()), depth)
        rounds = sum(histogram)
        reason = dropped.get(prompt_id)
        if reason is None and rounds == 0:
            reason = "no round: the answer is one token"
        if reason is None and blind is not None and sum(control) == 0:
            raise MeasurementError(
                f"prompt {prompt_id} has no round on the blind control, so it cannot be paired",
                culprit="harness",
                fix="run the same prompts on both servers",
            )
        rows.append(
            PromptRow(
                id=prompt_id,
                workload=own[0].workload,
                requests=len(own),
                prompt_tokens=own[0].prompt_tokens,
                completion_tokens=sum(g.completion_tokens for g in own),
                rounds=rounds,
                accepted=_accepted(histogram),
                histogram=histogram,
                finish_reason=own[0].finish_reason,
                blind_rounds=None if blind is None else sum(control),
                blind_hits=None if blind is None else sum(control[1:]),
                blind_accepted=None if blind is None else _accepted(control),
                same_places=None if blind is None else same_places(own, controls.get(prompt_id, ())),
                dropped=reason,
            )
        )
    return rows


def _by_prompt(generations: Iterable[Generation]) -> dict[str, list[Generation]]:
    groups: dict[str, list[Generation]] = {}
    for generation in generations:
        groups.setdefault(generation.prompt_id, []).append(generation)
    return groups


def _histogram(generations: Iterable[Generation], depth: int) -> tuple[int, ...]:
    """Return the summed histogram of what was delivered, length ``depth + 1``."""
    total = [0] * (depth + 1)
    for generation in generations:
        if generation.histogram is None:
            if generation.completion_tokens <= 1:
                continue  # prefill gave the whole answer, so there was nothing to speculate on
            raise MeasurementError(
                f"request {generation.prompt_id} reports no speculation",
                culprit="engine",
                fix="look for 'speculative' in the server's log; SGLang reports spec_verify_ct from 0.5.9 on",
            )
        if any(generation.histogram[depth + 1 :]):
            raise MeasurementError(
                f"request {generation.prompt_id} accepted {len(generation.histogram) - 1} drafts in a round; "
                f"the draft depth is {depth}",
                culprit="harness",
                fix="measure with the speculation settings that the server was booted with",
            )
        for i, count in enumerate((generation.delivered_histogram or ())[: depth + 1]):
            total[i] += count
    return tuple(total)


def _accepted(histogram: Sequence[int]) -> int:
    return sum(i * count for i, count in enumerate(histogram))


def column(rows: Sequence[PromptRow], name: str) -> FloatArray:
    """Return one count of each row, float64 [prompts]."""
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)
