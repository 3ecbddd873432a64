"""Did speculation change the text: rates, first divergences, near-ties, different limits."""

from collections.abc import Callable

from pytest_specprobe.measure.losslessness import compare_texts
from pytest_specprobe.measure.records import Generation

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


def test_only_near_ties_explain(plain: Make) -> None:
    own = [plain("a", 2, output_ids=[1, 2]), plain("b", 2, output_ids=[1, 2]), plain("c", 2, output_ids=[1, 2])]
    base = [plain(i, 2, output_ids=[1, 3]) for i in "abc"]
    got = compare_texts(own, base, gaps={("a", 1): 0.001, ("b", 1): 2.0, ("c", 0): 0.0})
    assert [d.prompt_id for d in got.unexplained()] == ["b", "c"]


def test_nothing_in_common_is_no_rate(plain: Make) -> None:
    got = compare_texts([plain("a", 2)], [plain("b", 2)])
    assert got.compared == 0
    assert got.to_json()["rate"] is None
