"""Client overhead: the share of a request's wall time that the server does not account for."""

from dataclasses import replace

import pytest

from pytest_specprobe.measure.overhead import client_overhead
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import measure_throughput
from pytest_specprobe.report.build import throughput_of
from tests.support.requests import plain_of, request_of


def timed(i: int, *, outside_s: float | None, rounds: int = 40) -> Generation:
    made = request_of(f"p{i}", [1] * rounds, depth=2)
    return replace(made, server_s=None if outside_s is None else made.last_s - made.start_s - outside_s)


def test_it_is_wall_time_less_the_servers_own() -> None:
    found = client_overhead([timed(i, outside_s=0.014) for i in range(6)])
    assert found is not None
    assert found.per_request_s == pytest.approx(0.014)
    assert found.share.value == pytest.approx(0.014 / (0.2 + 0.03 * 40))
    assert (found.share.n, found.requests) == (6, 6)


def test_it_is_a_ratio_of_sums_and_not_a_mean_of_ratios() -> None:
    found = client_overhead([timed(0, outside_s=0.1, rounds=10), timed(1, outside_s=0.0, rounds=90)])
    assert found is not None
    assert found.share.value == pytest.approx(0.1 / (0.4 + 0.03 * 100))


@pytest.mark.parametrize("outside", [(None, 0.01), (None, None)])
def test_without_the_servers_time_nothing_is_claimed(outside: tuple[float | None, ...]) -> None:
    assert client_overhead([timed(i, outside_s=s) for i, s in enumerate(outside)]) is None


def test_it_is_in_the_report_for_each_server() -> None:
    own = [timed(i, outside_s=0.01) for i in range(4)]
    plain = [plain_of(f"p{i}", 40) for i in range(4)]
    shown = throughput_of(measure_throughput(own, baseline=plain)).client_overhead
    assert shown is not None
    assert shown.drafter is not None
    assert shown.drafter.share.n == 4
    assert shown.baseline is None
