"""The stand-in for two servers, up once for all tests of this folder."""

from collections.abc import Iterator

# pytester forgets what an inner run in this process was the first to import, and numpy cannot be imported twice.
import numpy as np  # noqa: F401 - imported for good, not for use
import pytest

from tests.support.stand_in import Handler, Plain, serving


@pytest.fixture(scope="session")
def attached() -> Iterator[tuple[str, ...]]:
    """The options of a run that probes it."""
    with serving(Handler) as server, serving(Plain) as plain:
        yield ("--specprobe-drafter=attached", f"--specprobe-server={server}", f"--specprobe-baseline={plain}")
