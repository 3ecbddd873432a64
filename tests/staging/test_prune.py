"""Staged directories that nobody needs go; everything else in the cache stays."""

import os
import shutil
import time
from pathlib import Path

import pytest
from filelock import FileLock

from pytest_specprobe.staging import Staged, stage
from pytest_specprobe.staging.prune import prune
from pytest_specprobe.staging.stage import read_manifest
from tests.support import checkpoint_builder as build

DAY_S = 86400.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build.llama().save(tmp_path / "drafter")


@pytest.fixture
def staged(source: Path, tmp_path: Path) -> Staged:
    return stage(source, cache=tmp_path / "cache", target_positions=None)


def test_what_was_asked_for_lately_stays(staged: Staged) -> None:
    cache = staged.path.parent
    assert prune(cache) == ()
    assert prune(cache, now=time.time() + 13 * DAY_S) == ()
    assert staged.path.is_dir()


def test_what_nobody_asked_for_in_two_weeks_goes_and_the_source_stays(staged: Staged, source: Path) -> None:
    assert prune(staged.path.parent, now=time.time() + 15 * DAY_S) == (staged.path,)
    assert not staged.path.exists()
    assert (source / "model.safetensors").exists()


def test_asking_again_counts(staged: Staged, source: Path) -> None:
    old = time.time() - 20 * DAY_S
    os.utime(staged.path, (old, old))
    assert stage(source, cache=staged.path.parent, target_positions=None).path == staged.path
    assert prune(staged.path.parent) == ()


def test_a_source_that_is_gone_takes_its_staged_copy_along_after_an_hour(staged: Staged, source: Path) -> None:
    shutil.rmtree(source)
    assert prune(staged.path.parent) == ()
    assert prune(staged.path.parent, now=time.time() + 2 * 3600) == (staged.path,)


def test_what_a_server_reads_stays(staged: Staged) -> None:
    later = time.time() + 100 * DAY_S
    assert prune(staged.path.parent, in_use={str(staged.path)}, now=later) == ()


def test_what_another_process_makes_or_looks_at_stays(staged: Staged) -> None:
    with FileLock(staged.path.parent / f".{staged.path.name}.lock"):
        assert prune(staged.path.parent, now=time.time() + 100 * DAY_S) == ()
    assert staged.path.is_dir()


def test_a_killed_runs_half_made_directory_goes_unless_it_is_being_made(tmp_path: Path) -> None:
    name = f"drafter-{'0' * 20}"
    half = tmp_path / f".{name}.x1y2z3a4.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    with FileLock(tmp_path / f".{name}.lock"):
        assert prune(tmp_path) == ()
    assert prune(tmp_path) == (half,)


@pytest.mark.parametrize("how", ["a file more", "another name", "no manifest", "a link"])
def test_what_is_not_provably_ours_stays(staged: Staged, tmp_path: Path, how: str) -> None:
    cache, path = staged.path.parent, staged.path
    if how == "a file more":
        (path / "notes.txt").write_text("mine")
    elif how == "another name":
        path = path.rename(cache / "my-models")
    elif how == "no manifest":
        (path / "specprobe-staged.json").unlink()
    else:
        path = path.rename(tmp_path / "elsewhere")
        (cache / staged.path.name).symlink_to(path)
    assert prune(cache, now=time.time() + 100 * DAY_S) == ()
    assert path.is_dir()


def test_no_cache_is_nothing_to_prune(tmp_path: Path) -> None:
    assert prune(tmp_path / "nowhere") == ()


def test_a_directory_that_another_run_removes_meanwhile_is_no_error(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_manifest

    def and_it_is_gone(folder: Path) -> object:
        found = read(folder)
        shutil.rmtree(staged.path, ignore_errors=True)
        return found

    monkeypatch.setattr("pytest_specprobe.staging.prune.read_manifest", and_it_is_gone)
    assert prune(staged.path.parent, now=time.time() + 15 * DAY_S) == ()
