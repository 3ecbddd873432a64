"""A server that hangs beside a pass fails the measurement, as it would in one of the pass's own requests."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_specprobe.errors import MeasurementError, ServerError
from pytest_specprobe.probe.foreign_traffic import TrafficWatch
from pytest_specprobe.server.boot import Server


def server(*answers: Any) -> Server:
    left = iter(answers)

    def prefilled_tokens() -> int | None:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return cast("int | None", answer)

    return cast("Server", SimpleNamespace(client=SimpleNamespace(prefilled_tokens=prefilled_tokens)))


HUNG = ServerError("no answer in time", culprit="machine", fix="look at the log")


@pytest.mark.parametrize("answers", [(HUNG,), (10, HUNG)], ids=["before", "after"])
def test_a_server_that_does_not_answer_makes_the_measurement_invalid(answers: tuple[Any, ...]) -> None:
    watch = TrafficWatch()
    with (
        pytest.raises(MeasurementError, match="no answer in time") as caught,
        watch.over(server(*answers), "drafter"),
    ):
        pass
    assert (caught.value.culprit, caught.value.fix) == ("machine", "look at the log")
    assert watch.passes == ()


@pytest.mark.parametrize(("answers", "counted"), [((10, 35), 25), ((None, 35), None)])
def test_what_the_server_counted_is_the_difference(answers: tuple[Any, ...], counted: int | None) -> None:
    watch = TrafficWatch()
    with watch.over(server(*answers), "drafter"):
        pass
    (found,) = watch.passes
    assert (found.what, found.counted) == ("drafter", counted)
