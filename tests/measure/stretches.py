"""Texts of easy and hard stretches, and what a drafter and its blind control make of them."""

import numpy as np

from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.request import Generation
from tests.support.requests import request_of

DEPTH, TOKENS = 5, 160


def stretches(rng: np.random.Generator) -> list[bool]:
    """Which tokens of a text are easy: they come in runs."""
    easy: list[bool] = []
    while len(easy) < TOKENS + DEPTH:
        easy += [True] * rng.integers(1, 16) + [False] * rng.integers(1, 8)
    return easy


def drafted(
    prompt: int, easy: list[bool], chances: tuple[float, float], rng: np.random.Generator, **how: int
) -> Generation:
    """A text drafted with these chances at easy and hard tokens; a control's chain is worth its first draft alone."""
    depth = how.get("chain", DEPTH)
    accepted, made = [], 1
    while made < TOKENS:
        hits = 0
        while hits < depth and rng.random() < chances[0 if easy[made + hits] else 1]:
            hits += 1
        accepted.append(hits)
        made += hits + 1
    ids = range(1000 * prompt, 1000 * prompt + TOKENS)
    return request_of(f"p{prompt}", accepted, depth=DEPTH, trimmed=made - TOKENS, output_ids=tuple(ids))


def probe(
    own: tuple[float, float], control: tuple[float, float], *, seed: int, chain: int = 1, prompts: int = 32
) -> Acceptance:
    rng = np.random.default_rng(seed)
    texts = [stretches(rng) for _ in range(prompts)]
    return measure_acceptance(
        [drafted(i, easy, own, rng) for i, easy in enumerate(texts)],
        depth=DEPTH,
        blind=[drafted(i, easy, control, rng, chain=chain) for i, easy in enumerate(texts)],
    )
