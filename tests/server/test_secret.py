"""The key of a server is used and never shown: not printed, not serialised, in no local variable of any frame."""

import contextlib
import copy
import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.errors import SpecprobeError
from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.secret import HIDDEN, Secret, Variables
from pytest_specprobe.server.attach import attach
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.log.file import _PIECE, blot, read_log
from pytest_specprobe.server.spec import ServerSpec

MakeSpec = Callable[..., ServerSpec]
KEY = "0123456789abcdef0123456789abcdef"
_NO_ASTERISK = st.characters(codec="utf-8", exclude_characters="*")
_NOT_OURS = (__name__, "os", "collections.abc")
PROMPT = Prompt(id="p1", workload="w", text="t", input_ids=(1, 2, 3))


def test_it_prints_as_asterisks_wherever_it_is() -> None:
    key = Secret(KEY)
    shown = (
        repr(key),
        str(key),
        f"{key}",
        f"{key!r:>9}",
        repr({"key": (key,)}),
        repr(vars(type("T", (), {"k": key}))),
    )
    assert KEY not in "".join(shown)
    assert repr(key) == HIDDEN


WAYS: dict[str, Callable[[Secret], object]] = {
    "pickle": pickle.dumps,
    "json": json.dumps,
    "vars": lambda key: json.dumps(key, default=vars),
}


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_it_is_not_serialised(write: Callable[[Secret], object]) -> None:
    with pytest.raises(TypeError):
        write(Secret(KEY))


def test_it_does_not_change_and_a_copy_is_itself() -> None:
    key = Secret(KEY)
    with pytest.raises(AttributeError):
        key._text = "other"
    assert copy.deepcopy([key])[0] is key
    assert copy.copy(key) is key


def test_equal_texts_are_equal_secrets() -> None:
    assert Secret(KEY) == Secret(KEY)
    assert Secret(KEY) != Secret(KEY[:-1])
    assert Secret(KEY) != KEY
    assert Secret.random() != Secret.random()


def test_no_empty_text_is_a_secret() -> None:
    with pytest.raises(ValueError, match="empty"):
        Secret("")
    assert Secret.variable("KEY", {"KEY": ""}) is None
    assert Secret.variable("KEY", {}) is None


@given(text=st.text(_NO_ASTERISK, min_size=1), around=st.tuples(st.text(), st.text()))
def test_a_text_that_held_it_does_not(text: str, around: tuple[str, str]) -> None:
    assert text not in Secret(text).hide(text.join(around))


@given(cut=st.integers(8, len(KEY) - 1))
def test_a_part_of_it_at_the_edge_of_a_text_is_hidden(cut: int) -> None:
    assert Secret(KEY).hide(f"{KEY[-cut:]} and {KEY[:cut]}") == f"{HIDDEN} and {HIDDEN}"


def test_it_is_found_as_json_and_urls_write_it() -> None:
    key = Secret('a "quoted" key/ü')
    assert key.hide(json.dumps({"key": key.reveal()})) == '{"key": "***"}'
    assert key.hide("?key=a%20%22quoted%22%20key%2F%C3%BC&x=1") == "?key=***&x=1"


def test_variables_print_their_names_alone() -> None:
    env = Variables({"A_TOKEN": "sesame"}) | {"B": "sesame"}
    assert repr(env) == f"{env}" == "Variables(A_TOKEN, B)"
    assert [*env.values()] == ["sesame"] * 2


@pytest.mark.parametrize("at", [0, 5, _PIECE - 7, _PIECE - len(KEY), _PIECE, 3 * _PIECE - 1])
def test_a_key_is_blotted_out_of_a_log_wherever_it_is(tmp_path: Path, at: int) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * at + KEY.encode() * 2 + b"y" * 9)
    blot(log, Secret(KEY))
    assert log.read_bytes() == b"x" * at + b"*" * (2 * len(KEY)) + b"y" * 9


def test_a_log_that_is_read_from_the_middle_of_a_key_shows_none_of_it(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"key {KEY}\nnext")
    assert read_log(log, secrets=(Secret(KEY),), start=10) == f"{HIDDEN}\nnext"


@contextmanager
def frames_watched(text: str) -> Iterator[list[str]]:
    """Collect the local variables that hold ``text`` as a frame is left, in every thread and every library.

    Frames of ``secret.py``, and what those call, are where a key is used; ``os.environ`` is the user's own.
    """
    holders: list[str] = []

    def at_the_rim(frame: FrameType | None) -> bool:
        while frame is not None:
            if (
                frame.f_globals.get("__name__") == "pytest_specprobe.secret"
                or frame.f_code.co_name == "frames_watched"
            ):
                return True
            frame = frame.f_back
        return False

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "return" or frame.f_globals.get("__name__") in _NOT_OURS or at_the_rim(frame):
            return
        for name, value in frame.f_locals.items():
            if type(value).__module__.partition(".")[0] == "httpcore":
                continue  # the pool counts its connections under its own lock; none of these shows a header
            shown = ""
            with contextlib.suppress(Exception):  # half-made objects have no repr, and pytest would show none either
                shown = repr(value)
            if text in shown:
                holders.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}: {name}")

    before = sys.getprofile()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield holders
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_no_frame_of_a_boot_and_its_requests_holds_the_key(fake_spec: MakeSpec, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with frames_watched(KEY) as holders:
        server = boot(fake_spec(generate=["good", "500"]), log_path=log, timeout_s=60, api_key=Secret(KEY))
        try:
            server.client.generate(PROMPT, max_new_tokens=6, ignore_eos=True)
            with pytest.raises(SpecprobeError):
                server.client.generate(PROMPT, max_new_tokens=6, ignore_eos=True)
            server.key_file()
            with log.open("a") as file:
                file.write(f"api_key='{KEY}'\n")
            server.log_tail()
        finally:
            server.close()
    assert holders == []


def test_no_frame_of_an_attached_probe_holds_the_key(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECPROBE_API_KEY", KEY)
    with (
        boot(fake_spec(), log_path=tmp_path / "log", timeout_s=60, api_key=Secret(KEY)) as server,
        boot(fake_spec(), log_path=tmp_path / "other.log", timeout_s=60) as other,
        frames_watched(KEY) as holders,
    ):
        with attach(server.url) as attached:
            attached.client.generate(PROMPT, max_new_tokens=6, ignore_eos=True)
        with pytest.raises(SpecprobeError, match="refuses the API key"):
            attach(other.url)
    assert holders == []


def test_a_request_that_cannot_be_sent_shows_no_key_in_any_frame() -> None:
    """The write fails in the socket; whatever is raised on the way, and its causes, hold the placeholder alone."""
    with frames_watched(KEY) as holders, Client("http://127.0.0.1:1", api_key=Secret(KEY)) as client:
        with pytest.raises(SpecprobeError):
            client.server_info()
        with pytest.raises(AttributeError):
            client.generate(object(), max_new_tokens=1, ignore_eos=True)  # type: ignore[arg-type]  # a user's slip
        with pytest.raises(TypeError):
            client.best_tokens([object()])  # type: ignore[list-item]  # a user's slip
    assert holders == []


@pytest.mark.parametrize("text", ["a\r\nX-Evil: 1", "a\n", "schl\u00fcssel", "\udc80", "\0"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(SpecprobeError, match="no HTTP header") as caught:
        Client("http://127.0.0.1:1", api_key=Secret(text))
    assert caught.value.culprit == "harness"
    assert text not in str(caught.value)
