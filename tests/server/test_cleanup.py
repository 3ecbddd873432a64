"""The phase ``free``: what this tool left behind is ended; whoever else is in the way is named and left alone."""

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specprobe.probe.cleanup import clear
from pytest_specprobe.profiles import Profile, load_profiles
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.spec import ServerSpec

MakeSpec = Callable[..., ServerSpec]


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return load_profiles(tmp_path, extra=None).get("dense_mini")


def with_args(tmp_path: Path, *server_args: str) -> Profile:
    (tmp_path / "specprobe.toml").write_text(f"[targets.mini_llama]\nserver_args = {list(server_args)}\n")
    return load_profiles(tmp_path, extra=None).get("dense_mini")


def test_a_leftover_is_ended_and_a_live_runs_server_is_not(
    fake_spec: MakeSpec, tmp_path: Path, profile: Profile
) -> None:
    with (
        boot(fake_spec(), log_path=tmp_path / "left.log", timeout_s=60, label="left") as left,
        boot(fake_spec(), log_path=tmp_path / "live.log", timeout_s=60, label="live") as live,
    ):
        records = {json.loads(path.read_text())["label"]: path for path in ownership.records_dir().glob("*.json")}
        fields = json.loads(records["left"].read_text())
        # As if the owner had been killed, and its pid given to another process since.
        records["left"].write_text(json.dumps(fields | {"owner_start_time": fields["owner_start_time"] - 1}))
        said = list(clear(profile, device="cpu", cache=tmp_path / "cache"))
        assert said == [
            f"a server left by a run that is gone ended: left, pid {left.pid}, port {left.url.rpartition(':')[2]}"
        ]
        assert not left.wait(10)
        assert live.alive()
        assert list(clear(profile, device="cpu", cache=tmp_path / "cache")) == []


def test_strangers_on_needed_gpus_and_ports_are_named(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.socket() as taken,
        subprocess.Popen(["sleep", "60"]) as stranger,
        boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as ours,
    ):
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = tmp_path / "nvidia-smi"
        apps = f"{stranger.pid}, 2048, GPU-a\\n{ours.pid}, 512, GPU-a\\n{stranger.pid}, 1, GPU-b\\n"
        program.write_text(
            f"#!/bin/sh\ncase $1 in *apps*) printf '{apps}';; *index*) printf '0, GPU-a\\n1, GPU-b\\n';; esac\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        for word in (["--nccl-port", str(port)], [f"--dist-init-addr=127.0.0.1:{port}"]):
            said = list(clear(with_args(tmp_path, *word), device="auto", cache=tmp_path / "cache"))
            assert len(said) == 3
            assert said[0].startswith(f"held (not of this tool, left alone): 2048 MiB of GPU-a: pid {stranger.pid} (")
            assert said[0].endswith("sleep 60")
            assert said[1].startswith(f"held (a server of run PID {os.getpid()}): 512 MiB of GPU-a: pid {ours.pid}")
            assert said[2].startswith(f"held (not of this tool, left alone): port {port}: pid {os.getpid()}")
        assert list(clear(with_args(tmp_path), device="cpu", cache=tmp_path / "cache")) == []
        assert stranger.poll() is None
        stranger.kill()
