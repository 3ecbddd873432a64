"""Where rounds start in a text, and what two drafters make of the same places.

Rounds of a better drafter start elsewhere: it skips the easy stretches, in which rounds of the other start and are
accepted, so that shares of each one's own rounds compare different tokens. Invariant: a place counts only where both
started a round on the same text so far, and went on with the same token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pytest_specprobe.measure.request import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Rounds that drafter and control started at the same places, and how many first drafts each got accepted."""

    rounds: int
    hits: int
    blind_hits: int


def same_places(own: Sequence[Generation], control: Sequence[Generation]) -> Places:
    """Count the rounds that both started at the same places, over the requests of one prompt in order."""
    pairs: list[tuple[bool, bool]] = []
    for ours, theirs in zip(own, control, strict=False):
        drafts, others = first_drafts(ours), first_drafts(theirs)
        alike = _alike(ours.output_ids, theirs.output_ids)
        pairs += [(drafts[at], others[at]) for at in drafts.keys() & others.keys() if at < alike]
    return Places(rounds=len(pairs), hits=sum(hit for hit, _ in pairs), blind_hits=sum(hit for _, hit in pairs))


def first_drafts(generation: Generation) -> Mapping[int, bool]:
    """Return where each round started, in tokens of the answer before it, and whether its first draft was accepted.

    Empty where an arrival carried several rounds: it does not say where they started. A first draft is always
    delivered, since a round delivers one token at least.
    """
    chunks = generation.chunk_tokens
    if not generation.rounds or chunks[:1] != (1,) or len(chunks) != generation.rounds + 1:
        return {}
    accepted = [tokens - 1 for tokens in chunks[1:]]
    accepted[-1] += (generation.accepted or 0) - (generation.delivered or 0)
    return {start: drafts > 0 for start, drafts in zip(accumulate(chunks), accepted, strict=False)}


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens both texts begin with alike."""
    parted = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(parted, min(len(one), len(other)))
