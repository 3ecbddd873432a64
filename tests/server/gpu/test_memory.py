"""GPU holders and memory through nvidia-smi; a stand-in program, since the memory has to change on cue."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pytest_specprobe.server import owned
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.boot_watch import BootProgress
from pytest_specprobe.server.gpu import holders
from pytest_specprobe.server.gpu.nvidia_smi import Gpu, gpu_indices, gpu_memory_mib, gpus
from pytest_specprobe.server.spec import ServerSpec


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that prints the file ``apps`` or ``used``, whichever was asked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\ncase "$1" in\n'
        # as the driver does, the program forgets a process that is gone; 999999999 stands for a stranger's
        f'*compute-apps*) while IFS=, read -r pid rest; do if [ "$pid" = 999999999 ] || [ "$pid" = "[N/A]" ] '
        f'|| [ -d "/proc/$pid" ]; then echo "$pid,$rest"; fi; done < {tmp_path}/apps;;\n'
        f"*) cat {tmp_path}/used;;\nesac\n"
    )
    program.chmod(0o755)
    (tmp_path / "apps").write_text(f"{os.getpid()}, 2048, GPU-1\n999999999, 10, GPU-1\n[N/A], 1, GPU-1\n")
    (tmp_path / "used").write_text("GPU-1, 100\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path


def grows_to(used: Path, mib: int) -> Callable[[BootProgress], None]:
    """Let the server take memory as it becomes ready."""

    def watch(progress: BootProgress) -> None:
        if progress.phase == "ready":
            used.write_text(f"GPU-1, {mib}\n")

    return watch


def test_holders_are_named_with_memory_and_user(nvidia_smi: Path) -> None:
    ours, gone = holders.gpu_holders()
    assert (ours.pid, ours.what) == (os.getpid(), "2048 MiB of GPU-1")
    assert ours.command != "?"
    assert (gone.command, gone.user) == ("?", "?")
    assert str(ours).startswith("2048 MiB of GPU-1: pid ")


def test_without_nvidia_smi_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert holders.gpu_holders() == ()
    assert gpu_memory_mib() == {}


def test_a_broken_nvidia_smi_is_not_our_end(nvidia_smi: Path) -> None:
    (nvidia_smi / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    assert gpu_memory_mib() == {}
    assert gpu_indices() == {}
    assert gpus() == ()
    assert holders.gpu_holders() == ()


def test_a_gpu_whose_memory_is_not_said_is_left_out(nvidia_smi: Path) -> None:
    """As the driver answers for memory that is the machine's own: no number, and no traceback."""
    said = "NVIDIA H200, 143771, 570.1\nNVIDIA GB10, [N/A], 580.2\nwarning: infoROM is corrupted"
    (nvidia_smi / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'X'\n{said}\nX\n")
    assert gpus() == (Gpu("NVIDIA H200", 143771, "570.1"),)


def test_the_end_waits_for_the_memory_and_warns_if_it_does_not_come_back(
    fake_spec: Callable[..., ServerSpec],
    tmp_path: Path,
    nvidia_smi: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    monkeypatch.setattr(owned, "_MEMORY_PATIENCE_S", 1.5)
    used = nvidia_smi / "used"
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60, progress=grows_to(used, 90_000)):
        pass
    assert "GPU-1: 90000 MiB, 100 expected" in caplog.text
    assert f"pid {os.getpid()}" in caplog.text
    caplog.clear()
    (nvidia_smi / "used").write_text("GPU-1, 100\n")
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60):
        (nvidia_smi / "used").write_text("GPU-1, 300\n")
    assert not caplog.records


def test_a_server_that_stays_up_is_not_waited_for(
    fake_spec: Callable[..., ServerSpec], tmp_path: Path, nvidia_smi: Path, caplog: Any
) -> None:
    """A drafter's server goes while the baseline, booted after it, stays: the level stays above the first one."""
    used = nvidia_smi / "used"
    first = boot(fake_spec(), log_path=tmp_path / "1.log", timeout_s=60, progress=grows_to(used, 40_000))
    with boot(fake_spec(), log_path=tmp_path / "2.log", timeout_s=60, progress=grows_to(used, 70_000)):
        stopper = Thread(target=first.close)
        stopper.start()
        time.sleep(3)
        assert stopper.is_alive(), "the first one's memory has not come back"
        used.write_text("GPU-1, 30100\n")
        stopper.join(10)
        assert not stopper.is_alive()
        used.write_text("GPU-1, 100\n")
    assert not caplog.records


def test_where_the_driver_names_processes_only_ours_are_waited_for(
    fake_spec: Callable[..., ServerSpec], tmp_path: Path, nvidia_smi: Path, caplog: Any
) -> None:
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        (nvidia_smi / "apps").write_text(f"{server.pid}, 40000, GPU-1\n999999999, 50000, GPU-1\n")
        (nvidia_smi / "used").write_text("GPU-1, 90000\n")
    assert not caplog.records
