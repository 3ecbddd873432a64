"""Requests made of counts: what a server would have reported for a given sequence of rounds."""

from collections.abc import Callable

import pytest

from pytest_specprobe.measure.request import Generation
from tests.support.requests import plain_of, request_of

Make = Callable[..., Generation]


@pytest.fixture(scope="session")
def make() -> Make:
    """Give the maker of speculating requests."""
    return request_of


@pytest.fixture(scope="session")
def plain() -> Make:
    """Give the maker of plain requests."""
    return plain_of
