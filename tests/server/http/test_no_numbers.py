"""A server may send NaN, infinity or numbers beyond any float: an error where one is used, text where it is shown."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.http.generation import best_of, gaps_of
from pytest_specprobe.server.http.info import ServerInfo
from tests.support.stand_in import Handler, serving

WORDS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")


Ask = Callable[[str, str], ServerInfo]


class Odd(Handler):
    """Answers with a word that JSON may not know as the value of one field."""

    field, word = "", ""

    def answer(self, body: Any) -> None:
        data = json.dumps(body | {self.field: "HERE"}).replace('"HERE"', self.word).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def info() -> Iterator[Ask]:
    """What the client makes of an answer with this word as the value of that field."""

    def ask(field: str, word: str) -> ServerInfo:
        Odd.field, Odd.word = field, word
        return client.server_info()

    with serving(Odd) as url, Client(url) as client:
        yield ask


@pytest.mark.parametrize("word", WORDS)
def test_what_is_only_shown_is_text(info: Ask, word: str) -> None:
    found = info("schedule_conservativeness", word)
    assert found.settings["schedule_conservativeness"] == word
    assert info("nested", f'[{{"deep": {word}}}]').settings["nested"] == [{"deep": word}]


@pytest.mark.parametrize("word", [*WORDS, "1" + "0" * 400])
def test_what_is_used_is_an_error(info: Ask, word: str) -> None:
    with pytest.raises(MeasurementError, match="speculative_accept_threshold_single is"):
        info("speculative_accept_threshold_single", word)
    with pytest.raises(MeasurementError, match="avg_spec_accept_length is"):
        info("internal_states", f'[{{"avg_spec_accept_length": {word}}}]')


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", 10**400])
def test_a_gap_between_what_is_no_number_is_no_gap(value: object) -> None:
    with pytest.raises(MeasurementError, match="no log-probabilities"):
        best_of({"meta_info": {"output_top_logprobs": [[[-0.1, 1], [value, 2]]]}})
    with pytest.raises(MeasurementError, match="no log-probabilities"):
        gaps_of(read(own=-0.1, best=value), [5])


@pytest.mark.parametrize("value", ["NaN", "Infinity", 10**400])
def test_a_token_without_a_log_probability_is_not_taken_for_the_best(value: object) -> None:
    with pytest.raises(MeasurementError, match="no log-probabilities"):
        gaps_of(read(own=value, best=-0.1), [5])


def test_a_token_that_the_target_would_never_say_is_infinitely_far() -> None:
    assert gaps_of(read(own="-Infinity", best=-0.1), [5]) == (float("inf"),)


def read(*, own: object, best: object) -> dict[str, Any]:
    return {
        "meta_info": {
            "input_token_logprobs": [[None, 1], [own, 5]],
            "input_top_logprobs": [None, [[best, 5]]],
        }
    }
