"""At full scale the gate reads a few megabytes of a checkpoint of 2 GB beside one of a terabyte.

Counted, not timed: bytes that the reader asked of files, and the peak of Python's own allocations.
"""

import os
import tracemalloc
from pathlib import Path

import pytest

from pytest_specprobe.checkpoint.files import header
from pytest_specprobe.checkpoint.files.digest import digest
from pytest_specprobe.checkpoint.inspect import inspect
from tests.support.full_scale import kimi_k2

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return kimi_k2(tmp_path_factory.mktemp("kimi"))


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of every read that the gate made, through the one place that reads tensors and headers."""
    lengths: list[int] = []
    original = header._read_at

    def counted(file, offset, length):  # type: ignore[no-untyped-def]
        part = original(file, offset, length)
        lengths.append(len(part))
        return part

    monkeypatch.setattr(header, "_read_at", counted)
    return lengths


def test_the_checkpoints_have_the_true_sizes(pair: tuple[Path, Path]) -> None:
    drafter, target = pair
    assert 1.9e9 < (drafter / "model.safetensors").stat().st_size < 2.6e9
    assert sum(file.stat().st_size for file in target.glob("*.safetensors")) > 1e12
    # Sparse: the disk holds little of it.
    assert sum(file.stat().st_blocks * 512 for file in drafter.iterdir()) < 16e6


def test_a_full_scale_drafter_is_clean_and_cheap(pair: tuple[Path, Path], bytes_read: list[int]) -> None:
    drafter, target = pair
    size = (drafter / "model.safetensors").stat().st_size
    tracemalloc.start()
    try:
        findings = inspect(drafter, target=target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [f.id for f in findings if f.status == "fail"] == ["vocab.t2d-missing"]
    assert sum(bytes_read) < size / 100
    assert peak < 150e6
    assert peak < size / 20


def test_a_digest_reads_little_and_sees_a_changed_weight(pair: tuple[Path, Path], bytes_read: list[int]) -> None:
    drafter, _ = pair
    before = digest(drafter)
    file = drafter / "model.safetensors"
    with file.open("r+b") as weights:
        weights.seek(-100, os.SEEK_END)
        kept = weights.read(1)
        weights.seek(-100, os.SEEK_END)
        weights.write(bytes([kept[0] ^ 1]))
        weights.flush()
        assert digest(drafter) != before
        weights.seek(-100, os.SEEK_END)
        weights.write(kept)
    assert digest(drafter) == before
    assert sum(bytes_read) < 4e6
