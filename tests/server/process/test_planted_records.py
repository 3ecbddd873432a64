"""A record that another user could have written, or that this tool never writes, ends and removes nothing."""

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.errors import ServerError
from pytest_specprobe.server import boot_times
from pytest_specprobe.server.gpu.hold import GpuHold
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.process.supervisor import MARKER_VARIABLE, read_process
from pytest_specprobe.server.spec import ServerSpec

MARKER = secrets.token_hex(15) + "ab"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of this test's own, made as the tool makes it, and the place of temporary files beside it."""
    for name, variable in (("state", "SPECPROBE_STATE_DIR"), ("tmp", "TMPDIR")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(ownership, "_DEEPEST", 4096)
    ownership.records_dir().mkdir(mode=0o700)
    return tmp_path / "state"


class Victim:
    """A process of this user; with ``marker`` it is one of a boot's."""

    def __init__(self, marker: str | None = None) -> None:
        env = {"PATH": os.environ["PATH"], **({MARKER_VARIABLE: marker} if marker else {})}
        self.process = subprocess.Popen(["sleep", "60"], env=env)
        seen = read_process(self.process.pid)
        assert seen is not None
        self.start_time = seen.start_time
        while MARKER_VARIABLE.encode() not in self.environ() if marker else b"PATH=" not in self.environ():
            time.sleep(0.01)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def environ(self) -> bytes:
        return Path(f"/proc/{self.process.pid}/environ").read_bytes()


@pytest.fixture
def victim(state: Path) -> Iterator[Victim]:
    one = Victim()
    yield one
    one.end()


def plant(name: str = MARKER, **changes: Any) -> Path:
    """Write a leftover's record, as this tool would, but for the changes."""
    marker = changes.get("marker", MARKER)
    ownership.record(
        marker=MARKER, pid=0, start_time=0, port=1, label="planted", log_path=Path("/nowhere"),
        scratch=ownership.scratch_dir(MARKER),
    )  # fmt: skip
    written = ownership.records_dir() / f"{MARKER}.json"
    fields = json.loads(written.read_text()) | {"owner_pid": 1, "owner_start_time": -1, "marker": marker} | changes
    written.unlink()
    path = ownership.records_dir() / f"{name}.json"
    path.write_text(json.dumps(fields))
    path.chmod(0o600)
    return path


def spared(victim: Victim) -> bool:
    ownership.servers()
    ended = ownership.reap(grace_s=0.2)
    return ended == () and victim.process.poll() is None


def test_a_processs_pid_and_start_time_without_the_marker_do_not_make_it_ours(victim: Victim) -> None:
    plant(pid=victim.process.pid, start_time=victim.start_time)
    assert spared(victim)


def test_a_recorded_leftover_with_its_marker_is_ended_and_its_scratch_removed(state: Path) -> None:
    left = Victim(MARKER)
    scratch = ownership.scratch_dir(MARKER)
    scratch.mkdir(mode=0o700)
    (scratch / "key").write_text("k")
    path = plant(pid=left.process.pid, start_time=left.start_time)
    try:
        (one,) = ownership.reap(grace_s=5)
    finally:
        left.process.send_signal(signal.SIGTERM)
    assert (one.owned.label, one.left) == ("planted", ())
    assert left.process.wait(10) == -signal.SIGTERM
    assert not scratch.exists()
    assert not path.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"marker": "/../../../precious"},
        {"marker": "0" * 31},
        {"marker": MARKER.upper()},
        {"marker": "f" * 32},
        {"marker": f"{MARKER}\n"},
        {"scratch": "precious"},
        {"created": 1e300},
        {"created": "now"},
        {"owner_pid": "1"},
    ],
    ids=["a path", "short", "upper case", "not the file's name", "a line end", "relative", "year", "text", "pid"],
)
def test_what_this_tool_never_writes_is_no_record(victim: Victim, changes: dict[str, Any], tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "thesis").write_text("years")
    marked = Victim(MARKER)
    try:
        plant(pid=victim.process.pid, start_time=victim.start_time, **{"scratch": str(precious)} | changes)
        assert ownership.servers() == ()
        assert spared(victim)
        assert marked.process.poll() is None
        assert (precious / "thesis").exists()
    finally:
        marked.end()


