"""Did speculation change the text: rates, first divergences, near-ties, different limits."""

from collections.abc import Callable

import pytest

from pytest_specprobe.measure.checks.losslessness import (
    Best,
    Losslessness,
    Question,
    check_texts_equal,
    compare_texts,
    questions,
)
from pytest_specprobe.measure.checks.odd_tokens import PairedReadings, Reading
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.report.build import losslessness_of

Make = Callable[..., Generation]


def test_first_divergence_of_each_prompt(plain: Make) -> None:
    own = [plain("a", 4, output_ids=[1, 2, 3, 4]), plain("b", 3, output_ids=[1, 9, 3])]
    base = [plain("b", 3, output_ids=[1, 2, 3]), plain("a", 4, output_ids=[1, 2, 3, 4])]
    got = compare_texts(own, base)
    assert (got.compared, got.identical, got.rate) == (2, 1, 0.5)
    (parts,) = got.divergences
    assert (parts.prompt_id, parts.position, parts.drafter_token, parts.baseline_token) == ("b", 1, 9, 2)


def test_a_text_that_stopped_earlier_diverges(plain: Make) -> None:
    got = compare_texts([plain("a", 2, output_ids=[1, 2])], [plain("a", 3, output_ids=[1, 2, 3])])
    assert got.divergences[0].position == 2
    assert got.divergences[0].drafter_token is None
    assert got.divergences[0].baseline_token == 3
    (other,) = compare_texts([plain("a", 3, output_ids=[1, 2, 3])], [plain("a", 2, output_ids=[1, 2])]).divergences
    assert (other.position, other.drafter_token, other.baseline_token) == (2, 3, None)


def test_a_text_cut_by_its_limit_is_compared_as_far_as_it_goes(plain: Make) -> None:
    cut = [plain("a", 2, output_ids=[1, 2], finish_reason="length")]
    whole = [plain("a", 3, output_ids=[1, 2, 3])]
    assert compare_texts(cut, whole).identical == 1
    assert compare_texts(whole, cut).identical == 1


def parting(plain: Make) -> tuple[list[Generation], list[Generation]]:
    """Four prompts whose second token is 2 with and 3 without speculation."""
    own = [plain(i, 2, output_ids=[1, 2]) for i in "abcd"]
    return own, [plain(i, 2, output_ids=[1, 3]) for i in "abcd"]


BEST = {"a": Best((3, 2), 0.004), "b": Best((3, 2), 2.0), "c": Best((3, 7), 0.004)}


def test_only_a_near_tie_of_just_these_two_tokens_explains(plain: Make) -> None:
    got = compare_texts(*parting(plain), best=BEST, exact=True)
    assert [d.prompt_id for d in got.unexplained] == ["b", "c", "d"], "too far apart, another token, not asked"
    shown = losslessness_of(got)
    assert (shown.unexplained, shown.near_tie) == (3, 0.01)
    assert [d.near_tie for d in shown.divergences] == [True, False, False, False]


@pytest.mark.parametrize(("gap", "exact", "explained"), [(0.1, True, False), (0.1, False, True), (0.3, False, False)])
def test_sixteen_bits_tie_further_apart(plain: Make, gap: float, exact: bool, explained: bool) -> None:
    own, base = [plain("a", 1, output_ids=[2])], [plain("a", 1, output_ids=[3])]
    got = compare_texts(own, base, best={"a": Best((2, 3), gap)}, exact=exact)
    assert (not got.unexplained) is explained


def test_the_target_is_asked_over_the_common_prefix(plain: Make) -> None:
    own = [plain("a", 3, output_ids=[1, 2, 5]), plain("b", 2, output_ids=[8, 9])]
    base = [plain("a", 3, output_ids=[1, 3, 5]), plain("b", 2, output_ids=[8, 9])]
    prompts = [Prompt(id=i, workload="w", text="", input_ids=(100, 101)) for i in "ab"]
    assert questions(own, base, prompts) == (Question("a", 1, (100, 101, 1)),)


@pytest.mark.parametrize(
    ("odd", "exact", "status", "severity"),
    [
        (0, True, "pass", "error"),
        (1, True, "fail", "error"),
        (8, False, "fail", "warning"),
        (9, False, "fail", "error"),
    ],
)
def test_texts_that_were_not_read(plain: Make, odd: int, exact: bool, status: str, severity: str) -> None:
    """24 prompts, of which one parts at a near-tie and some elsewhere."""
    found = check_texts_equal(parting_at(plain, odd, exact=exact))
    assert (found.status, found.severity, found.culprit) == (status, severity, "engine")
    assert f"{23 - odd} of 24 texts are the same, 1 part at a near-tie" in found.seen
    if odd:
        assert "p1 at token 1: 2 for 3; the target's gap: 4 between (3, 2)" in found.seen


def parting_at(plain: Make, odd: int, *, exact: bool, readings: PairedReadings | None = None) -> Losslessness:
    base = [plain(f"p{i}", 2, output_ids=[1, 3]) for i in range(24)]
    own = [plain(f"p{i}", 2, output_ids=[1, 2 if i <= odd else 3]) for i in range(24)]
    best = {f"p{i}": Best((3, 2), 0.001 if i == 0 else 4.0) for i in range(odd + 1)}
    return compare_texts(own, base, best=best, exact=exact, readings=readings)


def read(odd: int, *, gap: float = 5.0) -> tuple[Reading, ...]:
    """24 texts of 50 tokens, some of which the target would not have said."""
    gaps = [gap if at < odd else 0.0 for at in range(24 * 50)]
    return tuple(Reading(f"p{i}", "w", tuple(gaps[i::24])) for i in range(24))


@pytest.mark.parametrize(
    ("drafter", "baseline", "ends"),
    [(10, 10, "pass"), (10, 30, "pass"), (27, 15, "warning"), (60, 10, "error"), (400, 10, "error")],
)
def test_the_plain_servers_own_texts_are_the_control(plain: Make, drafter: int, baseline: int, ends: str) -> None:
    """Twelve texts part elsewhere than at a near-tie: more odd tokens than without a drafter are a fault."""
    lossless = parting_at(plain, 12, exact=False, readings=PairedReadings(read(drafter), read(baseline)))
    found = check_texts_equal(lossless)
    assert ("pass" if found.status == "pass" else found.severity) == ends
    assert f"{drafter} of 1200 tokens in 24 texts with the drafter, and {baseline} of 1200" in found.seen
    shown = losslessness_of(lossless).odd_tokens
    assert shown is not None
    assert (shown.drafter.odd, shown.baseline.odd, shown.more.n) == (drafter, baseline, 24)


def test_in_float32_equality_stays_the_rule(plain: Make) -> None:
    readings = PairedReadings(read(0), read(0))
    assert check_texts_equal(parting_at(plain, 1, exact=True, readings=readings)).severity == "error"


def test_a_fault_that_keeps_the_texts_apart_by_chance_alone_is_seen(plain: Make) -> None:
    """Texts that part at near-ties only, and are another model's from there on."""
    lossless = parting_at(plain, 0, exact=False, readings=PairedReadings(read(300), read(5)))
    assert not lossless.unexplained
    assert check_texts_equal(lossless).severity == "error"


def test_nothing_in_common_is_no_rate(plain: Make) -> None:
    got = compare_texts([plain("a", 2)], [plain("b", 2)])
    assert got.compared == 0
    assert losslessness_of(got).rate is None
