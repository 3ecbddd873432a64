"""A server under load, in simulated time: what its requests look like to a client of several streams.

Prefill goes before decode, as in SGLang: while prompts wait, every other stream gets nothing. The client reads each
stream in a thread of its own, and while many run, one of them is now and then not let run, whatever the server does.
"""

from dataclasses import dataclass, field

import numpy as np

from pytest_specprobe.measure.request import Generation

# As on one H200 with SGLang 0.5.17 and SmolLM2, where the median first token of one stream came after 30 ms.
PREFILL_S, ARRIVING_S = 0.018, 0.010
STARVED_S, MANY = 0.080, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One server at one level.

    ``step_s`` is a decode step (a round, or one plain token) in seconds. ``freeze`` is (seconds after the pass
    began, seconds): the server does nothing at all then. ``long_prompt`` is a prompt of so many times the usual
    tokens. ``running`` is how many requests the server decodes at once.
    """

    streams: int
    step_s: float
    freeze: tuple[float, float] | None = None
    long_prompt: int = 1
    running: int = 64
    steps: tuple[int, int] = (60, 190)
    prompts: int = 40


@dataclass(slots=True)
class _Request:
    number: int
    start_s: float
    steps: int
    tokens: int
    arrivals: list[float] = field(default_factory=list)


def requests(level: Level, *, seed: int, start_s: float = 100.0) -> list[Generation]:
    """Return the requests of one burst over all prompts, in the order of the prompts."""
    draw = np.random.default_rng(seed)
    waiting = [
        _Request(n, 0.0, int(draw.integers(*level.steps)), 60 * (level.long_prompt if n == level.prompts // 2 else 1))
        for n in range(level.prompts)
    ]
    every = list(waiting)
    now = start_s
    sent: list[_Request] = []
    running: list[_Request] = []
    frozen = level.freeze is None

    def send(at: float) -> None:
        if waiting:
            request = waiting.pop(0)
            request.start_s = at
            sent.append(request)

    for stream in range(level.streams):
        send(start_s + 0.002 * stream)
    while sent or running or waiting:
        if not frozen and level.freeze is not None and now >= start_s + level.freeze[0]:
            now, frozen = now + level.freeze[1], True
        here = [r for r in sent if r.start_s + ARRIVING_S <= now][: level.running - len(running)]
        if here:
            now += PREFILL_S * float(draw.uniform(0.9, 1.5)) * max(r.tokens for r in here) / 60 + 0.0005 * len(here)
            running += here
            sent = [r for r in sent if r not in here]
        elif running:
            now += level.step_s * float(draw.uniform(0.8, 1.3))
        else:
            now = min(r.start_s for r in sent) + ARRIVING_S
            continue
        for request in here or list(running):
            request.arrivals.append(max([now + float(draw.uniform(0, 0.001)), *request.arrivals[-1:]]))
            if len(request.arrivals) > request.steps:
                running.remove(request)
                send(now + 0.001)
    return [_generation(request, _starved(request, every, draw)) for request in every]


def _starved(request: _Request, every: list[_Request], draw: np.random.Generator) -> list[float]:
    """The thread of every other stream sleeps once: what came meanwhile is read at once when it wakes."""
    asleep = float(draw.uniform(request.arrivals[1], request.arrivals[-1]))
    busy = sum(r.arrivals[0] < asleep and r.arrivals[-1] > asleep + STARVED_S for r in every)
    if busy < MANY // 2 or draw.random() < 0.5:
        return request.arrivals
    return [max(at, asleep + STARVED_S) if at > asleep else at for at in request.arrivals]


def _generation(request: _Request, times: list[float]) -> Generation:
    count = len(times)
    return Generation(
        prompt_id=f"p{request.number}",
        workload="w",
        prompt_tokens=request.tokens,
        cached_tokens=0,
        completion_tokens=count,
        output_ids=tuple(range(count)),
        text="",
        finish_reason="length",
        rounds=count - 1,
        accepted=0,
        histogram=(count - 1, 0, 0),
        sglang_accept_length=None,
        start_s=request.start_s,
        first_s=times[0],
        last_s=times[-1],
        first_tokens=1,
        chunk_tokens=(1,) * count,
        chunk_s=tuple(times),
    )
