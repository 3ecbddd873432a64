"""Do the rows of a fine-tuned head still follow the parent's mapping, although the mapping was rebuilt?

Training metrics use the new mapping on both sides and cannot show it; served, near to nothing is accepted.
"""

from dataclasses import dataclass

import numpy as np

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, passed, skipped
from pytest_specprobe.checkpoint.files.header import TensorInfo
from pytest_specprobe.checkpoint.files.read import Weights
from pytest_specprobe.checkpoint.files.values import read_rows
from pytest_specprobe.checkpoint.vocab_mapping import VocabMap, find, vocab_map

_ROWS = 64
_ALIKE = 0.5
_MARGIN = 0.2


@dataclass(frozen=True, slots=True)
class Lineage:
    """How two heads resemble each other over sampled rows; means of cosines, None where there is nothing to compare.

    ``by_position`` compares rows of the same draft id whose tokens differ, ``by_token`` rows of the same token.
    """

    by_position: float | None
    by_token: float | None

    @property
    def kept_under_rebuilt_mapping(self) -> bool:
        """Whether rows go with positions instead of tokens: the head was kept, the mapping was not."""
        if self.by_position is None or self.by_position < _ALIKE:
            return False
        return self.by_token is None or self.by_position > self.by_token + _MARGIN


def head_of(weights: Weights) -> TensorInfo | None:
    """Return the ``lm_head.weight`` of the file, wherever its name puts it."""
    return next((t for name, t in weights.tensors.items() if name.rpartition("lm_head.")[2] == "weight"), None)


def compare_heads(old: Weights, new: Weights) -> Lineage | None:
    """Compare the heads of two drafters with mappings of their own; None if they cannot be compared."""
    heads = head_of(old), head_of(new)
    if heads[0] is None or heads[1] is None or find(old, "d2t") is None or find(new, "d2t") is None:
        return None
    maps = vocab_map(old, vocab=0), vocab_map(new, vocab=0)
    if maps[0] is None or maps[1] is None or not _comparable(heads[0], maps[0]) or not _comparable(heads[1], maps[1]):
        return None
    if heads[0].shape[1] != heads[1].shape[1]:
        return None
    common = min(len(maps[0].ids), len(maps[1].ids))
    moved = np.flatnonzero(maps[0].ids[:common] != maps[1].ids[:common])
    _, first, second = np.intersect1d(maps[0].ids, maps[1].ids, return_indices=True)
    apart = first != second
    return Lineage(
        by_position=_cosine(heads[0], heads[1], list(moved), list(moved)),
        by_token=_cosine(heads[0], heads[1], list(first[apart]), list(second[apart])),
    )


def _comparable(head: TensorInfo, mapping: VocabMap) -> bool:
    return len(head.shape) == 2 and head.shape[0] == len(mapping.ids)


def _cosine(old: TensorInfo, new: TensorInfo, left: list[int], right: list[int]) -> float | None:
    """Return the mean cosine over up to ``_ROWS`` evenly picked pairs of rows."""
    if not left:
        return None
    picked = sorted({len(left) * i // _ROWS for i in range(_ROWS)})
    mine, theirs = read_rows(old, [left[i] for i in picked]), read_rows(new, [right[i] for i in picked])
    if mine is None or theirs is None:
        return None
    norms = np.linalg.norm(mine, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((mine * theirs).sum(axis=1) / np.where(norms > 0, norms, 1)).mean())


@check(
    "vocab.rebuilt-under-head",
    asks="a fine-tuned drafter's head and mapping changed together, or neither",
    why="The mapping was rebuilt from new data while the rows of lm_head still follow the parent's: it trains well "
    "and serves at near-zero acceptance.",
    fix="fine-tune with the parent's d2t and t2d, or move the rows of lm_head to the new mapping first",
    follows=("vocab.absolute-ids", "vocab.untouched"),
)
def rebuilt_under_head(s: Subject) -> Outcome:
    """Compare with the parent drafter, where one is given."""
    if s.parent is None or s.weights is None:
        return skipped("no parent drafter given")
    lineage = compare_heads(s.parent, s.weights)
    if lineage is None:
        return skipped("no two heads with mappings to compare")
    if not lineage.kept_under_rebuilt_mapping:
        return passed("head and mapping go together")
    by_token = "" if lineage.by_token is None else f", of the same token {lineage.by_token:.2f}"
    return failed(
        f"cosine of rows at the same place {lineage.by_position:.2f}{by_token}",
        expected="rows that follow their tokens",
    )


CHECKS: tuple[Check, ...] = (rebuilt_under_head,)
