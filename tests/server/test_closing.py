"""Closing many: one that fails keeps no other from being closed."""

from collections.abc import Callable

import pytest

from pytest_specprobe.errors import ServerError
from pytest_specprobe.server.closing import close_all


def closing(closed: list[str], name: str, *, fails: bool) -> Callable[[], None]:
    def close() -> None:
        closed.append(name)
        if fails:
            raise ServerError(f"{name} would not end", culprit="machine", fix="look at dmesg")

    return close


@pytest.mark.parametrize(
    ("failing", "says"), [("", None), ("b", "b would not end"), ("ac", "a would not end; c would not end")]
)
def test_all_are_closed_and_every_failure_is_said(failing: str, says: str | None) -> None:
    closed, said = list[str](), None
    try:
        close_all(closing(closed, name, fails=name in failing) for name in "abc")
    except ServerError as error:
        said = error.what
    assert closed == ["a", "b", "c"]
    assert said == says
