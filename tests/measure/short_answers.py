"""A pair whose answers are a few tokens, each as long as its prompt says: 3 to 8."""

import numpy as np

from pytest_specprobe.measure.request import Generation, Prompt
from tests.support.requests import plain_of, request_of

DEPTH = 3
ROUND_S, TOKEN_S = 0.025, 0.012


class ShortAnswers:
    """A target whose answers end after a few tokens, and a drafter that is right far more often after the end.

    As a real pair does: an answer is hard to guess, and what follows its end is a loop.
    """

    def __init__(self, *, speculates: bool, seed: int = 0) -> None:
        self._speculates, self._seed = speculates, seed

    def flush(self) -> None:
        """Nothing is cached."""

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        natural = 3 + prompt.input_ids[0] % 6
        tokens = max_new_tokens if ignore_eos else natural
        first = 1000 * (1 + prompt.input_ids[0])
        ids = tuple(range(first, first + tokens))
        if not self._speculates:
            return plain_of(prompt.id, tokens, token_s=TOKEN_S, output_ids=ids)
        draw = np.random.default_rng((self._seed, prompt.input_ids[0]))
        accepted, made = [], 1
        while made < tokens:
            hard = made < natural
            run = 0
            while run < DEPTH and draw.random() < (0.25 if hard else 0.97):
                run += 1
            accepted.append(run)
            made += run + 1
        return request_of(prompt.id, accepted, depth=DEPTH, trimmed=made - tokens, round_s=ROUND_S, output_ids=ids)
