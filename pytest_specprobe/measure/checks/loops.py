"""Does a text repeat itself? Repetition is easy to draft, so a looping text says nothing about a drafter.

Invariant: looks at token ids alone, and is meant for the *target's* text, so that the answer does not depend on the
drafter being measured.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pytest_specprobe.measure.request import Generation

_LONGEST_PERIOD = 128
_TAIL_TOKENS = 24
_GRAM = 8
_GRAM_TOKENS = 48
_GRAM_SHARE = 0.5


def looping(generations: Iterable[Generation]) -> dict[str, str]:
    """Return the ids of prompts whose text loops, each with what was seen."""
    return {g.prompt_id: found for g in generations if (found := loop(g.output_ids)) is not None}


def loop(ids: Sequence[int]) -> str | None:
    """Return what repeats in a text of token ids, or None.

    A text loops if it ends in at least three turns, and 24 tokens, of one period of up to 128 tokens, or if at least
    half of its runs of 8 tokens occurred earlier in it (from 48 tokens on).
    """
    text = np.asarray(ids, dtype=np.int64)
    for period in range(1, min(_LONGEST_PERIOD, len(text) // 3) + 1):
        same = text[period:] == text[:-period]
        repeated = len(same) if same.all() else int(same[::-1].argmin())
        if repeated >= max(2 * period, _TAIL_TOKENS - period):
            return f"ends in a loop of {period} tokens, repeated over {repeated + period} tokens"
    if len(text) >= _GRAM_TOKENS:
        grams = np.lib.stride_tricks.sliding_window_view(text, _GRAM)
        share = 1 - len(np.unique(grams, axis=0)) / len(grams)
        if share >= _GRAM_SHARE:
            return f"{share:.0%} of its runs of {_GRAM} tokens are repeats"
    return None
