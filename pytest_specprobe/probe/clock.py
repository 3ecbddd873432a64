"""A clock for pytest-benchmark that runs in recorded seconds per token, so that its OPS column reads tok/s."""

from collections.abc import Sequence

from pytest_specprobe.measure.throughput import SpeedRow


class TokenClock:
    """A timer that stands still except when told to advance.

    pytest-benchmark reads it before and after each round; between the two, one prompt's share is added.
    """

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Return the clock's time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self._now += seconds


def seconds_per_token(rows: Sequence[SpeedRow]) -> tuple[float, ...]:
    """Return one value per prompt whose mean is sum(decode seconds) / sum(tokens) over all prompts.

    pytest-benchmark averages rounds with equal weight while tok/s is a ratio of sums, so each prompt's decode
    seconds are divided by the *mean* tokens per prompt: OPS = 1 / mean is then the report's tok/s exactly.
    """
    tokens_per_prompt = sum(row.tokens for row in rows) / len(rows)
    return tuple(row.decode_s / tokens_per_prompt for row in rows)
