"""What the target accepted of the drafts, from the probe's own requests.

Invariant: everything is a ratio of sums over prompts, all intervals come from one set of resamples, and prompts whose
target text loops or is too short to time are left out of every number (but kept, named, in the rows). A draft counts
where it was delivered: what the server accepted past the end of an answer is in no number.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.measure.blind_control import SamePlaces, against_control
from pytest_specprobe.measure.prompt_rows import PromptRow, accept_length, prompt_rows
from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.statistics import CONFIDENCE, SEED, Quantity, Resamples, combine, resample

CONTEXT_EDGES = (0, 512, 2048, 8192, 32768, 131072)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The accept length over some of the prompts; the estimate is None for a single prompt or no round."""

    prompts: int
    rounds: int
    accepted: int
    accept_length: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPart:
    """A part by context length in tokens (prompt plus half of the answer), ``start <= context < stop``.

    ``beyond_drafter`` marks contexts past the drafter's own trained length, where patching its positions avoids a
    crash and not the loss.
    """

    start: int
    stop: int | None
    beyond_drafter: bool | None
    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The acceptance pass.

    ``accept_length`` is strict: 1 + sum(accepted) / sum(rounds), of drafts that were delivered. ``by_position[i]`` is
    the share of rounds with more than i of them (so ``by_position[0]`` is p1), ``conditional[i]`` that share among
    rounds that got as far as position i (None where none did). ``margin`` is the lesser of p1 - floor and of
    p1 - blind at ``same_places``, paired over prompts; ``length_margin`` is the accept length less the
    larger of the control's and 1 + floor (None without a control).
    ``coverage`` is the share of output tokens that the drafter's vocabulary can express. ``depth`` is D.
    """

    accept_length: Estimate
    sglang_accept_length: float
    depth: int
    rounds: int
    accepted: int
    histogram: tuple[int, ...]
    by_position: tuple[Estimate, ...]
    conditional: tuple[float | None, ...]
    floor: Estimate
    blind: Estimate | None
    same_places: SamePlaces | None
    blind_accept_length: Estimate | None
    length_margin: Estimate | None
    margin: Estimate
    coverage: float | None
    by_workload: Mapping[str, Part]
    by_context: tuple[ContextPart, ...]
    prompts: tuple[PromptRow, ...]

    @property
    def measured(self) -> int:
        """Return how many prompts are in the estimates."""
        return self.accept_length.n

    @property
    def dropped(self) -> tuple[PromptRow, ...]:
        """Return the prompts that are in no estimate."""
        return tuple(row for row in self.prompts if row.dropped is not None)


def measure_acceptance(
    generations: Sequence[Generation],
    *,
    depth: int,
    blind: Sequence[Generation] | None = None,
    mapped_ids: Collection[int] | None = None,
    drafter_length: int | None = None,
    dropped: Mapping[str, str] | None = None,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
) -> Acceptance:
    """Turn the requests of one acceptance pass into estimates.

    :param generations: the drafter's requests, one or more per prompt.
    :param depth: D, the most drafts one round can accept.
    :param blind: the same prompts on the blind control.
    :param mapped_ids: the target ids that the drafter's vocabulary can express; None: all of them.
    :param drafter_length: the drafter's own ``max_position_embeddings``, before any patch.
    :param dropped: prompt ids to leave out, with the reason (``texts.dropped_prompts``).
    :param confidence: of the intervals over all prompts; a sweep asks for more than 95 %.
    :raises MeasurementError: if a request reports no speculation, the histogram is deeper than ``depth``, a prompt is
        missing from the blind control, or fewer than two prompts are left.
    """
    rows = prompt_rows(generations, blind, depth=depth, dropped=dropped or {})
    kept = [row for row in rows if row.dropped is None]
    resamples = resample([row.workload for row in kept], seed=seed, confidence=confidence)
    histograms = np.array([row.histogram for row in kept], dtype=np.float64)
    rounds = histograms.sum(axis=1)
    positions = [resamples.ratio(histograms[:, i:].sum(axis=1), rounds) for i in range(1, depth + 1)]
    outputs = {row.id: [g for g in generations if g.prompt_id == row.id] for row in kept}
    floor = _floor(resamples, outputs.values())
    length = accept_length(resamples, kept, depth=depth)
    margin = combine(np.subtract, positions[0], floor)
    control = None
    if blind is not None:
        control = against_control(resamples, kept, p1=positions[0], length=length, floor=floor, depth=depth)
    if control is not None:
        margin = combine(np.minimum, margin, control.lead)
    total = histograms.sum(axis=0).astype(int)
    reached = [int(total[i:].sum()) for i in range(depth + 2)]
    return Acceptance(
        accept_length=length.estimate(),
        sglang_accept_length=sum(row.completion_tokens for row in kept) / reached[0],
        depth=depth,
        rounds=reached[0],
        accepted=sum(row.accepted for row in kept),
        histogram=tuple(int(count) for count in total),
        by_position=tuple(q.estimate() for q in positions),
        conditional=tuple(reached[i + 1] / reached[i] if reached[i] else None for i in range(depth)),
        floor=floor.estimate(),
        blind=None if control is None else control.p1.estimate(),
        same_places=None if control is None else control.same_places,
        blind_accept_length=None if control is None else control.length,
        length_margin=None if control is None else control.length_margin,
        margin=margin.estimate(),
        coverage=None if mapped_ids is None else _coverage(outputs.values(), frozenset(mapped_ids)),
        by_workload={
            name: _part([row for row in kept if row.workload == name], depth=depth, seed=seed)
            for name in dict.fromkeys(row.workload for row in kept)
        },
        by_context=_by_context(kept, drafter_length, depth=depth, seed=seed),
        prompts=tuple(rows),
    )


def _floor(resamples: Resamples, outputs: Iterable[Iterable[Generation]]) -> Quantity:
    counters = [Counter(token for g in own for token in g.output_ids) for own in outputs]
    columns = {token: i for i, token in enumerate(dict.fromkeys(t for c in counters for t in c))}
    counts = np.zeros((len(counters), len(columns)))
    for row, counter in enumerate(counters):
        for token, count in counter.items():
            counts[row, columns[token]] = count
    # A token that is rarer than the overall winner in every prompt can win no resample: leave it out.
    winner = counts[:, counts.sum(axis=0).argmax()]
    rivals = counts[:, (counts >= winner[:, None]).any(axis=0)]
    return resamples.largest_share(rivals, counts.sum(axis=1))


def _coverage(outputs: Iterable[Iterable[Generation]], mapped: frozenset[int]) -> float:
    ids = [token for own in outputs for g in own for token in g.output_ids]
    return sum(token in mapped for token in ids) / len(ids)


def _part(rows: Sequence[PromptRow], *, depth: int, seed: int) -> Part:
    estimate = None
    if len(rows) >= 2:
        resamples = resample([row.workload for row in rows], seed=seed)
        estimate = accept_length(resamples, rows, depth=depth).estimate()
    return Part(
        prompts=len(rows),
        rounds=sum(row.rounds for row in rows),
        accepted=sum(row.accepted for row in rows),
        accept_length=estimate,
    )


def _by_context(
    rows: Sequence[PromptRow], drafter_length: int | None, *, depth: int, seed: int
) -> tuple[ContextPart, ...]:
    edges = sorted({*CONTEXT_EDGES, *([] if drafter_length is None else [drafter_length])})
    context = [row.prompt_tokens + row.completion_tokens // (2 * row.requests) for row in rows]
    parts = []
    for start, stop in zip(edges, [*edges[1:], None], strict=True):
        inside = [row for row, c in zip(rows, context, strict=True) if start <= c and (stop is None or c < stop)]
        if inside:
            beyond = None if drafter_length is None else start >= drafter_length
            parts.append(
                ContextPart(start=start, stop=stop, beyond_drafter=beyond, part=_part(inside, depth=depth, seed=seed))
            )
    return tuple(parts)
