"""Real SGLang on a CPU: boot, prove, generate, tokenize, flush. One boot for all."""

import dataclasses
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from pytest_specprobe.errors import BootError, ServerError
from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.attach import attach
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.gpu import holders
from pytest_specprobe.server.http.info import differences
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.proof import prove
from pytest_specprobe.server.spec import ServerSpec
from tests.support.server_pair import Pair

PROMPT = Prompt(id="p", workload="w", text="hello", input_ids=(256, 258, 104, 101, 108, 108, 111, 259))


def test_the_boot_goes_through_its_phases_and_ends_ready(booted: Any) -> None:
    phases = list(dict.fromkeys(p.phase for p in booted.progress))
    assert phases[-1] == "ready"
    assert {"weights", "draft-weights", "kv-cache", "warm-up"} & set(phases)
    assert booted.server.boot_s == pytest.approx(booted.progress[-1].elapsed_s, abs=2)
    assert booted.server.alive()


def test_it_listens_on_loopback_only_and_insists_on_the_key(booted: Any) -> None:
    url = booted.server.url
    assert url.startswith("http://127.0.0.1:")
    assert httpx.get(f"{url}/server_info", timeout=30).status_code == 401
    answering = holders.port_holders(int(url.rpartition(":")[2]))
    assert [h.pid for h in answering] == [booted.server.pid]
    # Not only the HTTP port: torch's store, gloo and what else its processes open.
    server = psutil.Process(booted.server.pid)
    sockets = [c for p in (server, *server.children(recursive=True)) for c in p.net_connections(kind="inet")]
    listening = [c.laddr.ip for c in sockets if c.status == psutil.CONN_LISTEN]
    assert len(listening) > 1
    assert set(listening) == {"127.0.0.1"}


def test_the_key_is_in_no_command_line_and_in_no_shown_text(booted: Any) -> None:
    key = booted.server.api_key.reveal()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key.encode() not in path.read_bytes()
        except OSError:
            continue
    info = booted.server.client.server_info()
    shown = [" ".join(booted.server.command), booted.server.log_text(), repr(info), repr(booted.server)]
    assert all(key not in text for text in shown)
    assert stat.S_IMODE(Path(booted.server.log_path).stat().st_mode) == 0o600


def test_a_generation_has_counts_that_fit_together(booted: Any) -> None:
    done = booted.server.client.generate(PROMPT, max_new_tokens=24, ignore_eos=True)
    assert done.completion_tokens == len(done.output_ids) == 24
    assert done.finish_reason == "length"
    assert done.prompt_tokens == len(PROMPT.input_ids)
    assert sum(done.chunk_tokens) == 24
    assert done.chunk_tokens[0] == done.first_tokens
    assert done.start_s < done.first_s < done.last_s
    assert list(done.chunk_s) == sorted(done.chunk_s)
    assert sum(done.histogram) == done.rounds
    assert sum(i * n for i, n in enumerate(done.histogram)) == done.accepted
    assert 0 <= 1 + done.accepted + done.rounds - 24 <= 2
    assert done.sglang_accept_length == pytest.approx(24 / done.rounds)
    assert done.text


def test_a_template_without_thinking_takes_no_notice_of_it(booted: Any) -> None:
    messages = [{"role": "user", "content": "hello"}]
    plain = booted.server.client.tokenize_chat(messages)
    assert all(booted.server.client.tokenize_chat(messages, thinking=on) == plain for on in (True, False))


def test_it_counts_exactly_what_it_prefills(booted: Any) -> None:
    client = booted.server.client
    client.flush()
    before = client.prefilled_tokens()
    for _ in range(3):
        client.generate(PROMPT, max_new_tokens=4, ignore_eos=True)
    client.flush()
    assert client.prefilled_tokens() - before == 3 * len(PROMPT.input_ids)


def test_the_two_best_tokens_are_the_greedy_one_and_a_worse(booted: Any) -> None:
    """Also after tokens of its own, as at the place where two texts part."""
    client = booted.server.client
    greedy = client.generate(PROMPT, max_new_tokens=3, ignore_eos=True).output_ids
    for at in range(3):
        best = client.best_tokens((*PROMPT.input_ids, *greedy[:at]))
        assert best.tokens[0] == greedy[at]
        assert best.tokens[1] != greedy[at]
        assert best.gap > 0


def test_the_target_reads_its_own_greedy_text_without_a_gap(booted: Any) -> None:
    """Also along a token that it would not have said: there, and only there, is a gap."""
    client = booted.server.client
    greedy = client.generate(PROMPT, max_new_tokens=12, ignore_eos=True).output_ids
    gaps = client.gaps_along(PROMPT.input_ids, greedy)
    assert len(gaps) == 12
    assert max(gaps) < 1e-3
    other = (greedy[0] + 1) % 100
    assert client.gaps_along(PROMPT.input_ids, (other,))[0] > 1e-3


