"""The vocabulary mapping of a drafter with a reduced vocabulary, and what must hold for it.

``d2t`` (int64 [draft_vocab]) stores *offsets*: draft id i stands for target id ``i + d2t[i]``. ``t2d`` (bool
[target_vocab]) marks the target ids that are in the set. SGLang reads only ``d2t``; nothing in it checks either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pytest_specprobe.checkpoint.check import Subject
from pytest_specprobe.checkpoint.engine.shape import shape_of
from pytest_specprobe.checkpoint.files.header import TensorInfo
from pytest_specprobe.checkpoint.files.read import Weights
from pytest_specprobe.checkpoint.files.values import is_integer, read_small

Ids = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class VocabMap:
    """A mapping as the engine will use it: ``ids`` int64 [draft_vocab], the target id of every draft id."""

    ids: Ids

    @classmethod
    def from_offsets(cls, offsets: npt.NDArray[Any]) -> Self:
        """Build from ``d2t`` as stored: ids = d2t + arange, the engine's own formula."""
        return cls(offsets.astype(np.int64) + np.arange(len(offsets), dtype=np.int64))

    @classmethod
    def identity(cls, size: int) -> Self:
        """Return the map of a drafter that speaks the target's whole vocabulary."""
        return cls(np.arange(size, dtype=np.int64))

    def contains(self, token: int) -> bool:
        """Whether the drafter can propose this target id."""
        return bool(np.any(self.ids == token))

    def coverage(self, ids: Sequence[int]) -> float | None:
        """Return the share of ``ids`` (target token ids, repeats counted) inside the set; None for no ids.

        It bounds first-position acceptance from above: a token outside the set is never proposed.
        """
        tokens = np.asarray(ids, dtype=np.int64)
        return float(np.isin(tokens, self.ids).mean()) if tokens.size else None


def find(weights: Weights | None, name: str) -> TensorInfo | None:
    """Return the tensor that the engine takes for ``d2t`` or ``t2d``: the name itself or its last component."""
    if weights is None:
        return None
    exact = weights.tensors.get(name)
    return exact or next((t for key, t in weights.tensors.items() if key.rpartition(".")[2] == name), None)


def vocab_map(weights: Weights, *, vocab: int) -> VocabMap | None:
    """Return the drafter's mapping (identity without ``d2t``), or None where ``d2t`` is no vector of integers."""
    offsets = find(weights, "d2t")
    if offsets is None:
        return VocabMap.identity(vocab)
    if len(offsets.shape) != 1 or not is_integer(offsets):
        return None
    return VocabMap.from_offsets(read_small(offsets))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Both tables as read, and the sizes they are held against. ``offsets`` is None where it is no integer vector."""

    d2t: TensorInfo | None
    t2d: TensorInfo | None
    offsets: Ids | None
    marks: Marks | None
    draft: int
    rows: int

    @property
    def ids(self) -> Ids | None:
        """Target id of every draft id."""
        return None if self.offsets is None else self.offsets + np.arange(len(self.offsets), dtype=np.int64)

    @property
    def reduced(self) -> bool:
        """Whether the drafter knows fewer ids than the target has rows."""
        return self.draft < self.rows


def read_tables(s: Subject) -> Tables | None:
    """Read what a drafter has of both tables; None where its config or its files are unusable."""
    shape = shape_of(s.config)
    if shape is None or s.weights is None:
        return None
    d2t, t2d = find(s.weights, "d2t"), find(s.weights, "t2d")
    offsets = read_small(d2t).astype(np.int64) if d2t and len(d2t.shape) == 1 and is_integer(d2t) else None
    marks = read_small(t2d).astype(np.bool_) if t2d and len(t2d.shape) == 1 and _is_mark(t2d) else None
    rows = (s.target.vocab_rows if s.target else None) or shape.vocab
    return Tables(d2t, t2d, offsets, marks, shape.head_rows, rows)


def _is_mark(tensor: TensorInfo) -> bool:
    return tensor.dtype == "BOOL" or is_integer(tensor)


NO_SHAPE = "config.json or the weights could not be read"
NO_MAP = "the drafter has no d2t"


def some(values: Iterable[Any]) -> str:
    """Return the first few values on one line."""
    listed = [str(value) for value, _ in zip(values, range(4), strict=False)]
    return ", ".join(listed)
