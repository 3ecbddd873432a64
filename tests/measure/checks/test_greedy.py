"""A drafted text must be what the target alone would have said, up to near-ties."""

import pytest

from pytest_specprobe.measure.checks.greedy import check_greedy
from pytest_specprobe.measure.checks.odd_tokens import Reading


def readings(odd: int, gap: float, *, of: int = 1000, texts: int = 2) -> list[Reading]:
    """Texts of ``of`` tokens together, ``odd`` of which the target would not have said, in turns."""
    gaps = [gap if at < odd else 0.0 for at in range(of)]
    return [Reading(f"p{i}", "w", tuple(gaps[i::texts])) for i in range(texts)]


@pytest.mark.parametrize(
    ("odd", "gap", "exact", "ends"),
    [
        (0, 0.0, True, "pass"),
        (3, 0.005, True, "pass"),  # near-ties of float32
        (1, 0.02, True, "error"),
        (20, 1.0, False, "pass"),  # rounding of 16 bits, here and there
        (21, 1.0, False, "warning"),
        (100, 1.0, False, "warning"),
        (101, 1.0, False, "error"),
        (500, 0.2, False, "pass"),  # near-ties of 16 bits
    ],
)
def test_tokens_that_the_target_would_not_say(odd: int, gap: float, exact: bool, ends: str) -> None:
    """Without a plain server's texts; in float32 with them, too."""
    found = check_greedy(readings(odd, gap), exact=exact, plain=readings(200, 9.0) if exact else ())
    assert (found.id, found.culprit) == ("measure.not-greedy", "engine")
    assert ("pass" if found.status == "pass" else found.severity) == ends


@pytest.mark.parametrize(
    ("drafter", "plain", "ends"),
    [
        (30, 30, "pass"),  # the engine's arithmetic, as a warning without this control
        (30, 60, "pass"),
        (18, 10, "warning"),
        (250, 30, "error"),
        (90, 110, "error"),  # the plain server does not say what the target does: no control
    ],
)
def test_a_plain_servers_texts_are_the_control(drafter: int, plain: int, ends: str) -> None:
    found = check_greedy(readings(drafter, 5.0, texts=20), exact=False, plain=readings(plain, 5.0, texts=20))
    assert ("pass" if found.status == "pass" else found.severity) == ends
    assert f"{drafter} of 1000 tokens in 20 texts with the drafter, and {plain} of 1000" in found.seen


def test_texts_of_other_prompts_are_no_control() -> None:
    plain = [Reading(f"other {i}", "w", (1.0,) * 50) for i in range(20)]
    assert check_greedy(readings(0, 0.0), exact=False, plain=plain).status == "pass"
    assert check_greedy(readings(150, 9.0), exact=False, plain=plain).severity == "error"


def test_it_names_the_worst_place() -> None:
    found = check_greedy([Reading("a", "w", (0.0, 0.5)), Reading("b", "w", (0.0, 0.0, 3.0))], exact=True)
    assert found.seen.startswith("2 of 5 tokens in 2 texts")
    assert "b at token 2, by 3.00" in found.seen


def test_a_server_that_does_not_say_is_not_judged() -> None:
    assert check_greedy([], exact=True).status == "skip"
