"""A stall is a silence of the whole server: an idle one has none at many streams, and a real one is found."""

from dataclasses import replace
from itertools import pairwise

import pytest

from pytest_specprobe.measure.checks import validity
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.stalls import stalled
from pytest_specprobe.measure.throughput import measure_throughput
from tests.measure.level import Level, requests

# Seconds of a round and of a plain token at each level, as an idle H200 showed them.
LEVELS = {1: (0.0033, 0.0016), 4: (0.0040, 0.0016), 16: (0.0072, 0.0020), 64: (0.0061, 0.0023)}
SEEDS = range(6)


def bursts(level: Level, seed: int) -> list[Generation]:
    """Two bursts of one server, the second 100 s after the first; a freeze is in the second."""
    idle = replace(level, freeze=None)
    return [*requests(idle, seed=2 * seed, start_s=100.0), *requests(level, seed=2 * seed + 1, start_s=200.0)]


def long_gaps(rows: list[Generation]) -> int:
    """Requests with a gap of twenty usual ones that takes 5 % of them: what was called a stall before."""
    count = 0
    for g in rows:
        gaps = sorted(later - earlier for earlier, later in pairwise(g.chunk_s))
        count += gaps[-1] > max(20 * gaps[len(gaps) // 2], 0.05 * (g.last_s - g.first_s))
    return count


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("streams", LEVELS)
def test_an_idle_server_has_no_stall_at_any_level(streams: int, seed: int) -> None:
    own, plain = (bursts(Level(streams=streams, step_s=step_s), seed) for step_s in LEVELS[streams])
    speed = measure_throughput(own, baseline=plain, concurrency=streams)
    (check,) = [f for f in validity.check_throughput(speed, own, baseline=plain) if f.id == "measure.stall"]
    assert check.status == "pass", check.seen
    if streams >= 16:
        assert long_gaps([*own, *plain]) > 40, "the level is as rough as the record's: 76 and 83 of 160"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("streams", LEVELS)
def test_a_server_that_stops_for_half_a_second_is_found_at_every_level(streams: int, side: int, seed: int) -> None:
    rows = bursts(Level(streams=streams, step_s=LEVELS[streams][side], freeze=(0.2, 0.5)), seed)
    held = {
        (g.start_s, g.prompt_id)
        for g in rows
        if len(g.chunk_s) > 8 and max(later - earlier for earlier, later in pairwise(g.chunk_s)) >= 0.5
    }
    named = {(g.start_s, g.prompt_id) for g in stalled(rows, streams=streams)}
    assert held
    assert held <= named
    assert all(start_s >= 200 for start_s, _ in named)


@pytest.mark.parametrize("streams", [16, 64])
@pytest.mark.parametrize(("running", "long_prompt"), [(64, 20), (16, 1), (16, 8)])
def test_long_prompts_and_a_queue_are_no_stall(streams: int, running: int, long_prompt: int) -> None:
    for step_s in LEVELS[streams]:
        level = Level(streams=streams, step_s=step_s, running=running, long_prompt=long_prompt)
        assert stalled(bursts(level, 1), streams=streams) == []


def test_a_queue_hides_no_second_of_silence() -> None:
    for step_s in LEVELS[64]:
        rows = bursts(Level(streams=64, step_s=step_s, running=16, freeze=(0.4, 1.0)), 2)
        assert len(stalled(rows, streams=64)) >= 8


def test_nothing_was_sent_and_nothing_stalled() -> None:
    assert stalled([], streams=16) == []
    assert stalled([], streams=1) == []
