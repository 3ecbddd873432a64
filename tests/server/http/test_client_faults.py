"""Answers that are not what SGLang sends: an error with its culprit, within a deadline; never a number."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from httpcore._sync import connection_pool as httpcore_pool

from pytest_specprobe.errors import MeasurementError, ServerError, SpecprobeError
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec

MakeSpec = Callable[..., ServerSpec]
PROMPT = Prompt(id="p1", workload="w", text="t", input_ids=(1, 2, 3))


@contextmanager
def serving(spec: ServerSpec, tmp_path: Path) -> Iterator[OwnedServer]:
    with boot(spec, log_path=tmp_path / "server.log", timeout_s=60) as server:
        yield server


def generate(server: OwnedServer, **limits: Any) -> Generation:
    client = Client(server.url, api_key=server.api_key, **{"request_timeout_s": 3.0, "silence_s": 2.0, **limits})
    with client:
        return client.generate(PROMPT, max_new_tokens=6, ignore_eos=True)


GOOD = ("good", "old-names", "incremental")


def test_every_generation_of_names_and_both_ways_of_streaming_read_the_same(
    fake_spec: MakeSpec, tmp_path: Path
) -> None:
    with serving(fake_spec(generate=list(GOOD)), tmp_path) as server:
        for _ in GOOD:
            done = generate(server)
            assert (done.rounds, done.accepted, done.histogram) == (3, 2, (2, 0, 1))
            assert done.output_ids == (5, 6, 7, 8, 9, 10)
            assert done.text == "abcdef"
            assert done.chunk_tokens == (2, 4)
            assert (done.prompt_tokens, done.first_tokens, done.finish_reason) == (3, 2, "length")


def test_no_speculation_fields_at_all_is_no_speculation(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with serving(fake_spec(generate=["no-rounds"]), tmp_path) as server:
        done = generate(server)
    assert (done.rounds, done.accepted, done.histogram, done.sglang_accept_length) == (None, None, None, None)


def test_a_ctrl_c_as_an_answer_is_put_away_is_not_lost(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = httpcore_pool.PoolByteStream.close
    hits = []

    def close(self: httpcore_pool.PoolByteStream) -> None:
        real(self)
        hits.append(self)
        if len(hits) == 1:
            raise KeyboardInterrupt

    with serving(fake_spec(), tmp_path) as server, monkeypatch.context() as patch:
        patch.setattr(httpcore_pool.PoolByteStream, "close", close)
        with pytest.raises(KeyboardInterrupt):
            generate(server)


INVALID = {
    "half-rounds": "only a part of the speculation fields",
    "count-lies": "9 completion_tokens are reported",
    "rewrites": "6 completion_tokens are reported",
    "negative": "spec_verify_ct is -1",
    "boolean": "spec_verify_ct is True",
    "no-cached": "cached_tokens is None",
    "nan": "e2e_latency is 'NaN'",
    "float-ids": "no output_ids",
    "aborted": "out of memory",
    "no-meta": "no meta_info",
    "error-chunk": "boom",
    "garbage": "did not answer with JSON",
    "deep": "did not answer with JSON",
}
LOST = {
    "500": "HTTP 500",
    "redirect": "redirects elsewhere",
    "cut": "ended early",
    "truncated": "ended early",
    "no-done": "ended early",
    "hang": "no answer in time",
    "drip": "no answer in time",
    "drip-headers": "no answer in time",
    "huge": "larger than|no answer in time",
}


def test_each_hostile_answer_is_an_error_within_its_deadline(fake_spec: MakeSpec, tmp_path: Path) -> None:
    faults = {**INVALID, **LOST}
    with serving(fake_spec(generate=[*faults, "good"]), tmp_path) as server:
        for fault, message in faults.items():
            started = time.monotonic()
            kind: type[SpecprobeError] = MeasurementError if fault in INVALID else ServerError
            with pytest.raises(kind, match=message) as caught:
                generate(server)
            assert time.monotonic() - started < 8, fault
            assert "sesame" not in str(caught.value)
        assert generate(server).completion_tokens == 6


def test_the_deadline_of_the_whole_exchange_bounds_each_wait(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with serving(fake_spec(generate=["hang"]), tmp_path) as server:
        started = time.monotonic()
        with pytest.raises(ServerError, match="no answer in time"):
            generate(server, request_timeout_s=1.0, silence_s=60.0)
        assert time.monotonic() - started < 10


@pytest.mark.parametrize(("fault", "message"), [("die", "Error|ended early"), ("stop", "no answer in time")])
def test_a_server_that_dies_or_stops_while_answering(
    fake_spec: MakeSpec, tmp_path: Path, fault: str, message: str
) -> None:
    with serving(fake_spec(generate=[fault]), tmp_path) as server:
        with pytest.raises(ServerError, match=message) as caught:
            generate(server)
        assert caught.value.culprit == "machine"
        server.wait(1.0)
        assert server.alive() is (fault == "stop")


def test_flush_waits_for_a_busy_server_and_gives_up_in_time(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with serving(fake_spec(busy=2), tmp_path) as server:
        server.client.flush(patience_s=20)
    with serving(fake_spec(busy=10**6), tmp_path) as server, pytest.raises(MeasurementError, match="still busy"):
        server.client.flush(patience_s=0.5)


def test_a_server_without_chat_tokenising_is_named(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with serving(fake_spec(), tmp_path) as server, pytest.raises(ServerError, match="cannot render chat") as caught:
        server.client.tokenize_chat([{"role": "user", "content": "x"}])
    assert caught.value.culprit == "target"


def test_a_tokenizer_without_a_length_is_told_apart(fake_spec: MakeSpec, tmp_path: Path) -> None:
    """SGLang 0.5.17 on an H200, with a tokenizer without model_max_length: a TypeError in its log, a bare 500."""
    with serving(fake_spec(unlimited=True), tmp_path) as server, pytest.raises(ServerError) as caught:
        server.client.tokenize_chat([{"role": "user", "content": "x"}])
    assert caught.value.culprit == "target"
    assert "model_max_length" in caught.value.fix


def test_nobody_there() -> None:
    with Client("http://127.0.0.1:9") as client:
        assert not client.healthy(timeout_s=2)
        with pytest.raises(ServerError, match=r"127\.0\.0\.1:9"):
            client.server_info()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://a..b:1",
        "http://exa\u2603mple:1",
        "http://user:pass@host:1",
    ],
)
def test_a_url_that_is_none_or_holds_a_password_is_refused(url: str) -> None:
    with pytest.raises(ServerError) as caught:
        Client(url)
    assert "pass" not in caught.value.what.replace("password", "")


def test_proxies_of_the_environment_are_not_used(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(fake_spec(), tmp_path) as server:
        assert server.client.server_info().version == "0.0-fake"


def test_a_key_that_goes_elsewhere_unencrypted_is_warned_about(caplog: Any) -> None:
    Client("http://127.0.0.1:1", api_key=Secret("k")).close()
    assert not caplog.records
    Client("http://example.invalid:1", api_key=Secret("k")).close()
    assert "unencrypted" in caplog.text
