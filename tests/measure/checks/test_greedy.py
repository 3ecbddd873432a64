"""A drafted text must be what the target alone would have said, up to near-ties."""

import pytest

from pytest_specprobe.measure.checks.greedy import Reading, check_greedy


def readings(odd: int, gap: float, *, of: int = 1000) -> list[Reading]:
    """Two texts of ``of`` tokens together, ``odd`` of which the target would not have said."""
    gaps = [gap] * odd + [0.0] * (of - odd)
    return [Reading("a", tuple(gaps[: of // 2])), Reading("b", tuple(gaps[of // 2 :]))]


@pytest.mark.parametrize(
    ("odd", "gap", "exact", "status"),
    [
        (0, 0.0, True, "pass"),
        (3, 0.005, True, "pass"),  # near-ties of float32
        (1, 0.02, True, "fail"),
        (50, 1.0, False, "pass"),  # rounding of 16 bits, here and there
        (51, 1.0, False, "fail"),
        (500, 0.2, False, "pass"),  # near-ties of 16 bits
    ],
)
def test_tokens_that_the_target_would_not_say(odd: int, gap: float, exact: bool, status: str) -> None:
    found = check_greedy(readings(odd, gap), exact=exact)
    assert (found.id, found.status, found.culprit) == ("measure.not-greedy", status, "engine")


def test_it_names_the_worst_place() -> None:
    found = check_greedy([Reading("a", (0.0, 0.5)), Reading("b", (0.0, 0.0, 3.0))], exact=True)
    assert found.seen.startswith("2 of 5 tokens in 2 texts")
    assert "b at token 2, by 3.00" in found.seen


def test_a_server_that_does_not_say_is_not_judged() -> None:
    assert check_greedy([], exact=True).status == "skip"
