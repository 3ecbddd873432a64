"""Each run has a folder of its own for its logs, and old ones go; which run goes on is told by a real lock."""

import subprocess
import sys
from pathlib import Path

from pytest_specprobe.probe.logs import RunLogs

HOLDER = """
import sys, time
from pathlib import Path
from pytest_specprobe.probe.logs import RunLogs
print(RunLogs(Path(sys.argv[1])).file("server").parent.name, flush=True)
time.sleep(600)
"""


def old(root: Path, number: int) -> Path:
    folder = root / f"20200101-000000-{number:08x}"
    folder.mkdir(parents=True)
    (folder / "server.log").write_text("old\n")
    return folder


def test_two_runs_share_no_log(tmp_path: Path) -> None:
    one, two = RunLogs(tmp_path), RunLogs(tmp_path)
    assert one.file("server") == one.file("server")
    assert one.file("server") != two.file("server")
    assert one.file("server").parent.is_dir()


def test_a_run_without_a_boot_leaves_no_folder(tmp_path: Path) -> None:
    RunLogs(tmp_path / "logs").close()
    assert list(tmp_path.iterdir()) == []


def test_the_last_ten_stay_and_whatever_is_not_ours(tmp_path: Path) -> None:
    folders = [old(tmp_path, number) for number in range(12)]
    elsewhere = old(tmp_path / "elsewhere", 1)
    link = tmp_path / "20190101-000000-00000000"
    link.symlink_to(elsewhere)
    (tmp_path / "notes").mkdir()
    (tmp_path / "dense_mini-drafter.log").write_text("of an earlier version\n")
    logs = RunLogs(tmp_path)
    logs.file("server")
    assert [folder.exists() for folder in folders] == [False] * 3 + [True] * 9
    assert (elsewhere / "server.log").exists()
    assert link.is_symlink()
    assert (tmp_path / "notes").exists()
    assert (tmp_path / "dense_mini-drafter.log").exists()


def test_the_folder_of_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        held = tmp_path / holder.stdout.readline().strip()
        newer = [tmp_path / f"99990101-000000-{number:08x}" for number in range(12)]
        for folder in newer:
            folder.mkdir()
        RunLogs(tmp_path).file("server")
        assert held.is_dir()
        holder.kill()
        holder.wait()
    RunLogs(tmp_path).file("server")
    assert not held.exists()


def test_a_folder_that_cannot_be_made_is_left_to_the_one_who_writes(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file of the user's")
    assert RunLogs(tmp_path / "logs").file("server").parent.parent == tmp_path / "logs"
