"""Requests made of counts: what a server would have reported for a given sequence of rounds."""

from collections.abc import Sequence

from pytest_specprobe.measure.request import Generation


def request_of(
    prompt_id: str,
    accepted: Sequence[int],
    *,
    depth: int,
    workload: str = "w",
    trimmed: int = 0,
    round_s: float = 0.03,
    output_ids: Sequence[int] | None = None,
    prompt_tokens: int = 10,
    finish_reason: str = "stop",
    start_s: float = 100.0,
    first_token_s: float = 0.2,
) -> Generation:
    """Return the request whose i-th round accepted ``accepted[i]`` drafts, each round taking ``round_s``."""
    chunks = [1, *(a + 1 for a in accepted)]
    chunks[-1] -= trimmed
    tokens = sum(chunks)
    first = start_s + first_token_s
    times = tuple(first + round_s * i for i in range(len(chunks)))
    ids = tuple(range(1000, 1000 + tokens)) if output_ids is None else tuple(output_ids)
    return Generation(
        prompt_id=prompt_id,
        workload=workload,
        prompt_tokens=prompt_tokens,
        cached_tokens=0,
        completion_tokens=tokens,
        output_ids=ids,
        text=" ".join(map(str, ids)),
        finish_reason=finish_reason,
        rounds=len(accepted),
        accepted=sum(accepted),
        histogram=tuple(list(accepted).count(i) for i in range(depth + 1)),
        sglang_accept_length=tokens / len(accepted) if accepted else None,
        start_s=start_s,
        first_s=first,
        last_s=times[-1],
        first_tokens=1,
        chunk_tokens=tuple(chunks),
        chunk_s=times,
    )


def plain_of(
    prompt_id: str,
    tokens: int,
    *,
    workload: str = "w",
    token_s: float = 0.012,
    output_ids: Sequence[int] | None = None,
    start_s: float = 100.0,
    first_token_s: float = 0.2,
    finish_reason: str = "stop",
) -> Generation:
    """Return a request of a server without speculation, one token per ``token_s``."""
    first = start_s + first_token_s
    times = tuple(first + token_s * i for i in range(tokens))
    ids = tuple(range(1000, 1000 + tokens)) if output_ids is None else tuple(output_ids)
    return Generation(
        prompt_id=prompt_id,
        workload=workload,
        prompt_tokens=10,
        cached_tokens=0,
        completion_tokens=tokens,
        output_ids=ids,
        text=" ".join(map(str, ids)),
        finish_reason=finish_reason,
        rounds=None,
        accepted=None,
        histogram=None,
        sglang_accept_length=None,
        start_s=start_s,
        first_s=first,
        last_s=times[-1],
        first_tokens=1,
        chunk_tokens=(1,) * tokens,
        chunk_s=times,
    )
