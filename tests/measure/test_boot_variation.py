"""Two boots of one server: how much they differ is seen."""

from collections.abc import Callable

import pytest

from pytest_specprobe.measure.boot_variation import check_apart
from pytest_specprobe.measure.request import Generation

Make = Callable[..., Generation]


@pytest.mark.parametrize(("ratio", "status"), [(1.0, "pass"), (1.04, "pass"), (1.06, "fail"), (1 / 1.06, "fail")])
def test_boots_that_differ_are_seen(make: Make, ratio: float, status: str) -> None:
    first = [make(f"p{i}", [1, 0] * 8, depth=1, round_s=0.02) for i in range(4)]
    second = [make(f"p{i}", [1, 0] * 8, depth=1, round_s=0.02 * ratio) for i in range(4)]
    found = check_apart([*first, *second])
    assert (found.id, found.status, found.culprit) == ("measure.boots-differ", status, "machine")
