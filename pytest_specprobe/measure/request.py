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
    ``accepted``. ``chunk_tokens`` are the tokens of each arrival in order (their sum is ``completion_tokens``).
    ``server_s`` is the server's own time for the request in seconds, by its own clock (``e2e_latency``); None where
    it does not say.
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


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval and the count behind it (``E`` in report.json).

    ``n`` counts prompts, the unit that is resampled. Undefined is no Estimate at all (None), never 0 or -1.
    """

    value: float
    low: float
    high: float
    n: int
