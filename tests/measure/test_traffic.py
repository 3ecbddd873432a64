"""Another client on the server, seen in SGLang's own log lines."""

import pytest

from pytest_specprobe.measure.traffic import check_traffic

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
