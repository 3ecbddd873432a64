"""Run the prompts: one acceptance pass, and one throughput pass that alternates between two servers.

Invariant: a pass returns every request it was asked for or raises; nothing is retried, dropped or replaced.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, dataclass
from threading import Lock
from typing import Protocol

from pytest_specprobe.errors import MeasurementError, SpecprobeError
from pytest_specprobe.measure.request import Generation, Prompt


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
    drafter_wall_s: float | None
    baseline_wall_s: float | None


@dataclass(frozen=True, slots=True)
class Contender:
    """Who takes part in alternating turns: a server, and how to make it (or one of its settings) the current one.

    ``switch`` proves what it made current, and tells whether that must be warmed up again.
    """

    client: Client
    switch: Callable[[], bool] | None = None

    def take(self) -> bool:
        """Get ready for a turn: the setting current, the cache empty; tell whether it must be warmed up again."""
        cold = self.switch is not None and self.switch()
        _flush(self.client)
        return cold


@dataclass(frozen=True, slots=True)
class TurnRuns:
    """One contender's requests, in the order they ran, and the seconds it was at work."""

    generations: tuple[Generation, ...]
    wall_s: float | None


def acceptance_pass(
    client: Client,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    concurrency: int = 1,
    temperature: float = 0.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Generation, ...]:
    """Run every prompt once, to its natural end, and return the requests in the order of the prompts.

    The prefix cache is flushed first. Temperature 0 is greedy.

    :raises MeasurementError: if a request fails; it names the prompt.
    """
    _flush(client)
    meter = _Meter(len(prompts), progress)
    jobs = [
        _Job(client, prompt, max_new_tokens=max_new_tokens, ignore_eos=False, temperature=temperature)
        for prompt in prompts
    ]
    return tuple(_run(jobs, concurrency=concurrency, meter=meter))


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
    """Run every prompt ``repeats`` times on both servers in turn, greedily, at fixed lengths.

    A turn is one prompt at concurrency 1, and all prompts at a higher one (so that the load is steady). Turns
    alternate A B, B A, A B, ... (and the other way round in the next repeat), so that a drift of the machine meets
    both alike; the cache is flushed before each. The first ``warmup`` prompts run on both servers before, at the
    measured lengths and concurrency, and are thrown away: the first request of a shape compiles.

    :param new_tokens: tokens per request, one number or one per prompt id (``natural_lengths``).
    :raises MeasurementError: if a request fails; it names the prompt.
    """
    contenders = {"drafter": Contender(drafter)} | ({} if baseline is None else {"baseline": Contender(baseline)})
    turns = alternate(
        contenders,
        prompts,
        new_tokens=new_tokens,
        repeats=repeats,
        warmup=warmup,
        concurrency=concurrency,
        progress=progress,
    )
    return _both(turns)


