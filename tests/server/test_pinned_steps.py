"""A pin is believed only if the live server says so, before the turn and after it."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pytest_specprobe.errors import MeasurementError, ProfileError
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.child_environment import environment
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.pinned_steps import NotPinned, PinnedSteps
from pytest_specprobe.server.spec import ServerSpec, command

CHAIN = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)


class Fake:
    """SGLang's two answers, from a real socket; ``fault`` is how it misbehaves."""

    def __init__(self) -> None:
        self.fault = ""
        self.steps = [2, 2]
        self.asked: list[str] = []

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        self.asked.append(path)
        if path == "/set_internal_state":
            if self.fault in {"refuses", "one rank refuses"}:
                return [self.fault == "one rank refuses", False]
            if self.fault == "garbage":
                return {"updated": True}
            if self.fault != "lies":
                self.steps = [body["server_args"]["speculative_num_steps"]] * 2
            if self.fault == "one rank lags":
                self.steps[1] = 2
            return [True, True]
        extra = 2 if self.fault == "tree" else 1
        ranks = [{"speculative_num_steps": s, "speculative_num_draft_tokens": s + extra} for s in self.steps]
        return {"version": "0", "model_path": "m", "internal_states": [] if self.fault == "silent" else ranks}


@pytest.fixture
def fake() -> Any:
    state = Fake()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.dumps(state.answer(self.path, json.loads(self.rfile.read(length) or b"{}"))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - http.server's own spelling

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    with Client(f"http://127.0.0.1:{server.server_address[1]}") as client:
        yield state, PinnedSteps(client, steps=2)
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_pin_flushes_then_proves_the_old_then_the_new(fake: tuple[Fake, PinnedSteps]) -> None:
    state, pinned = fake
    pinned.pin(3)
    assert state.asked == ["/flush_cache", "/server_info", "/set_internal_state", "/server_info"]
    assert (pinned.steps, state.steps) == (3, [3, 3])
    pinned.verify()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("refuses", "refuses to be pinned to 3 steps"),
        ("one rank refuses", "refuses to be pinned"),
        ("lies", "should draft 3 steps and says it drafts 2 steps and 3 draft tokens"),
        ("one rank lags", "2 steps and 3 draft tokens, 3 steps"),
        ("tree", "2 steps and 4 draft tokens"),
        ("silent", "says it drafts nothing"),
    ],
)
def test_a_server_that_does_not_do_as_asked_is_found_out(
    fake: tuple[Fake, PinnedSteps], fault: str, says: str
) -> None:
    state, pinned = fake
    state.fault = fault
    with pytest.raises(NotPinned, match=says) as caught:
        pinned.pin(3)
    assert caught.value.culprit == "engine"


def test_a_server_that_moved_by_itself_is_found_out_before_the_next_turn(fake: tuple[Fake, PinnedSteps]) -> None:
    state, pinned = fake
    pinned.pin(1)
    state.steps = [3, 3]
    with pytest.raises(NotPinned, match="should draft 1 steps and says it drafts 3 steps"):
        pinned.pin(2)
    assert state.asked.count("/set_internal_state") == 1


def test_an_answer_that_is_no_list_of_booleans_is_an_error(fake: tuple[Fake, PinnedSteps]) -> None:
    state, pinned = fake
    state.fault = "garbage"
    with pytest.raises(MeasurementError, match="one boolean per rank"):
        pinned.pin(3)


def spec(**changes: Any) -> ServerSpec:
    return ServerSpec(**{"model": "m", "drafter": Path("/d"), "speculation": CHAIN, "candidates": (1, 2), **changes})


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_server_with_candidates_is_adaptive_and_has_the_plug_in_on_its_path(device: Any) -> None:
    words = command(spec(device=device), host="h", port=1)
    assert "--speculative-adaptive" in words
    path = environment(spec(device=device), {"PYTHONPATH": "/mine"})[0]["PYTHONPATH"].split(":")
    assert path[0].endswith("engines/steps/overlay")
    assert path[-1] == "/mine"
    assert len(path) == (3 if device == "cpu" else 2)


def test_other_servers_are_as_they_were() -> None:
    assert "--speculative-adaptive" not in command(spec(candidates=()), host="h", port=1)
    assert "PYTHONPATH" not in environment(spec(candidates=()), {})[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"candidates": (1, 3)},
        {"speculation": Speculation(num_steps=2, eagle_topk=2, num_draft_tokens=4)},
        {"drafter": None, "speculation": None},
    ],
    ids=["boots on none of them", "a tree", "a baseline"],
)
def test_candidates_need_a_chain_that_boots_on_one_of_them(changes: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match="need a chain"):
        spec(**changes)
