"""Another client on the server, seen in SGLang's own log lines and in its count of prefilled tokens."""

from dataclasses import replace

import pytest

from pytest_specprobe.measure.checks.foreign_traffic import Counting, Prefilled, check_prefilled, check_traffic
from pytest_specprobe.measure.request import Generation, Prompt
from tests.support.requests import request_of

LINE = (
    "[2026-01-01 03:18:40] Decode batch, #running-req: {n}, #token: 133, token usage: 0.01, accept len: 3.00, "
    "accept rate: 1.00, cpu graph: False, gen throughput (token/s): 8.95, #queue-req: {q}"
)
PREFILL = (
    "[2026-01-01 03:18:39] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.00, "
    "#running-req: 1, #queue-req: 0, #pending-token: 0, cpu graph: False, input throughput (token/s): 0.96"
)


def log(*counts: tuple[int, int]) -> str:
    return "\n".join(["server is up", PREFILL, *(LINE.format(n=n, q=q) for n, q in counts)])


@pytest.mark.parametrize(
    ("counts", "concurrency", "status"),
    [
        ([(1, 0)] * 50, 1, "pass"),
        ([(1, 0)] * 40 + [(2, 0)] * 10, 1, "fail"),
        ([(1, 1)] * 10 + [(1, 0)] * 40, 1, "fail"),  # waiting behind ours slows nobody yet, but will
        ([(1, 0)] * 49 + [(2, 0)], 1, "pass"),  # one line: a request that lingers
        ([(1, 0)] * 198 + [(2, 0)] * 2, 1, "pass"),
        ([(4, 0)] * 50, 4, "pass"),
        ([(5, 0)] * 50, 4, "fail"),
        ([], 1, "pass"),
    ],
)
def test_requests_in_flight(counts: list[tuple[int, int]], concurrency: int, status: str) -> None:
    found = check_traffic(log(*counts), concurrency=concurrency)
    assert found.status == status
    assert found.id == "measure.other-traffic"


def test_it_says_how_many() -> None:
    assert check_traffic(log((1, 0), (3, 1), (3, 0)), concurrency=1).seen == (
        "2 of 3 decode batches held more than 1, up to 4"
    )


@pytest.mark.parametrize(
    ("sent", "counted", "status"),
    [
        (2000, 2000, "pass"),
        (2000, 2040, "pass"),  # a health check a second for 40 s
        (2000, 2101, "fail"),
        (100, 164, "pass"),
        (100, 165, "fail"),
        (2000, 1500, "pass"),  # behind a router, others answered some
        (2000, None, "skip"),
    ],
)
def test_prompt_tokens_that_are_not_ours(sent: int, counted: int | None, status: str) -> None:
    found = check_prefilled([Prefilled("drafter", sent, counted)])
    assert found.status == status
    assert found.id == "measure.foreign-requests"


def test_one_bad_pass_of_many_is_told() -> None:
    found = check_prefilled([Prefilled("drafter", 500, 500), Prefilled("baseline", 500, 900)])
    assert found.status == "fail"
    assert found.seen == "400 prompt tokens beside our 500 (baseline)"


def test_a_counting_client_counts_what_is_prefilled() -> None:
    class Server:
        def generate(self, prompt: Prompt, **_: object) -> Generation:
            return replace(request_of(prompt.id, [1], depth=2, prompt_tokens=30), cached_tokens=10)

        def flush(self) -> None:
            pass

    client = Counting(Server())
    prompt = Prompt(id="p", workload="w", text="", input_ids=(1,))
    for _ in range(3):
        assert client.generate(prompt, max_new_tokens=2, ignore_eos=True).prompt_id == "p"
    assert client.tokens == 60
