"""``specprobe serve``, ``servers`` and ``reap`` on the stand-in: what they print, end and leave alone."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.cli import main
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.attach import AttachedServer, attach
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.process import ownership, supervisor
from pytest_specprobe.server.proof import prove
from pytest_specprobe.server.spec import ServerSpec
from tests.support.held import PATIENCE_S, VERB, gone, words

MakeSpec = Callable[..., ServerSpec]
# setsid --ctty would do for a shell; this needs no program of the system.
WITH_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_it_holds_two_proved_servers_and_a_second_process_probes_both(serve: Any) -> None:
    held = serve("--baseline")
    said = held.ready()
    assert said["command"] == (
        f'SPECPROBE_API_KEY="$(cat {said["key_file"]})" pytest --specprobe-drafter=dense_mini '
        f"--specprobe-server={said['drafter']['url']} --specprobe-baseline={said['baseline']['url']}"
    )
    key_file = Path(said["key_file"])
    key = key_file.read_text().strip()
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert key not in held.said
    assert key not in Path(said["drafter"]["log"]).read_text()
    assert key not in Path(f"/proc/{held.process.pid}/cmdline").read_text()
    for part in ("drafter", "baseline"):
        with attach(said[part]["url"], api_key=Secret(key)) as server:
            assert server.vouched
            assert (server.pid, server.device) == (said[part]["pid"], "cpu")
            assert server.log_text() == "up\n"
            assert server.own_log_text() == ""
    held.process.send_signal(signal.SIGINT)
    assert held.code() == 0
    assert not key_file.parent.exists()
    assert ownership.servers() == ()


def test_a_probe_of_it_proves_who_can_reach_it_and_whose_code_it_runs(serve: Any, tmp_path: Path) -> None:
    profiles = tmp_path / "trusting.toml"
    profiles.write_text("[targets.mini_llama]\ntrust_remote_code = true\n")
    held = serve("--profiles", str(profiles))
    said = held.ready()
    key = Path(said["key_file"]).read_text().strip()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--specprobe-drafter=dense_mini"]
    command += [f"--specprobe-profiles={profiles}", f"--specprobe-server={said['drafter']['url']}"]
    command += ["--specprobe-baseline=none", "specprobe/test_boot.py"]
    env = {**os.environ, "SPECPROBE_API_KEY": key}
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (entry,) = json.loads((tmp_path / ".specprobe" / "report.json").read_text())["drafters"]
    checks = {check["id"]: (check["status"], check["seen"]) for check in entry["checks"]}
    assert checks["proof.host"] == ("pass", "127.0.0.1")
    assert checks["proof.remote-code"] == ("pass", "True")
    assert checks["proof.sockets"] == ("pass", "1 sockets on loopback")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_cleanly_when_told(serve: Any, number: signal.Signals) -> None:
    held = serve()
    pids = [held.ready()["drafter"]["pid"]]
    held.process.send_signal(number)
    held.process.send_signal(number)
    assert held.code() == 0
    assert f"{number.name}: ending the servers" in held.said
    assert "nothing is left" in held.said
    assert all(p is None or p.zombie for p in map(supervisor.read_process, pids))
    assert not list(ownership.records_dir().glob("*.json"))


def test_a_signal_while_it_boots_ends_it_too(serve: Any) -> None:
    held = serve(plan={"never": True})
    deadline = time.monotonic() + PATIENCE_S
    while not ownership.servers():
        assert time.monotonic() < deadline, held.said
        time.sleep(0.05)
    held.process.send_signal(signal.SIGTERM)
    assert held.code() == 0
    assert ownership.servers() == ()


def test_when_its_terminal_closes_it_ends(tmp_path: Path, python: Path) -> None:
    ours, theirs = pty.openpty()
    verb = [sys.executable, "-c", VERB, *words(python)]
    env = os.environ | {"FAKE_SGLANG": json.dumps({"pair": True})}
    with subprocess.Popen(
        [sys.executable, "-c", WITH_TERMINAL, *verb],
        cwd=tmp_path,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        text = b""
        while b'"key_file"' not in text:
            text += os.read(ours, 65536)
        assert ownership.servers()
        os.close(ours)
        assert process.wait(PATIENCE_S) == 0
    assert ownership.servers() == ()


def test_killed_outright_it_leaves_nothing(serve: Any) -> None:
    held = serve()
    scratch = Path(held.ready()["key_file"]).parent
    held.process.kill()
    held.process.wait()
    assert gone()
    assert not scratch.exists()


def test_a_server_that_ends_by_itself_ends_it_with_the_last_lines(serve: Any) -> None:
    held = serve(plan={"log": "the last words\n"})
    os.kill(held.ready()["drafter"]["pid"], signal.SIGKILL)
    assert held.code() == 1
    assert "has ended by itself" in held.said
    assert "the last words" in held.said


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ({"plan": {"log": "boom\n", "exit": 3}}, 11, "exited with code 3"),
        ({"plan": {"pair": False}}, 11, "cannot render chat"),
        ({"plan": {"generate": ["no-rounds"]}}, 1, "proof.not-speculating"),
        ({"plan": {"generate": ["garbage"]}}, 1, "did not answer with JSON"),
        ({"SPECPROBE_API_KEY": 'short"'}, 2, "is no key for a server"),
        ({"more": ("--boot-timeout", "-1")}, 2, "--boot-timeout"),
        ({"more": ("--profiles", "nowhere.toml")}, 2, "nowhere.toml"),
    ],
)
def test_what_cannot_be_served_is_named_and_left_nowhere(
    serve: Any, given: dict[str, Any], code: int, text: str
) -> None:
    held = serve(*given.get("more", ()), **{name: value for name, value in given.items() if name != "more"})
    assert held.code() == code, held.said
    assert text in held.said
    assert 'short"' not in held.said
    assert ownership.servers() == ()


def test_a_profile_that_cannot_be_probed_is_not_booted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specprobe.toml").write_text(
        '[drafters.dense_mini]\nworkload = "none.jsonl"\n[targets.mini_llama]\nserver_args = ["--port", "1"]\n'
    )
    assert main(["serve", "dense_mini"]) == 2
    said = capsys.readouterr().err
    assert "server_args may not hold --port" in said
    assert "none.jsonl" in said


def test_the_callers_own_key_is_used_and_never_shown(serve: Any) -> None:
    key = "a-key-that-the-caller-chose"
    held = serve(SPECPROBE_API_KEY=key)
    said = held.ready()
    assert said["key_file"] is None
    assert said["command"].startswith("pytest --specprobe-drafter=dense_mini ")
    with attach(said["drafter"]["url"], api_key=Secret(key)) as server:
        assert server.vouched
    assert key not in held.said


# --- what vouches for a server -------------------------------------------------------------------------------


def simulated(server: AttachedServer, spec: ServerSpec) -> Finding:
    canary = Generation(
        prompt_id="p", workload="w", prompt_tokens=1, cached_tokens=0, completion_tokens=2, output_ids=(1, 2),
        text="", finish_reason="length", rounds=1, accepted=0, histogram=(1, 0, 0), sglang_accept_length=None,
        start_s=0.0, first_s=1.0, last_s=2.0, first_tokens=1, chunk_tokens=(1, 1), chunk_s=(1.0, 2.0),
    )  # fmt: skip
    found = prove(
        server.client.server_info(),
        spec=spec,
        log_text=None,
        canary=canary,
        scrubbed=server.scrubbed if server.vouched else None,
        variables=server.variables,
    )
    return next(f for f in found if f.id == "proof.simulated-acceptance")


def test_a_vouched_servers_environment_is_looked_at(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    spec = fake_spec()
    forged = ServerSpec(**{
        name: getattr(spec, name) for name in ("model", "drafter", "speculation", "python")
    }, env=(*spec.env, ("SGLANG_SIMULATE_ACC_LEN", "2.5")))  # fmt: skip
    for wanted, status in ((spec, "pass"), (forged, "fail")):
        with (
            boot(wanted, log_path=tmp_path / "server.log", timeout_s=60) as server,
            attach(server.url, api_key=server.api_key) as attached,
        ):
            finding = simulated(attached, spec)
            assert finding.status == status
            assert server.environment is not None
            assert server.environment["OMP_NUM_THREADS"] == "3"
            assert attached.environment == server.environment, "by its record"
    assert "SGLANG_SIMULATE_ACC_LEN" in finding.seen


def test_a_record_vouches_only_for_the_process_that_listens(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        (record,) = ownership.records_dir().glob("*.json")
        fields = json.loads(record.read_text())
        for change in ({"port": fields["port"] + 1}, {"pid": os.getpid(), "marker": "0" * 32}, {"host": "elsewhere"}):
            record.write_text(json.dumps(fields | change))
            with attach(server.url, api_key=server.api_key) as attached:
                assert not attached.vouched
                finding = simulated(attached, fake_spec())
                assert finding.status == "skip"
                assert "unproved" in finding.seen
        record.write_text(json.dumps(fields))


# --- servers, reap -------------------------------------------------------------------------------------------


def verb(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().out


def as_leftover(record: Path) -> None:
    """As if the owner had been killed, and its pid given to another process since."""
    fields = json.loads(record.read_text())
    record.write_text(json.dumps(fields | {"owner_start_time": fields["owner_start_time"] - 1}))


def test_servers_lists_and_reap_ends_only_what_was_left(
    fake_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert verb(capsys, "servers") == (0, "no server of this tool runs here\n")
    with (
        boot(fake_spec(), log_path=tmp_path / "live.log", timeout_s=60, label="live") as live,
        boot(fake_spec(), log_path=tmp_path / "left.log", timeout_s=60, label="left") as left,
    ):
        code, text = verb(capsys, "servers", "--json")
        rows = {row["profile"]: row for row in json.loads(text)["servers"]}
        assert code == 0
        assert {name: row["state"] for name, row in rows.items()} == {"live": "live", "left": "live"}
        assert rows["live"] | {"started": None} == {
            "state": "live", "profile": "live", "what": "drafter", "pid": live.pid, "started": None, "url": live.url,
            "port": int(live.url.rpartition(":")[2]), "device": "cuda", "gpus": [], "owner_pid": os.getpid(),
            "log": str(tmp_path / "live.log"),
        }  # fmt: skip
        assert json.loads(verb(capsys, "reap", "--json")[1])["ended"] == []
        records = {json.loads(path.read_text())["label"]: path for path in ownership.records_dir().glob("*.json")}
        as_leftover(records["left"])
        assert "leftover" in verb(capsys, "servers")[1]
        code, text = verb(capsys, "reap", "--json")
        assert code == 0
        (ended,) = json.loads(text)["ended"]
        assert (ended["profile"], ended["pid"], ended["state"], ended["left"]) == ("left", left.pid, "leftover", [])
        assert live.alive()
        assert not left.wait(10)
        assert "no leftover" in verb(capsys, "reap")[1]


def test_reap_names_foreign_gpu_holders_and_leaves_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with subprocess.Popen(["sleep", "60"]) as stranger:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncase $1 in *apps*) echo {stranger.pid}, 2048, GPU-1;; esac\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        code, text = verb(capsys, "reap")
        assert code == 0
        assert f"left alone, not ours: 2048 MiB of GPU-1: pid {stranger.pid}" in text
        assert "sleep 60" in text
        assert stranger.poll() is None
        stranger.kill()


def test_a_record_that_cannot_be_read_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ownership.records_dir()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.json").write_text("{")
    (folder / "short.json").write_text('{"marker": "m"}')
    try:
        assert verb(capsys, "servers")[0] == 0
        assert verb(capsys, "reap")[0] == 0
    finally:
        for name in ("broken.json", "short.json"):
            with contextlib.suppress(OSError):
                (folder / name).unlink()
