"""The bounded reader itself: what it takes, what it refuses, in which words, and in what time."""

import contextlib
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.reading import Bounds, Unreadable, parse_json, parse_toml, read_bytes, read_json, require_within

SMALL = Bounds(size=1000, depth=3, items=20, digits=5, text=10)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON: Expecting value"),
        ("{", "is not JSON"),
        ("1 2", "is not JSON: Extra data"),
        ("[" * 4 + "]" * 4, "is nested too deeply: more than 3 levels"),
        ("[" * 19, "is not JSON"),
        ('{"a": {"b": {"c": {}}}}', "is nested too deeply"),
        ("[" + "0," * 20 + "0]", "has more than 20 values"),
        ("123456", "has a number of more than 5 digits"),
        ("[-123456]", "has a number of more than 5 digits"),
        ('{"a": ["b", 1, 123456]}', "has a number of more than 5 digits"),
        ("1" * 900, "has a number of more than 5 digits"),
        ('"12345678901"', "has a text of more than 10 characters"),
        ('{"12345678901": 1}', "has a text of more than 10 characters"),
        ('"\\ud800"', "has a lone surrogate"),
        ('{"\\udfff": 1}', "has a lone surrogate"),
        ('["\\udc00\\ud800"]', "has a lone surrogate"),
        ("NaN", "has a number that is not finite: NaN"),
        ("[-Infinity]", "has a number that is not finite"),
        ("1e999", "has a number that is not finite"),
        (b"\xff", r"is not UTF-8 \(byte 0\)"),
        (b'"\xed\xa0\x80"', "is not UTF-8"),
        ("[]".encode("utf-16"), "is not UTF-8"),
        (" " * 1001, "is larger than 1,000 bytes"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        parse_json(text if isinstance(text, bytes) else text.encode(), SMALL)
    if "long" not in why:
        assert str(caught.value).isprintable()


def test_a_text_longer_than_its_bound_is_seen_in_a_short_document_too() -> None:
    with pytest.raises(Unreadable, match="a text of more than"):
        require_within({"a": ["x" * 11]}, SMALL)
    require_within({"a": ["x" * 10, 99999, 1.5, None, True]}, SMALL)


@pytest.mark.parametrize(
    "value", ["99999", "-99999", '"1234567890"', "[[[]]]", '"\\ud83d\\ude00"', '"\\u00e9"', "1e300"]
)
def test_what_is_just_within(value: str) -> None:
    parse_json(value, SMALL)
    parse_json(b"\xef\xbb\xbf" + value.encode(), SMALL)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "123456", "9" * 900])
def test_numbers_that_are_none_may_be_left_as_text(word: str) -> None:
    assert parse_json(f'[{word}, {{"a": {word}}}, 7, 1.5]', Bounds(size=10_000, digits=5), numbers="text") == [
        word, {"a": word}, 7, 1.5,
    ]  # fmt: skip


def test_text_policy_keeps_every_other_bound() -> None:
    for text in ("[123456, " + "[" * 4 + "]" * 4 + "]", '[123456, "\\ud800"]'):
        with pytest.raises(Unreadable, match=r"nested|surrogate"):
            parse_json(text, SMALL, numbers="text")


def test_infinity_may_be_a_float() -> None:
    assert parse_json("[Infinity, -1e999]", SMALL, numbers="any") == [float("inf"), float("-inf")]


def test_a_key_twice_is_refused_where_it_is_asked() -> None:
    assert parse_json('{"a": 1, "a": 2}', SMALL) == {"a": 2}
    with pytest.raises(Unreadable, match="duplicate key 'a'"):
        parse_json('{"a": 1, "a": 2}', SMALL, unique=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**39), 10**39) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3, alphabet="a\u00e9"), inner),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_every_document_within_bounds_is_read_as_json_reads_it(value: object) -> None:
    text = json.dumps(value)
    for numbers in ("finite", "text", "any"):
        assert parse_json(text.encode(), Bounds(size=1 << 20), numbers=numbers) == json.loads(text)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "big").write_bytes(b" " * 1001)
    for name, why in (
        ("fifo", "is a FIFO, not a file"), ("null", "is a device, not a file"), (".", "is a directory, not a file"),
        ("none", "does not exist"), ("big", "is larger than 1,000 bytes"), ("a\0b", "cannot be opened"),
        ("x" * 300, "cannot be opened: File name too long"),
    ):  # fmt: skip
        with pytest.raises(Unreadable, match=why) as caught:
            read_json(tmp_path / name, SMALL)
        assert caught.value.missing == (name == "none")


def test_a_file_of_proc_that_says_it_is_empty_is_bounded_too() -> None:
    assert read_bytes(Path("/proc/self/stat"), limit=1 << 20)
    with pytest.raises(Unreadable, match="larger"):
        read_bytes(Path("/proc/self/stat"), limit=5)


@pytest.mark.parametrize(
    "text",
    ["a = 1", "[a.b.c]\nd.e = [1, [2, {f = 3.5}]]", 'x = """a.b.c."""', "a = 1 # " + "a." * 100, '"a.b" = 1',
     "k = '" + "[" * 100 + "'", 'k = "' + '\\"' * 40 + "." * 40 + '"', "t = 1979-05-27T07:32:00.999",
     "a = '''\n''" + "." * 60 + "'''", "x = [\n" + "1.5,\n" * 100 + "]"],
)  # fmt: skip
def test_toml_that_is_fine(text: str) -> None:
    assert parse_toml(text)


def test_a_dotted_key_is_counted_across_quotes_and_blanks() -> None:
    for key in (" . ".join("a" * 34), ".".join(['"."'] * 34), ".".join(["''"] * 34)):
        with pytest.raises(Unreadable, match="a key of more than 32 parts"):
            parse_toml(f"{key} = 1")


@pytest.mark.parametrize("piece", ["a.", '"', "'", '\\"', '""" ', "[", "#", "1", "{a=", "x\n", "a = '''\n'' "])
def test_the_time_for_toml_grows_with_its_size_alone(piece: str) -> None:
    """The ratio of two sizes, a hundredfold apart, each the best of three: far below the square."""

    def took_s(size: int) -> float:
        text, best = piece * (size // len(piece)), float("inf")
        for _ in range(3):
            start_s = time.perf_counter()
            with contextlib.suppress(Unreadable):
                parse_toml(text)
            best = min(best, time.perf_counter() - start_s)
        return best

    small = took_s(4_000)
    assert took_s(400_000) < 2000 * max(small, 1e-5)
