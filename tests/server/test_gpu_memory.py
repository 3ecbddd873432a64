"""GPU holders and memory through nvidia-smi; a stand-in program, since the memory has to change on cue."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.server import owned, ownership
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.spec import ServerSpec


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that prints the file ``apps`` or ``used``, whichever was asked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in *compute-apps*) cat {tmp_path}/apps;; *) cat {tmp_path}/used;; esac\n'
    )
    program.chmod(0o755)
    (tmp_path / "apps").write_text(f"{os.getpid()}, 2048, GPU-1\n999999999, 10, GPU-1\n[N/A], 1, GPU-1\n")
    (tmp_path / "used").write_text("GPU-1, 100\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path


def test_holders_are_named_with_memory_and_user(nvidia_smi: Path) -> None:
    ours, gone = ownership.gpu_holders()
    assert (ours.pid, ours.what) == (os.getpid(), "2048 MiB of GPU-1")
    assert ours.command != "?"
    assert (gone.command, gone.user) == ("?", "?")
    assert str(ours).startswith("2048 MiB of GPU-1: pid ")


def test_without_nvidia_smi_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ownership.gpu_holders() == ()
    assert ownership.gpu_memory_mib() == {}


def test_a_broken_nvidia_smi_is_not_our_end(nvidia_smi: Path) -> None:
    (nvidia_smi / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    assert ownership.gpu_memory_mib() == {}
    assert ownership.gpu_holders() == ()


def test_the_end_waits_for_the_memory_and_warns_if_it_does_not_come_back(
    fake_spec: Callable[..., ServerSpec],
    tmp_path: Path,
    nvidia_smi: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    monkeypatch.setattr(owned, "_MEMORY_PATIENCE_S", 1.5)
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60):
        (nvidia_smi / "used").write_text("GPU-1, 90000\n")
    assert "GPU-1: 90000 MiB, 100 before" in caplog.text
    assert f"pid {os.getpid()}" in caplog.text
    caplog.clear()
    (nvidia_smi / "used").write_text("GPU-1, 100\n")
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60):
        (nvidia_smi / "used").write_text("GPU-1, 300\n")
    assert not caplog.records
