"""Two runs and one GPU: the second waits and says for whom. The GPUs are pretended, the runs and locks are real."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.errors import ServerError
from pytest_specprobe.server.gpu import hold
from pytest_specprobe.server.gpu.hold import GpuHold
from pytest_specprobe.server.gpu.selection import gpus_of
from pytest_specprobe.server.spec import ServerSpec

SMI = """#!/bin/sh
case "$1" in
  *index,uuid*) printf '0, GPU-a\\n1, GPU-b\\n2, GPU-c\\n' ;;
  *uuid,memory*) printf 'GPU-a, 10\\nGPU-b, 10\\nGPU-c, 10\\n' ;;
  *name*) printf 'Pretended, 1000, 1.0\\nPretended, 1000, 1.0\\nPretended, 1000, 1.0\\n' ;;
esac
"""
HOLDER = """
import sys, time
from pytest_specprobe.server.gpu.hold import GpuHold
hold = GpuHold()
hold.take(sys.argv[1:], what="another run", patience_s=5, say=print)
print("taken", flush=True)
time.sleep(600)
"""


@pytest.fixture
def three_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("fields", "visible", "expected"),
    [
        ({}, None, ("GPU-a",)),
        ({"tp": 2}, None, ("GPU-a", "GPU-b")),
        ({"tp": 2}, "2,0", ("GPU-c", "GPU-a")),
        ({}, "GPU-b", ("GPU-b",)),
        ({}, "MIG-x", ("MIG-x",)),
        ({"tp": 2}, "1,nonsense,0", ("GPU-b",)),
        ({"tp": 2}, "", ()),
        ({"server_args": ("--base-gpu-id", "1")}, None, ("GPU-b",)),
        ({"server_args": ("--base-gpu-id=0", "--gpu-id-step=2"), "tp": 2}, None, ("GPU-a", "GPU-c")),
        ({"server_args": ("--pp-size", "3")}, None, ("GPU-a", "GPU-b", "GPU-c")),
        ({"server_args": ("--nnodes", "2"), "tp": 4}, None, ("GPU-a", "GPU-b")),
        ({"server_args": ("--dp-size", "2")}, None, ("GPU-a", "GPU-b")),
        ({"server_args": ("--dp-size", "2", "--enable-dp-attention")}, None, ("GPU-a",)),
        ({"device": "cpu"}, None, ()),
    ],
)
@pytest.mark.usefixtures("three_gpus")
def test_the_gpus_of_a_server_are_known_before_it_boots(
    fields: dict[str, Any], visible: str | None, expected: tuple[str, ...]
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_of(ServerSpec(model="m", **fields), environ) == expected


def test_the_second_run_waits_for_the_first_and_says_for_whom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hold, "_SAY_EVERY_S", 0.2)
    said: list[str] = []
    mine = GpuHold()
    with subprocess.Popen([sys.executable, "-c", HOLDER, "GPU-b"], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        mine.take(["GPU-a"], what="mine", patience_s=0, say=said.append)
        assert said == []
        with pytest.raises(ServerError, match=f"GPU GPU-b is still held by run PID {other.pid}") as caught:
            mine.take(["GPU-b", "GPU-c"], what="mine", patience_s=1, say=said.append)
        assert caught.value.culprit == "machine"
        assert len(said) >= 2
        assert said[0].startswith(
            f"waiting for GPU GPU-b: run PID {other.pid} (another run), which holds it since 20"
        )
        assert mine.held(["GPU-a"])
        assert not mine.held(["GPU-c"])
        # However a run ends, the kernel lets go.
        other.send_signal(signal.SIGKILL)
        started = time.monotonic()
        mine.take(["GPU-b"], what="mine", patience_s=30, say=said.append)
        assert time.monotonic() - started < 20
    assert mine.held(["GPU-a", "GPU-b"])
    mine.release()
    assert not mine.held(["GPU-a"])
    second = GpuHold()
    second.take(["GPU-a", "GPU-b"], what="second", patience_s=0, say=said.append)
    second.release()


def test_a_lock_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(ServerError, match="cannot be taken through"):
        GpuHold().take(["GPU-a"], what="mine", patience_s=0, say=print)


@pytest.mark.usefixtures("three_gpus")
def test_two_served_drafters_take_turns_on_a_gpu_and_not_on_two(serve: Callable[..., Any]) -> None:
    cuda = ("--device", "cuda")
    first = serve(*cuda)
    first.ready()
    beside = serve(*cuda, CUDA_VISIBLE_DEVICES="1")
    beside.ready()
    assert "waiting for GPU" not in beside.said
    late = serve(*cuda, "--boot-timeout", "2")
    assert late.code() == 11
    assert f"GPU GPU-a is still held by run PID {first.process.pid} (dense_mini)" in late.said
    waiting = serve(*cuda)
    deadline = time.monotonic() + 30
    while f"waiting for GPU GPU-a: run PID {first.process.pid} (dense_mini)" not in waiting.said:
        assert time.monotonic() < deadline, waiting.said
        time.sleep(0.05)
    first.process.send_signal(signal.SIGTERM)
    assert first.code() == 0
    waiting.ready()