def apart_pass(
    drafter: Contender,
    baseline: Contender,
    prompts: Sequence[Prompt],
    *,
    new_tokens: int | Mapping[str, int],
    concurrency: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> ThroughputRuns:
    """Run every prompt twice on each of two servers that cannot be up together: A, B, B, A, all prompts a turn.

    So a steady drift of the machine meets both alike, at the price of two more boots. What came up anew is warmed up.

    :raises MeasurementError: if a request fails; it names the prompt.
    """
    contenders = {"drafter": drafter, "baseline": baseline}
    return _both(
        alternate(
            contenders,
            prompts,
            new_tokens=new_tokens,
            repeats=2,
            concurrency=concurrency,
            progress=progress,
            apart=True,
        )
    )


def _both(turns: Mapping[str, TurnRuns]) -> ThroughputRuns:
    own, plain = turns["drafter"], turns.get("baseline", TurnRuns((), None))
    return ThroughputRuns(
        drafter=own.generations, baseline=plain.generations, drafter_wall_s=own.wall_s, baseline_wall_s=plain.wall_s
    )


def alternate(
    contenders: Mapping[str, Contender],
    prompts: Sequence[Prompt],
    *,
    new_tokens: int | Mapping[str, int],
    repeats: int = 1,
    warmup: int = 1,
    concurrency: int = 1,
    progress: Callable[[Progress], None] | None = None,
    apart: bool = False,
) -> dict[str, TurnRuns]:
    """Run every prompt on every contender in turn, as ``throughput_pass`` describes; return each one's requests.

    :param apart: taking a contender ends the other's server: a turn is all prompts, and nothing is warmed up before.
    :raises MeasurementError: if a request fails; it names the prompt.
    """
    lengths = {p.id: new_tokens if isinstance(new_tokens, int) else new_tokens[p.id] for p in prompts}
    warm = [prompts[i % len(prompts)] for i in range(max(warmup, concurrency) if warmup else 0)]

    def warm_up(contender: Contender) -> None:
        _run(_fixed(contender.client, warm, lengths), concurrency=concurrency, meter=_Meter(0, None))

    for contender in () if apart else contenders.values():
        contender.take()
        warm_up(contender)
    kept: dict[str, list[Generation]] = {name: [] for name in contenders}
    walls = dict.fromkeys(contenders, 0.0)
    meter = _Meter(repeats * len(prompts) * len(contenders), progress)
    for forward, part in _turns(prompts, repeats=repeats, whole=apart or concurrency > 1):
        for name in contenders if forward else reversed(list(contenders)):
            if contenders[name].take():
                warm_up(contenders[name])
                _flush(contenders[name].client)
            start = time.perf_counter()
            kept[name] += _run(_fixed(contenders[name].client, part, lengths), concurrency=concurrency, meter=meter)
            walls[name] += time.perf_counter() - start
    return {name: TurnRuns(tuple(kept[name]), walls[name]) for name in contenders}


def natural_lengths(generations: Sequence[Generation]) -> dict[str, int]:
    """Return each prompt's own answer length, so that a fixed-length pass does not run past the natural end.

    Text forced past its end loops or turns to noise, and both are drafted unlike real text.
    """
    return {g.prompt_id: g.completion_tokens for g in generations}


@dataclass(frozen=True, slots=True)
class _Job:
    client: Client
    prompt: Prompt
    _: KW_ONLY
    max_new_tokens: int
    ignore_eos: bool
    temperature: float

    def __call__(self) -> Generation:
        try:
            return self.client.generate(
                self.prompt,
                max_new_tokens=self.max_new_tokens,
                ignore_eos=self.ignore_eos,
                temperature=self.temperature,
            )
        except SpecprobeError as error:
            raise MeasurementError.because(f"request {self.prompt.id} failed", error) from error


class _Meter:
    """Counts finished requests and tells the progress callback, from whichever thread finished one."""

    def __init__(self, total: int, progress: Callable[[Progress], None] | None) -> None:
        self._total = total
        self._progress = progress
        self._lock = Lock()
        self._start = time.perf_counter()
        self._done = self._rounds = self._accepted = 0

    def count(self, generation: Generation) -> None:
        with self._lock:
            self._done += 1
            self._rounds += generation.rounds or 0
            self._accepted += generation.delivered or 0
            if self._progress is None:
                return
            elapsed = time.perf_counter() - self._start
            self._progress(
                Progress(
                    done=self._done,
                    total=self._total,
                    rounds=self._rounds,
                    accept_length=1 + self._accepted / self._rounds if self._rounds else None,
                    elapsed_s=elapsed,
                    left_s=elapsed / self._done * (self._total - self._done),
                )
            )


def _flush(client: Client) -> None:
    """Empty the cache; a server that does not answer here fails the pass as it would in a request of it."""
    try:
        client.flush()
    except SpecprobeError as error:
        raise MeasurementError.because("the prefix cache was not emptied", error) from error


def _fixed(client: Client, prompts: Sequence[Prompt], lengths: Mapping[str, int]) -> list[_Job]:
    return [_Job(client, p, max_new_tokens=lengths[p.id], ignore_eos=True, temperature=0.0) for p in prompts]


def _turns(prompts: Sequence[Prompt], *, repeats: int, whole: bool) -> Iterator[tuple[bool, Sequence[Prompt]]]:
    """Yield what each turn runs (all prompts if ``whole``, else one), and whether the drafter goes first."""
    parts: list[Sequence[Prompt]] = [prompts] if whole else [[prompt] for prompt in prompts]
    for repeat in range(repeats):
        yield from (((i + repeat) % 2 == 0, part) for i, part in enumerate(parts))


def _run(jobs: Sequence[_Job], *, concurrency: int, meter: _Meter) -> list[Generation]:
    """Run jobs, ``concurrency`` at once; the first failure cancels what has not started and is raised."""

    def one(job: _Job) -> Generation:
        generation = job()
        meter.count(generation)
        return generation

    if concurrency == 1:
        return [one(job) for job in jobs]
    with ThreadPoolExecutor(max_workers=concurrency) as pool:
        futures = [pool.submit(one, job) for job in jobs]
        _, pending = wait(futures, return_when=FIRST_EXCEPTION)
        for future in pending:
            future.cancel()
        for future in futures:
            if not future.cancelled() and (error := future.exception()) is not None:
                raise error
        return [future.result() for future in futures]
