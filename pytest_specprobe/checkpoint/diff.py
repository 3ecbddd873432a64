"""What differs between two drafters: mappings first, since those decide whether weights can be exchanged."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pytest_specprobe.checkpoint.check import Subject
from pytest_specprobe.checkpoint.checks import lineage
from pytest_specprobe.checkpoint.checks.vocab_offsets import d2t_dtype
from pytest_specprobe.checkpoint.files.folder import Config
from pytest_specprobe.checkpoint.files.header import TensorInfo, read_bytes
from pytest_specprobe.checkpoint.files.read import DrafterFiles, load_drafter
from pytest_specprobe.checkpoint.inspect import run_checks
from pytest_specprobe.checkpoint.vocab_mapping import VocabMap, vocab_map
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.findings import Finding

HeadState = Literal["same", "different", "absent"]
_BLOCK = 4096
_BLOCKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two drafters compared.

    ``entries`` is the longer mapping's length and ``differing`` the number of draft ids that stand for different
    target ids (or exist on one side only); ``shared_tokens`` counts target ids in both sets. ``head`` compares
    sampled bytes of ``lm_head``; ``config`` holds each key that differs with both values; ``tensors`` counts by name.
    """

    a: Path
    b: Path
    entries: int
    differing: int
    shared_tokens: int
    only_a: int
    only_b: int
    head: HeadState
    head_by_position: float | None
    head_by_token: float | None
    config: Mapping[str, tuple[Any, Any]]
    tensors: Mapping[str, int]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``specprobe diff --json``."""
        return {
            "schema": 1,
            "a": str(self.a),
            "b": str(self.b),
            "entries": self.entries,
            "differing": self.differing,
            "shared_tokens": self.shared_tokens,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "head": self.head,
            "head_by_position": self.head_by_position,
            "head_by_token": self.head_by_token,
            "config": {key: list(pair) for key, pair in self.config.items()},
            "tensors": dict(self.tensors),
            "findings": [asdict(finding) for finding in self.findings if finding.status == "fail"],
        }


def diff(a: Path, b: Path) -> Difference:
    """Compare two drafter directories; ``b`` is taken as made from ``a``.

    Raises :class:`CheckpointError` if either cannot be read or has no usable mapping.
    """
    old, new = load_drafter(a), load_drafter(b)
    maps = _mapping(old), _mapping(new)
    heads = lineage.compare_heads(old.weights, new.weights)
    shared = len(np.intersect1d(maps[0].ids, maps[1].ids))
    subject = Subject(path=b, config=new.config, weights=new.weights, listing=new.listing, parent=old.weights)
    return Difference(
        a=a,
        b=b,
        entries=max(len(maps[0].ids), len(maps[1].ids)),
        differing=_differing(*maps),
        shared_tokens=shared,
        only_a=len(np.unique(maps[0].ids)) - shared,
        only_b=len(np.unique(maps[1].ids)) - shared,
        head=_heads(old, new),
        head_by_position=heads.by_position if heads else None,
        head_by_token=heads.by_token if heads else None,
        config=_config(old.config, new.config),
        tensors=_tensors(old.weights.tensors, new.weights.tensors),
        findings=run_checks(subject, checks=lineage.CHECKS),
    )


def _mapping(files: DrafterFiles) -> VocabMap:
    vocab = files.config.get("vocab_size")
    found = vocab_map(files.weights, vocab=vocab if type(vocab) is int and 0 <= vocab < 1 << 24 else 0)
    if found is None:
        raise CheckpointError(
            f"{files.path} has no usable d2t",
            culprit="drafter-file",
            finding_id=d2t_dtype.id,
            fix=f"run `specprobe inspect {files.path}` first",
        )
    return found


def _differing(old: VocabMap, new: VocabMap) -> int:
    common = min(len(old.ids), len(new.ids))
    longer = max(len(old.ids), len(new.ids))
    return int((old.ids[:common] != new.ids[:common]).sum()) + longer - common


def _heads(old: DrafterFiles, new: DrafterFiles) -> HeadState:
    left, right = lineage.head_of(old.weights), lineage.head_of(new.weights)
    if left is None or right is None:
        return "absent"
    return "same" if _alike(left, right) else "different"


def _config(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    keys = sorted(old.keys() | new.keys())
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def _tensors(old: Mapping[str, TensorInfo], new: Mapping[str, TensorInfo]) -> dict[str, int]:
    both = old.keys() & new.keys()
    same = {name for name in both if _alike(old[name], new[name])}
    reshaped = {name for name in both if old[name].shape != new[name].shape}
    return {
        "only_a": len(old.keys() - both),
        "only_b": len(new.keys() - both),
        "reshaped": len(reshaped),
        "same": len(same),
        "changed": len(both - same - reshaped),
    }


def _alike(left: TensorInfo, right: TensorInfo) -> bool:
    """Whether dtype, shape and sampled bytes agree: 16 blocks of 4 KiB, small tensors whole."""
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    if left.nbytes <= _BLOCK * _BLOCKS:
        ranges = [(0, left.nbytes)]
    else:
        ranges = [((left.nbytes - _BLOCK) * i // (_BLOCKS - 1), _BLOCK) for i in range(_BLOCKS)]
    return read_bytes(left, ranges=ranges) == read_bytes(right, ranges=ranges)
