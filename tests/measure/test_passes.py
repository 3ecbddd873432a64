"""The passes: order, warm-up, flushes, failures and progress, seen from a client that writes down every call."""

import threading
from collections.abc import Callable

import pytest

from pytest_specprobe.errors import MeasurementError, ServerError
from pytest_specprobe.measure.passes import (
    Contender,
    Progress,
    acceptance_pass,
    apart_pass,
    natural_lengths,
    throughput_pass,
)
from pytest_specprobe.measure.request import Generation, Prompt

Make = Callable[..., Generation]
PROMPTS = [Prompt(id=f"p{i}", workload="w", text=f"text {i}", input_ids=(i,)) for i in range(3)]


class Recorder:
    """Writes down what it is asked, in a list that two servers may share."""

    def __init__(self, name: str, make: Make, calls: list[tuple[object, ...]], *, fail: str = "") -> None:
        self._name, self._make, self._calls, self._fail = name, make, calls, fail
        self._barrier: threading.Barrier | None = None

    def meet(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties, timeout=10)

    def flush(self) -> None:
        self._calls.append((self._name, "flush"))

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        self._calls.append((self._name, prompt.id, max_new_tokens, ignore_eos, temperature))
        if prompt.id == self._fail:
            raise ServerError("connection lost", culprit="engine", fix="read the log", detail="last line")
        if self._barrier is not None:
            self._barrier.wait()
        return self._make(prompt.id, [1] * (max_new_tokens // 2), depth=1)


def test_the_acceptance_pass_runs_to_the_natural_end(make: Make) -> None:
    calls: list[tuple[object, ...]] = []
    seen: list[Progress] = []
    got = acceptance_pass(Recorder("A", make, calls), PROMPTS, max_new_tokens=8, progress=seen.append)
    assert calls == [("A", "flush"), *[("A", f"p{i}", 8, False, 0.0) for i in range(3)]]
    assert [g.prompt_id for g in got] == ["p0", "p1", "p2"]
    assert [(p.done, p.total, p.rounds, p.accept_length) for p in seen] == [
        (1, 3, 4, 2.0), (2, 3, 8, 2.0), (3, 3, 12, 2.0)
    ]  # fmt: skip
    assert seen[-1].left_s == 0


def test_the_throughput_pass_alternates_and_throws_the_warm_up_away(make: Make) -> None:
    calls: list[tuple[object, ...]] = []
    own, base = Recorder("A", make, calls), Recorder("B", make, calls)
    lengths = {"p0": 4, "p1": 6, "p2": 8}
    got = throughput_pass(own, base, PROMPTS, new_tokens=lengths, repeats=2, warmup=1)
    assert calls[:4] == [("A", "flush"), ("A", "p0", 4, True, 0.0), ("B", "flush"), ("B", "p0", 4, True, 0.0)]
    order = "".join(f"{c[0]}{str(c[1])[1]} " for c in calls[4:] if c[1] != "flush")
    assert order == "A0 B0 B1 A1 A2 B2 B0 A0 A1 B1 B2 A2 "
    assert calls[4::2] == [(c[0], "flush") for c in calls[5::2]]  # the cache is empty before every measured request
    assert all(c[2] == lengths[str(c[1])] and c[3] is True for c in calls if c[1] != "flush")
    assert len(got.drafter) == len(got.baseline) == 6
    assert got.baseline_wall_s is not None


def test_without_a_baseline_only_the_drafter_runs(make: Make) -> None:
    calls: list[tuple[object, ...]] = []
    got = throughput_pass(Recorder("A", make, calls), None, PROMPTS, new_tokens=4, repeats=1)
    assert len(got.drafter) == 3
    assert got.baseline == ()
    assert got.baseline_wall_s is None


def test_requests_run_together_at_a_higher_concurrency(make: Make) -> None:
    """Three must be in flight at once, or the barrier breaks."""
    calls: list[tuple[object, ...]] = []
    client = Recorder("A", make, calls)
    client.meet(3)
    got = acceptance_pass(client, PROMPTS, max_new_tokens=4, concurrency=3)
    assert [g.prompt_id for g in got] == ["p0", "p1", "p2"]


def test_under_load_a_turn_is_all_prompts(make: Make) -> None:
    calls: list[tuple[object, ...]] = []
    own, base = Recorder("A", make, calls), Recorder("B", make, calls)
    throughput_pass(own, base, PROMPTS, new_tokens=4, repeats=2, warmup=1, concurrency=2)
    requests = [c[0] for c in calls if c[1] != "flush"]
    assert requests == ["A", "A", "B", "B", *"AAABBB", *"BBBAAA"]  # two warm-up requests each: one full batch


def test_servers_apart_run_whole_turns_and_what_came_up_anew_is_warmed_up(make: Make) -> None:
    """A, then B twice, then A again: the server in between is warm for its second turn."""
    calls: list[tuple[object, ...]] = []
    up = ""

    def contender(name: str) -> Contender:
        def switch() -> bool:
            nonlocal up
            fresh, up = up != name, name
            calls.append((name, "boot" if fresh else "stay"))
            return fresh

        return Contender(Recorder(name, make, calls), switch)

    got = apart_pass(contender("A"), contender("B"), PROMPTS, new_tokens=4)
    assert "".join(f"{c[0]}{str(c[1])[-1]}" for c in calls if c[1] != "flush") == (
        "At" + "A0" + "A0A1A2" + "Bt" + "B0" + "B0B1B2" + "By" + "B0B1B2" + "At" + "A0" + "A0A1A2"
    )
    measured = [i for i, c in enumerate(calls) if c[1] == "p1"]
    assert all(calls[i - 2][1] == "flush" for i in measured), "the cache is empty before each measured turn"
    assert [g.prompt_id for g in got.drafter] == ["p0", "p1", "p2"] * 2
    assert len(got.baseline) == 6


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_failed_request_names_its_prompt_and_ends_the_pass(make: Make, concurrency: int) -> None:
    client = Recorder("A", make, [], fail="p1")
    with pytest.raises(MeasurementError, match="request p1 failed: connection lost") as caught:
        acceptance_pass(client, PROMPTS, max_new_tokens=4, concurrency=concurrency)
    assert caught.value.culprit == "engine"
    assert caught.value.detail == "last line"


def test_a_server_that_hangs_at_a_flush_fails_the_pass(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Recorder("A", make, [])

    def hang() -> None:
        raise ServerError("/flush_cache: no answer in time", culprit="machine", fix="read the log")

    monkeypatch.setattr(client, "flush", hang)
    with pytest.raises(MeasurementError, match="no answer in time") as caught:
        acceptance_pass(client, PROMPTS, max_new_tokens=4)
    assert caught.value.culprit == "machine"
    with pytest.raises(MeasurementError, match="no answer in time"):
        throughput_pass(client, None, PROMPTS, new_tokens=4)


def test_natural_lengths_are_each_prompts_own(make: Make) -> None:
    lengths = natural_lengths([make("a", [1] * 20, depth=1), make("b", [0], depth=1)])
    assert lengths == {"a": 41, "b": 2}
