"""Which texts the target is asked about, and what becomes of an answer that it does not give."""

from collections.abc import Sequence
from typing import cast

import pytest

from pytest_specprobe.errors import ServerError
from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.probe.passes.target_readings import read_pairs, read_texts
from pytest_specprobe.server.http.client import Client
from tests.support.requests import plain_of


class Target:
    """Says of each token how far it is from the last token of the prompt; of what begins with 13, nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def gaps_along(self, input_ids: Sequence[int], output_ids: Sequence[int]) -> tuple[float, ...]:
        self.asked.append((tuple(input_ids), tuple(output_ids)))
        if output_ids[0] == 13:
            raise ServerError("no log-probabilities", culprit="engine", fix="none")
        return tuple(float(token - input_ids[-1]) for token in output_ids)


def asked_about(count: int) -> tuple[Target, Client, list[Prompt]]:
    target = Target()
    prompts = [Prompt(id=f"p{i:03}", workload="ab"[i % 2], text="", input_ids=(1, i)) for i in range(count)]
    return target, cast("Client", target), prompts


def test_both_texts_of_a_prompt_are_read_by_one_server() -> None:
    target, client, prompts = asked_about(3)
    own = [
        plain_of("p000", 2, output_ids=[5, 6]),
        plain_of("p002", 2, output_ids=[7, 8]),
        plain_of("p002", 2, output_ids=[0, 0]),
    ]
    base = [
        plain_of("p002", 2, output_ids=[7, 9]),
        plain_of("p000", 2, output_ids=[5, 6]),
        plain_of("p001", 1, output_ids=[4]),
    ]
    pairs = read_pairs(client, prompts, own, base)
    assert [(r.prompt_id, r.workload, r.gaps) for r in pairs.drafter] == [
        ("p000", "a", (5, 6)),
        ("p002", "a", (5, 6)),
    ]
    assert [(r.prompt_id, r.gaps) for r in pairs.baseline] == [("p000", (5, 6)), ("p002", (5, 7))]
    assert len(target.asked) == 3, "equal texts are read once"


@pytest.mark.parametrize("side", ["drafter", "baseline"])
def test_a_text_that_cannot_be_read_takes_its_twin_with_it(side: str) -> None:
    _, client, prompts = asked_about(2)
    texts = {
        name: [plain_of(f"p00{i}", 1, output_ids=[20 + i]) for i in range(2)] for name in ("drafter", "baseline")
    }
    texts[side][1] = plain_of("p001", 1, output_ids=[13])
    pairs = read_pairs(client, prompts, texts["drafter"], texts["baseline"])
    assert [r.prompt_id for r in pairs.drafter] == [r.prompt_id for r in pairs.baseline] == ["p000"]


@pytest.mark.parametrize(("count", "read"), [(1, 1), (8, 8), (11, 8), (40, 8), (41, 8)])
def test_eight_texts_are_read_spread_over_all(count: int, read: int) -> None:
    _, client, prompts = asked_about(count)
    texts = [plain_of(p.id, 1, output_ids=[200]) for p in prompts]
    names = [r.prompt_id for r in read_texts(client, prompts, texts)]
    assert len(names) == len(set(names)) == read
    assert int(names[-1][1:]) >= count - count / read - 1, "they reach the end"


def test_forty_pairs_of_many_and_no_text_whole_that_is_very_long() -> None:
    target, client, prompts = asked_about(100)
    texts = [plain_of(p.id, 3000, output_ids=[200] * 3000) for p in prompts]
    pairs = read_pairs(client, prompts, texts, texts)
    assert len(pairs.drafter) == 40
    assert {len(output) for _, output in target.asked} == {1024}
