"""How many servers fit beside each other, from their flags."""

import pytest

from pytest_specprobe.server.gpu.share import DEFAULT, fits, memory_share


@pytest.mark.parametrize(
    ("args", "share"),
    [
        ((), DEFAULT),
        (("--mem-fraction-static", "0.42"), 0.42),
        (("--mem-fraction-static=0.3", "--tp", "2"), 0.3),
        (("--mem-fraction-static", "0.3", "--mem-fraction-static", "0.5"), 0.5),
        (("--mem-fraction-static",), DEFAULT),
        (("--mem-fraction-static", "much"), DEFAULT),
        (("--mem-fraction-static", "1.5"), DEFAULT),
    ],
)
def test_the_share_that_flags_ask_for(args: tuple[str, ...], share: float) -> None:
    assert memory_share(args) == share


def test_two_default_servers_do_not_fit_and_two_halves_do() -> None:
    assert not fits((), servers=2)
    assert fits(("--mem-fraction-static", "0.47"), servers=2)
    assert not fits(("--mem-fraction-static", "0.48"), servers=2)
    assert fits(("--mem-fraction-static", "0.3"), servers=3)
