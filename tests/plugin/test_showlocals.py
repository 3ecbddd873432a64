"""``pytest -l`` prints the local variables of every frame that fails: none of them is the key."""

from pathlib import Path

import pytest

from tests.support.jobs import run_job
from tests.support.stand_in import Handler, serving, write_profile

KEY = "a-key-that-is-seen-nowhere-0123456789"
TESTS = """
import pytest
from pytest_specprobe.server.attach import attach

def test_a_call_that_fails_in_our_frames(specprobe_client):
    specprobe_client.generate(object(), max_new_tokens=object(), ignore_eos=True)

def test_a_request_that_fails_in_the_frames_of_httpx(specprobe_client):
    specprobe_client.tokenize_chat([{"role": object(), "content": object()}])

def test_a_server_that_is_lost(specprobe_server, monkeypatch):
    def lost(*_, **__):
        raise ZeroDivisionError("in the socket")
    monkeypatch.setattr("socket.socket.recv", lost)
    specprobe_server.client.server_info()

def test_attach_that_fails(specprobe_server, monkeypatch):
    def lost(*_, **__):
        raise ZeroDivisionError("in the parser")
    monkeypatch.setattr("pytest_specprobe.server.http.info.ServerInfo.parse", lost)
    attach(specprobe_server.url)

def test_an_assertion_about_the_server(specprobe_run, specprobe_server, specprobe_client):
    everything = (vars(specprobe_server), vars(specprobe_client), vars(specprobe_client._http))
    assert (specprobe_server, everything) == 1
"""


class Insists(Handler):
    """Counts the requests that came without the key."""

    refused = 0

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed and self.headers.get("Authorization") != f"Bearer {KEY}":
            type(self).refused += 1
        return parsed


@pytest.mark.parametrize("options", [("-l",), ("-l", "-vv", "--full-trace"), ("-l", "--tb=short")])
def test_showlocals_shows_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    monkeypatch.setenv("SPECPROBE_API_KEY", KEY)
    write_profile(tmp_path)
    (tmp_path / "test_own.py").write_text(TESTS)
    with serving(Insists) as url:
        job = run_job(
            tmp_path, "--specprobe-drafter=attached", f"--specprobe-server={url}", "--specprobe-baseline=none",
            "test_own.py", "--junitxml=junit.xml", "-p", "no:cacheprovider", *options,
        )  # fmt: skip
    assert "5 failed" in job.output
    assert "ZeroDivisionError" in job.output
    assert Insists.refused == 0, "every request has the key"
    assert KEY not in job.output
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
