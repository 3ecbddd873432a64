"""Run the prompts: one acceptance pass, and one throughput pass that alternates between two servers.

Invariant: a pass returns every request it was asked for or raises; nothing is retried, dropped or replaced.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_specprobe.measure.records import Generation, Prompt


class Client(Protocol):
    """What a pass needs of a server; calls may come from several threads at once and raise SpecprobeError."""

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        """Run one request to its end."""
        ...

    def flush(self) -> None:
        """Empty the prefix cache; raise if the server does not confirm it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a pass is. ``accept_length`` is None before the first round; ``left_s`` before the first request."""

    done: int
    total: int
    rounds: int
    accept_length: float | None
    elapsed_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRuns:
    """The requests of one throughput pass, warm-up left out, in the order they ran.

    ``drafter_wall_s`` and ``baseline_wall_s`` are the seconds each server was at work, summed over its turns.
    ``baseline`` is empty, and its wall None, without a baseline server.
    """

    drafter: tuple[Generation, ...]
    baseline: tuple[Generation, ...]
    drafter_wall_s: float
    baseline_wall_s: float | None


def acceptance_pass(
    client: Client,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    concurrency: int = 1,
    temperature: float = 0.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Generation, ...]:
    """Run every prompt once, greedily, to its natural end; the cache is flushed first.

    :raises MeasurementError: if a request fails; it names the prompt.
    """
    raise NotImplementedError


def throughput_pass(
    drafter: Client,
    baseline: Client | None,
    prompts: Sequence[Prompt],
    *,
    new_tokens: int | Mapping[str, int],
    repeats: int = 2,
    warmup: int = 1,
    concurrency: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> ThroughputRuns:
    """Run every prompt ``repeats`` times on both servers in turn, at fixed lengths.

    :param new_tokens: tokens per request, one number or one per prompt id (``natural_lengths``).
    :raises MeasurementError: if a request fails; it names the prompt.
    """
    raise NotImplementedError


def natural_lengths(generations: Sequence[Generation], *, at_least: int = 16) -> dict[str, int]:
    """Return each prompt's own answer length, so that a fixed-length pass does not run past the natural end.

    Text forced past its end loops or turns to noise, and both are drafted unlike real text.
    """
    return {g.prompt_id: max(g.completion_tokens, at_least) for g in generations}
