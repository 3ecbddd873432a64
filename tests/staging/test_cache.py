"""The cache of staged directories is this user's alone: no other reads it, holds its locks, or makes it."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.errors import StagingError
from pytest_specprobe.staging import Staged, stage
from pytest_specprobe.staging.prune import prune
from tests.support import checkpoint_builder as build

OTHER = 12345
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user too")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint that no other user may read."""
    path = build.llama().save(tmp_path / "drafter")
    path.chmod(0o700)
    return path


def staged_in(cache: Path, source: Path) -> Staged:
    return stage(source, cache=cache, target_positions=None, blind=True)


@pytest.mark.parametrize("made", [False, True], ids=["new", "made as the umask said"])
def test_what_is_staged_and_its_lock_are_closed_to_others(open_folder: Path, source: Path, *, made: bool) -> None:
    cache = open_folder / "staged"
    if made:
        cache.mkdir(mode=0o755)
    staged = staged_in(cache, source)
    (lock,) = cache.glob(".*.lock")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (cache, staged.path, lock, *staged.path.iterdir())}
    assert modes.pop(cache.name) == 0o700
    assert modes.pop(staged.path.name) == 0o700
    assert set(modes.values()) == {0o600}
    assert lock.name in modes


@ROOT_ONLY
def test_another_user_can_neither_read_the_weights_nor_hold_the_lock(open_folder: Path, source: Path) -> None:
    cache = open_folder / "staged"
    staged = staged_in(cache, source)
    (lock,) = cache.glob(".*.lock")
    (open_folder / "readable").write_text("by all")
    # The interpreter itself may lie where only root looks.
    script = 'exec 3<"$1"'
    for path, code in ((open_folder / "readable", 0), (staged.path / "model.safetensors", 2), (lock, 2)):
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", path], user=OTHER, group=OTHER, extra_groups=[], capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert code == 0 or "Permission denied" in done.stderr


def _group_may_write(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o775)


def _all_may_write(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o1777)


def _link(cache: Path) -> None:
    (cache.parent / "real").mkdir(mode=0o700)
    cache.symlink_to(cache.parent / "real")


def _another_users(cache: Path) -> None:
    cache.mkdir(mode=0o700)
    os.chown(cache, OTHER, -1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_group_may_write, "can be written by other users (mode 0775)"),
        (_all_may_write, "can be written by other users (mode 1777)"),
        (_link, "is a symbolic link"),
        pytest.param(_another_users, f"belongs to another user (uid {OTHER})", marks=ROOT_ONLY),
    ],
)
def test_a_cache_that_is_not_ours_is_named_and_left_alone(tmp_path: Path, source: Path, make: Any, says: str) -> None:
    cache = tmp_path / "staged"
    make(cache)
    before = cache.lstat()
    with pytest.raises(StagingError) as caught:
        staged_in(cache, source)
    assert caught.value.culprit == "machine"
    assert f"{cache} {says}" in caught.value.what
    assert "chmod 700" in caught.value.fix
    assert "XDG_CACHE_HOME" in caught.value.fix
    assert list(cache.iterdir()) == []
    assert (cache.lstat().st_mode, cache.lstat().st_uid) == (before.st_mode, before.st_uid)


@pytest.mark.parametrize("make", [_group_may_write, _link, pytest.param(_another_users, marks=ROOT_ONLY)])
def test_nothing_is_pruned_in_a_cache_that_is_not_ours(tmp_path: Path, make: Any) -> None:
    cache = tmp_path / "staged"
    make(cache)
    half_made = cache / f".drafter-{'0' * 20}.x1.tmp"
    half_made.mkdir()
    assert prune(cache) == ()
    assert half_made.is_dir()


@ROOT_ONLY
@pytest.mark.parametrize("whose", ["directory", "weights"])
def test_a_staged_directory_of_another_user_is_made_anew(tmp_path: Path, source: Path, whose: str) -> None:
    staged = staged_in(tmp_path / "staged", source)
    theirs = staged.path if whose == "directory" else staged.path / "model.safetensors"
    os.chown(theirs, OTHER, -1)
    again = staged_in(tmp_path / "staged", source)
    assert again.path.stat().st_uid == os.geteuid()
    assert {path.stat().st_uid for path in again.path.iterdir()} == {os.geteuid()}