@pytest.mark.parametrize("kind", ["elsewhere", "another mode", "a link", "dots"])
def test_a_scratch_that_is_not_the_markers_own_is_never_removed(state: Path, tmp_path: Path, kind: str) -> None:
    name = ownership.scratch_dir(MARKER).name
    real = tmp_path / "elsewhere" / name
    real.mkdir(mode=0o700, parents=True)
    (real / "thesis").write_text("years")
    place = {
        "elsewhere": real,
        "another mode": ownership.scratch_dir(MARKER),
        "a link": ownership.scratch_dir(MARKER),
        "dots": tmp_path / "tmp" / ".." / "elsewhere" / name,
    }[kind]
    if kind == "another mode":
        real.rename(place).chmod(0o755)
    elif kind == "a link":
        place.symlink_to(real)
    plant(scratch=str(place))
    assert ownership.servers() == ()
    ownership.forget(MARKER)
    assert (place / "thesis").exists()


def loosen(path: Path) -> None:
    path.chmod(0o620)


def loosen_folder(path: Path) -> None:
    path.parent.chmod(0o770)


def make_link(path: Path) -> None:
    path.rename(path.parent.parent / "real").chmod(0o600)
    path.symlink_to(path.parent.parent / "real")


def make_folder_link(path: Path) -> None:
    path.parent.rename(path.parent.parent / "real")
    path.parent.symlink_to(path.parent.parent / "real")


def second_name(path: Path) -> None:
    os.link(path, path.parent.parent / "second")


def another_owner(path: Path) -> None:
    os.chown(path, 12345, -1)


def another_owners_folder(path: Path) -> None:
    os.chown(path.parent, 12345, -1)


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.mark.parametrize(
    "expose",
    [
        loosen,
        loosen_folder,
        make_link,
        make_folder_link,
        second_name,
        make_fifo,
        pytest.param(another_owner, marks=ROOT_ONLY),
        pytest.param(another_owners_folder, marks=ROOT_ONLY),
    ],
)
def test_a_record_that_another_user_could_have_written_does_not_count(state: Path, expose: Any) -> None:
    one = Victim(MARKER)
    try:
        path = plant(pid=one.process.pid, start_time=one.start_time)
        assert [owned.label for owned in ownership.leftovers()] == ["planted"]
        expose(path)
        assert ownership.servers() == ()
        assert spared(one)
    finally:
        one.end()


@ROOT_ONLY
def test_a_process_of_another_user_is_never_ours(state: Path) -> None:
    env = {MARKER_VARIABLE: MARKER, "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "20"], env=env, user=12345, group=12345) as other:
        try:
            plant(pid=other.pid)
            assert ownership.reap(grace_s=0.2) == ()
            assert other.poll() is None
        finally:
            other.kill()


def test_a_record_is_written_for_this_user_alone_and_through_no_link(state: Path, tmp_path: Path) -> None:
    marker = secrets.token_hex(16)
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    folder = ownership.records_dir()
    for name in (f"{marker}.tmp", f"{marker}.json"):
        (folder / name).symlink_to(theirs)
    path = ownership.record(
        marker=marker, pid=os.getpid(), start_time=1, port=1, label="l", log_path=tmp_path / "log",
        scratch=ownership.scratch_dir(marker),
    )  # fmt: skip
    assert path is not None
    assert theirs.read_text() == "theirs"
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


def test_boot_times_are_written_and_believed_as_records_are(state: Path, tmp_path: Path) -> None:
    spec, file, theirs = ServerSpec(model="m"), state / "boot-times.json", tmp_path / "theirs"
    boot_times.remember(spec, 7.0)
    assert boot_times.usual_s(spec) == 7.0
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    assert boot_times.usual_s(spec) is None
    file.rename(theirs)
    theirs.chmod(0o600)
    for name in (file, file.with_suffix(".tmp")):
        name.symlink_to(theirs)
    said = theirs.read_text()
    assert boot_times.usual_s(spec) is None
    boot_times.remember(spec, 9.0)
    assert boot_times.usual_s(spec) == 9.0
    assert theirs.read_text() == said


@pytest.mark.parametrize("kind", ["a link", "a second name", "others may write", "a folder that others may write"])
def test_a_gpu_is_taken_through_no_file_of_anothers(state: Path, tmp_path: Path, kind: str) -> None:
    theirs, lock = tmp_path / "theirs", state / "gpus" / "GPU-a"
    theirs.write_text("theirs")
    lock.parent.mkdir(mode=0o700)
    if kind == "a link":
        lock.symlink_to(theirs)
    elif kind == "a second name":
        os.link(theirs, lock)
    else:
        lock.write_text("theirs")
        (lock if kind == "others may write" else lock.parent).chmod(0o777)
    with pytest.raises(ServerError, match="SPECPROBE_STATE_DIR") as caught:
        GpuHold().take(["GPU-a"], what="mine", patience_s=0, say=print)
    assert str(state / "gpus") in caught.value.what
    assert "None" not in caught.value.what
    assert theirs.read_text() == "theirs"