def test_the_server_tells_its_own_time_of_a_request(booted: Any) -> None:
    done = booted.server.client.generate(PROMPT, max_new_tokens=16, ignore_eos=True)
    assert done.server_s is not None
    assert 0.5 * (done.last_s - done.start_s) < done.server_s < done.last_s - done.start_s


def test_greedy_answers_repeat_and_one_token_has_no_round(booted: Any) -> None:
    client = booted.server.client
    one, two = (client.generate(PROMPT, max_new_tokens=8, ignore_eos=True) for _ in range(2))
    assert one.output_ids == two.output_ids
    single = client.generate(PROMPT, max_new_tokens=1, ignore_eos=True)
    assert single.output_ids == one.output_ids[:1]
    assert not single.rounds


def test_chat_messages_become_the_templates_token_ids(booted: Any) -> None:
    ids = booted.server.client.tokenize_chat([{"role": "user", "content": "hello"}])
    assert ids == PROMPT.input_ids


def test_flush_resets_the_running_mean(booted: Any) -> None:
    client = booted.server.client
    client.generate(PROMPT, max_new_tokens=48, ignore_eos=True)
    assert client.server_info().server_accept_length is not None
    client.flush()
    assert client.server_info().server_accept_length in {None, 0.0}


def test_every_proof_passes_and_the_scrubbed_variable_is_named(booted: Any, tiny_spec: ServerSpec) -> None:
    server = booted.server
    assert "SGLANG_SIMULATE_ACC_LEN" in server.scrubbed
    findings = prove(
        server.client.server_info(),
        spec=tiny_spec,
        log_text=server.log_text(),
        canary=server.client.generate(PROMPT, max_new_tokens=8, ignore_eos=True),
        scrubbed=server.scrubbed,
        sockets=server.sockets(),
    )
    assert {f.id: f.status for f in findings if f.status != "pass"} == {}
    assert len(server.sockets()) > 1
    assert f"{len(server.sockets())} sockets on loopback" in {f.seen for f in findings}
    simulated = next(f for f in findings if f.id == "proof.simulated-acceptance")
    assert "SGLANG_SIMULATE_ACC_LEN" in simulated.seen


def test_a_server_does_not_differ_from_itself(booted: Any) -> None:
    info = booted.server.client.server_info()
    assert differences(info, info) == {}
    changed = dataclasses.replace(info, settings={**info.settings, "max_running_requests": -1}, internal=())
    assert "max_running_requests" in differences(dataclasses.replace(info, internal=()), changed)


def test_attach_takes_the_key_and_never_stops_the_server(booted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerError, match="refuses the API key"):
        attach(booted.server.url, api_key=Secret("wrong"))
    monkeypatch.setenv("SPECPROBE_API_KEY", booted.server.api_key.reveal())
    with attach(booted.server.url) as attached:
        assert not attached.owned
        assert attached.alive()
    assert booted.server.alive()


def test_it_is_recorded_as_ours_while_it_runs(booted: Any, tiny_spec: ServerSpec) -> None:
    records = [o for o in ownership.servers() if o.pid == booted.server.pid]
    assert [o.label for o in records] == ["tiny"]
    assert records[0].owner_pid == os.getpid()
    assert len(ownership.processes_of(records[0])) >= 3
    assert (records[0].device, records[0].drafter) == ("cpu", str(tiny_spec.drafter))
    assert ownership.leftovers() == ()


OWN_CODE = "open({ran!r}, 'w').close()\nclass Foo: pass\n"


def test_a_targets_own_code_does_not_run_without_the_permission_of_its_profile(
    tiny_pair: Pair, tmp_path: Path, needs_sglang: None
) -> None:
    """SGLang looks into the auto_map of a class that it does not know, whatever --trust-remote-code says."""
    target = shutil.copytree(tiny_pair.target, tmp_path / "target")
    config = json.loads((target / "config.json").read_text())
    config |= {"architectures": ["Foo"], "auto_map": {"AutoModel": "own_code.Foo"}}
    (target / "config.json").write_text(json.dumps(config))
    (target / "own_code.py").write_text(OWN_CODE.format(ran=str(tmp_path / "ran")))
    with pytest.raises(BootError):
        boot(ServerSpec(model=str(target), device="cpu"), log_path=tmp_path / "log", timeout_s=300)
    assert "Foo" in (tmp_path / "log").read_text(), "it came as far as the class"
    assert not (tmp_path / "ran").exists()
