"""The drafter against its blind control: first drafts at the same places of a text, and accept lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.measure.prompt_rows import PromptRow, accept_length, column
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.statistics import FloatArray, Quantity, Resamples, combine


@dataclass(frozen=True, slots=True, kw_only=True)
class SamePlaces:
    """First-position acceptance of drafter and control at the places where both started a round."""

    rounds: int
    p1: Estimate
    blind: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstControl:
    """The drafter against its control.

    ``p1`` is the control's first-position acceptance over all its rounds, ``lead`` how far the drafter's is above it:
    at ``same_places``, or over all rounds where no places are known (None). ``length`` is the control's accept
    length, ``length_margin`` how far the drafter's is above it and above 1 + floor (the most common token's).
    """

    p1: Quantity
    lead: Quantity
    same_places: SamePlaces | None
    length: Estimate
    length_margin: Estimate


def against_control(
    resamples: Resamples, rows: Sequence[PromptRow], *, p1: Quantity, length: Quantity, floor: Quantity, depth: int
) -> AgainstControl:
    """Compare a drafter with its control, paired by prompt; ``rows`` are in the order of ``resamples``.

    :param p1: the drafter's first-position acceptance over all its rounds, ``length`` its accept length.
    """
    control = resamples.ratio(column(rows, "blind_hits"), column(rows, "blind_rounds"))
    control_length = accept_length(resamples, rows, depth=depth, blind=True)
    places = [row.same_places for row in rows if row.same_places is not None]
    rounds, hits, blind_hits = (
        np.array([getattr(place, name) for place in places], dtype=np.float64)
        for name in ("rounds", "hits", "blind_hits")
    )
    same, lead = None, combine(np.subtract, p1, control)
    if float((resamples.weights @ rounds).min()) > 0:
        own, blind = resamples.ratio(hits, rounds), resamples.ratio(blind_hits, rounds)
        same = SamePlaces(rounds=int(rounds.sum()), p1=own.estimate(), blind=blind.estimate())
        lead = combine(np.subtract, own, blind)
    return AgainstControl(
        p1=control,
        lead=lead,
        same_places=same,
        length=control_length.estimate(),
        length_margin=combine(np.subtract, length, combine(_larger, control_length, floor)).estimate(),
    )


def _larger(length: FloatArray | np.float64, floor: FloatArray | np.float64) -> FloatArray:
    return np.asarray(np.maximum(length, 1.0 + floor), dtype=np.float64)
