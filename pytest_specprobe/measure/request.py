"""What one request and one estimate look like, everywhere above the HTTP client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt of a workload: token ids as the target's own chat template and tokenizer gave them.

    ``workload`` names the domain (``code``, ``docs``); ``id`` is unique within the probe and stable between
    runs, since later comparisons pair by it.
    """

    id: str
    workload: str
    text: str
    input_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One finished request, as the server reported it and as the client timed it.

    Times are ``time.perf_counter()`` seconds of one process. ``first_s`` is the arrival of the first token,
    ``last_s`` of the last; ``first_tokens`` is how many tokens that first arrival carried (1 unless the server
    coalesced), so the decode rate is ``(completion_tokens - first_tokens) / (last_s - first_s)``.
    ``rounds``, ``accepted`` and ``histogram`` are None together when the server reported no speculation;
    ``histogram[i]`` counts rounds with exactly i accepted drafts, so its sum is ``rounds`` and its weighted sum
    ``accepted``. SGLang counts the last round's drafts past the end of the answer too: ``delivered`` and
    ``delivered_histogram`` leave those out. ``chunk_tokens`` are the tokens of each arrival in order (their sum is
    ``completion_tokens``). ``server_s`` is the server's own time for the request in seconds, by its own clock
    (``e2e_latency``); None where it does not say.
    """

    prompt_id: str
    workload: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    output_ids: tuple[int, ...]
    text: str
    finish_reason: str
    rounds: int | None
    accepted: int | None
    histogram: tuple[int, ...] | None
    sglang_accept_length: float | None
    start_s: float
    first_s: float
    last_s: float
    first_tokens: int
    chunk_tokens: tuple[int, ...]
    chunk_s: tuple[float, ...]
    server_s: float | None = None

    @property
    def trimmed(self) -> int:
        """Return how many tokens were cut off at the end; negative where the counters contradict each other."""
        return 1 + (self.rounds or 0) + (self.accepted or 0) - self.completion_tokens

    @property
    def delivered(self) -> int | None:
        """Return the accepted drafts up to the end, so that ``completion_tokens = 1 + rounds + delivered``.

        Where the counters contradict each other it is ``accepted``; None without speculation.
        """
        if self.accepted is None:
            return None
        return self.accepted - self.trimmed if 0 <= self.trimmed <= self.accepted else self.accepted

    @property
    def delivered_histogram(self) -> tuple[int, ...] | None:
        """Return ``histogram`` of what was delivered: its sum is ``rounds``, its weighted sum ``delivered``.

        Only the last round is cut. Where it arrived together with others, what it accepted is not known, and a round
        of the most drafts stands for it. Where the counters contradict each other it is ``histogram``.
        """
        if self.histogram is None or self.accepted is None or self.delivered == self.accepted:
            return self.histogram
        counts, cut = list(self.histogram), self.trimmed
        if min(counts) < 0 or sum(i * count for i, count in enumerate(counts)) != self.accepted:
            return self.histogram
        last = sum(self.chunk_tokens[-1:]) - 1 + cut
        alone = len(self.chunk_tokens) == sum(counts) + 1 and last < len(counts) and counts[last] > 0
        while cut:
            drafts = last if alone else max(i for i, count in enumerate(counts) if count)
            less = min(cut, drafts)
            counts[drafts] -= 1
            counts[drafts - less] += 1
            cut -= less
        return tuple(counts)


# Fewer prompts say too little of the workload or context length that they stand for: no interval of them is shown,
# and no gate goes by it.
MIN_STRATUM = 12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval and the count behind it (``E`` in report.json).

    ``n`` counts prompts, the unit that is resampled. Undefined is no Estimate at all (None), never 0 or -1.
    """

    value: float
    low: float
    high: float
    n: int
