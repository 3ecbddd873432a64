"""Numbers of a report in words: a handful of prompts has no interval."""

import pytest

from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.numbers import numbers
from pytest_specprobe.report.render.text import of_stratum
from tests.support.simulated_reports import World, entry, report


@pytest.mark.parametrize(
    ("n", "shown"), [(1, "1.52 (of 1 prompt)"), (11, "1.52 (of 11 prompts)"), (12, "1.52 [1.40, 1.70]")]
)
def test_few_prompts_of_a_stratum_are_counted_instead(n: int, shown: str) -> None:
    assert of_stratum(Estimate(1.52, 1.40, 1.70, n)) == shown


@pytest.mark.parametrize(("prompts", "interval"), [(20, False), (60, True)])
def test_the_accept_length_of_each_workload(prompts: int, interval: bool) -> None:
    made = report_of(report(entry(World(prompts=prompts, accept=0.5)))).drafters[0]
    (shown,) = [row.value for row in numbers(made) if row.label == "by workload"]
    assert ("[" in shown) == interval
    assert ("prompts)" in shown) != interval
