"""Two drafters compared: the founding question (31,748 of 32,000 entries differ) and the head that was kept."""

from pathlib import Path

import numpy as np
import pytest

from pytest_specprobe.checkpoint.diff import diff
from pytest_specprobe.errors import CheckpointError
from tests.support import checkpoint_builder as build
from tests.support.checkpoint_builder import DRAFT, VOCAB, Checkpoint


def remapped(ids: np.ndarray[tuple[int], np.dtype[np.int64]], *, seed: int = 0) -> Checkpoint:
    made = build.llama(seed)
    made.tensors["d2t"], made.tensors["t2d"] = build.tables(ids)
    return made


def test_a_drafter_does_not_differ_from_itself(tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    found = diff(path, path)
    assert (found.entries, found.differing, found.shared_tokens) == (DRAFT, 0, DRAFT)
    assert (found.only_a, found.only_b, found.head) == (0, 0, "same")
    assert found.config == {}
    assert found.tensors == {"only_a": 0, "only_b": 0, "reshaped": 0, "same": 15, "changed": 0}
    assert [f.status for f in found.findings] == ["pass"]


def test_entries_and_tokens_are_counted_apart(tmp_path: Path) -> None:
    # One token more at the front moves every place, and all but one token are shared.
    a, b = np.arange(1, DRAFT + 1), np.arange(DRAFT)
    found = diff(remapped(a).save(tmp_path / "a"), remapped(b, seed=1).save(tmp_path / "b"))
    assert (found.entries, found.differing, found.shared_tokens) == (DRAFT, DRAFT, DRAFT - 1)
    assert (found.only_a, found.only_b, found.head) == (1, 1, "different")


def test_the_founding_case(tmp_path: Path) -> None:
    """Two frequency-ranked sets of 32,000 that agree in 252 places, as the founding probe's drafters did."""
    rng = np.random.default_rng(5)
    first = np.sort(rng.choice(163_840, 32_000, replace=False))
    second = first.copy()
    free = np.setdiff1d(np.arange(163_840), first)
    # From place 252 on another token is kept instead, so that everything behind it stands elsewhere.
    second = np.sort(np.append(np.delete(first, 31_999), free[np.searchsorted(free, first[252]) - 1]))
    made = [
        Checkpoint(build.llama_config() | {"vocab_size": 163_840, "draft_vocab_size": 32_000}, {}) for _ in range(2)
    ]
    for checkpoint, ids in zip(made, (first, second), strict=True):
        checkpoint.tensors["d2t"] = (ids - np.arange(32_000)).astype(np.int64)
    found = diff(made[0].save(tmp_path / "a"), made[1].save(tmp_path / "b"))
    assert (found.entries, found.differing) == (32_000, 31_748)
    assert found.shared_tokens == 31_999


def test_a_head_kept_under_another_mapping_is_an_error(tmp_path: Path) -> None:
    old = remapped(np.arange(0, 2 * DRAFT, 2))
    new = remapped(np.arange(1, 2 * DRAFT, 2))
    found = diff(old.save(tmp_path / "a"), new.save(tmp_path / "b"))
    assert found.head == "same"
    assert found.head_by_position == pytest.approx(1.0, abs=1e-3)
    assert [(f.id, f.status) for f in found.findings] == [("vocab.rebuilt-under-head", "fail")]


def test_a_fine_tuned_head_is_still_recognised(tmp_path: Path) -> None:
    old = remapped(np.arange(0, 2 * DRAFT, 2))
    new = remapped(np.arange(3, 2 * DRAFT + 3, 2))
    noise = 0.01 * np.random.default_rng(1).standard_normal(new.tensors["lm_head.weight"].shape)
    new.tensors["lm_head.weight"] = (new.tensors["lm_head.weight"] + noise).astype(np.float16)
    found = diff(old.save(tmp_path / "a"), new.save(tmp_path / "b"))
    assert found.head == "different"
    assert [f.status for f in found.findings] == ["fail"]


def test_a_head_moved_with_its_mapping_is_no_fault(tmp_path: Path) -> None:
    ids = np.arange(0, 2 * DRAFT, 2)
    old = remapped(ids)
    moved = np.append(ids[10:], np.arange(VOCAB - 10, VOCAB))
    new = remapped(moved)
    head = old.tensors["lm_head.weight"]
    fresh = build.trained(np.random.default_rng(2), 10, head.shape[1])
    new.tensors["lm_head.weight"] = np.concatenate([head[10:], fresh])
    found = diff(old.save(tmp_path / "a"), new.save(tmp_path / "b"))
    assert found.head_by_token == pytest.approx(1.0, abs=1e-3)
    assert [f.status for f in found.findings] == ["pass"]


def test_rows_that_all_resemble_each_other_are_no_fault(tmp_path: Path) -> None:
    """A head with a large common part: its rows agree at the same place, and as well for the same token."""
    common = np.float16(0.5) * np.ones(build.HIDDEN, dtype=np.float16)
    old, new = remapped(np.arange(DRAFT)), remapped(np.arange(5, DRAFT + 5), seed=1)
    for made in (old, new):
        made.tensors["lm_head.weight"] = made.tensors["lm_head.weight"] + common
    found = diff(old.save(tmp_path / "a"), new.save(tmp_path / "b"))
    assert found.head_by_position is not None
    assert found.head_by_position > 0.9
    assert [f.status for f in found.findings] == ["pass"]


def test_unrelated_drafters_are_no_fault(tmp_path: Path) -> None:
    found = diff(build.llama(0).save(tmp_path / "a"), build.llama(1).save(tmp_path / "b"))
    assert found.differing > DRAFT // 2
    assert [f.status for f in found.findings] == ["pass"]


def test_mappings_of_other_lengths_and_none_are_compared(tmp_path: Path) -> None:
    short = remapped(np.arange(DRAFT))
    full = build.llama()
    del full.tensors["d2t"], full.tensors["t2d"]
    found = diff(short.save(tmp_path / "a"), full.save(tmp_path / "b"))
    assert (found.entries, found.differing, found.shared_tokens) == (VOCAB, VOCAB - DRAFT, DRAFT)
    assert found.only_b == VOCAB - DRAFT


def test_config_and_tensors_are_told(tmp_path: Path) -> None:
    a, b = build.llama(), build.llama()
    b.config |= {"rope_theta": 1e6, "extra": [1]}
    del b.config["head_dim"]
    del b.tensors["norm.weight"]
    b.tensors["fc.weight"] = b.tensors["fc.weight"][:, :-1]
    b.tensors["new.weight"] = np.zeros(1)
    found = diff(a.save(tmp_path / "a"), b.save(tmp_path / "b"))
    assert found.config == {"extra": (None, [1]), "head_dim": (16, None), "rope_theta": (50000.0, 1e6)}
    assert found.tensors == {"only_a": 1, "only_b": 1, "reshaped": 1, "same": 13, "changed": 0}


def test_an_unusable_mapping_is_one_error(tmp_path: Path) -> None:
    made = build.llama()
    made.tensors["d2t"] = made.tensors["d2t"].astype(np.float32)
    path = made.save(tmp_path)
    with pytest.raises(CheckpointError, match="no usable d2t"):
        diff(path, path)
