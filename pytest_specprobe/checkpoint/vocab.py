"""The vocabulary mapping of a drafter with a reduced vocabulary, and what must hold for it.

``d2t`` (int64 [draft_vocab]) stores *offsets*: draft id i stands for target id ``i + d2t[i]``. ``t2d`` (bool
[target_vocab]) marks the target ids that are in the set. SGLang reads only ``d2t``; nothing in it checks either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.header import TensorInfo, shown
from pytest_specprobe.checkpoint.read import Weights
from pytest_specprobe.checkpoint.shape import shape_of
from pytest_specprobe.checkpoint.values import is_integer, read_small

# Below this many entries a strictly increasing table of offsets can be an honest coincidence.
_ABSOLUTE_EVIDENCE = 32
_LOW_COVERAGE = 0.75

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
class _Tables:
    """Both tables as read, and the sizes they are held against. ``offsets`` is None where it is no integer vector."""

    d2t: TensorInfo | None
    t2d: TensorInfo | None
    offsets: Ids | None
    marks: Marks | None
    draft: int
    rows: int

    @property
    def ids(self) -> Ids | None:
        return None if self.offsets is None else self.offsets + np.arange(len(self.offsets), dtype=np.int64)

    @property
    def reduced(self) -> bool:
        return self.draft < self.rows


def _tables(s: Subject) -> _Tables | None:
    shape = shape_of(s.config)
    if shape is None or s.weights is None:
        return None
    d2t, t2d = find(s.weights, "d2t"), find(s.weights, "t2d")
    offsets = read_small(d2t).astype(np.int64) if d2t and len(d2t.shape) == 1 and is_integer(d2t) else None
    marks = read_small(t2d).astype(np.bool_) if t2d and len(t2d.shape) == 1 and _is_mark(t2d) else None
    rows = (s.target.vocab_rows if s.target else None) or shape.vocab
    return _Tables(d2t, t2d, offsets, marks, shape.head_rows, rows)


def _is_mark(tensor: TensorInfo) -> bool:
    return tensor.dtype == "BOOL" or is_integer(tensor)


_NO_SHAPE = "config.json or the weights could not be read"
_NO_MAP = "the drafter has no d2t"
_COLLAPSE = "the server stays healthy and every draft is the wrong token: accept length about 1.0"


def _some(values: Iterable[Any]) -> str:
    listed = [str(value) for value, _ in zip(values, range(4), strict=False)]
    return ", ".join(listed)


@check(
    "vocab.missing",
    rows=("V01", "V11"),
    asks="a drafter with a smaller vocabulary than its target ships d2t",
    why="Without d2t, draft ids are read as the first target ids: accept length 1.0-1.1 on a healthy server.",
    fix="export d2t (int64 [draft_vocab_size], target id minus draft id) with the weights",
    follows=("head.draft-vocab-size", "target.vocab"),
)
def missing(s: Subject) -> Outcome:
    """V1: reduced vocabulary means a mapping."""
    tables = _tables(s)
    if tables is None:
        return skipped(_NO_SHAPE)
    if tables.d2t is not None:
        return passed(f"d2t {tables.d2t.dtype} {list(tables.d2t.shape)}")
    # Padding rows of the target are no reason for a mapping: the drafter's own config decides.
    shape = shape_of(s.config)
    if shape is not None and tables.draft >= shape.vocab:
        return passed(f"full vocabulary of {tables.draft:,}, no mapping needed")
    return failed(
        f"no d2t, draft_vocab_size {tables.draft:,}", expected=f"d2t for {tables.draft:,} of {tables.rows:,} ids"
    )


@check(
    "vocab.d2t-dtype",
    rows=("V03", "V05"),
    asks="d2t is a vector of integers",
    why="The engine adds arange and indexes the embedding with the sum; anything but integers crashes or rounds.",
    fix="store d2t as int64 [draft_vocab_size]",
)
def d2t_dtype(s: Subject) -> Outcome:
    """V2, first half."""
    tables = _tables(s)
    if tables is None or tables.d2t is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    seen = f"{tables.d2t.dtype} {list(tables.d2t.shape)}"
    return passed(seen) if tables.offsets is not None else failed(seen, expected="I64 [draft_vocab_size]")


@check(
    "vocab.d2t-length",
    rows=("V07", "L03"),
    asks="d2t has one entry for each row of the draft head",
    why="A row of the head without an entry cannot be mapped: index errors, or tokens read from another row.",
    fix="export d2t and lm_head from the same run; set draft_vocab_size to their length",
    follows=("head.draft-vocab-size", "head.borrowed-but-mapped", "vocab.d2t-dtype"),
)
def d2t_length(s: Subject) -> Outcome:
    """V5: len(d2t) == draft_vocab_size."""
    tables = _tables(s)
    if tables is None or tables.d2t is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    entries = tables.d2t.shape[0] if tables.d2t.shape else 0
    if entries == tables.draft:
        return passed(f"{entries:,} entries")
    return failed(f"{entries:,} entries", expected=f"{tables.draft:,}, one for each draft id")


@check(
    "vocab.absolute-ids",
    rows=("V03",),
    asks="d2t holds offsets (target id - draft id)",
    why=f"The engine adds arange once more, so {_COLLAPSE}, or a device assert when the sum leaves the vocabulary.",
    fix="subtract arange(draft_vocab_size) from d2t and save again",
)
def absolute_ids(s: Subject) -> Outcome:
    """V7: tell absolute ids from offsets, with t2d as the witness where there is one."""
    tables = _tables(s)
    if tables is None or tables.offsets is None or tables.ids is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    if not _holds_absolute_ids(tables.offsets, tables.ids, tables.marks, tables.rows):
        return passed("offsets")
    return failed(
        f"absolute target ids ({_some(tables.offsets[:3])}, ... up to {int(tables.offsets.max()):,})",
        expected="offsets from the draft id",
    )


def _holds_absolute_ids(offsets: Ids, ids: Ids, marks: Marks | None, rows: int) -> bool:
    if not offsets.any() or not _valid(offsets, rows):
        return False
    marked = None if marks is None else np.flatnonzero(marks)
    if marked is not None and len(marked) == len(offsets):
        if np.array_equal(np.sort(ids), marked):
            return False
        if np.array_equal(np.sort(offsets), marked):
            return True
    # No witness. Honest offsets repeat wherever two neighbouring ids are both kept, which in a set of any size
    # happens all over; a table that climbs at every step is a list of ids.
    return len(offsets) >= _ABSOLUTE_EVIDENCE and bool((np.diff(offsets) > 0).all())


def _valid(ids: Ids, rows: int) -> bool:
    return bool(ids.min(initial=0) >= 0 and ids.max(initial=0) < rows and len(np.unique(ids)) == len(ids))


@check(
    "vocab.untouched",
    rows=("V04", "V06"),
    asks="d2t was filled in, not left as the buffer a trainer starts from",
    why=f"All-zero offsets mean 'the first ids of the target', which no data-driven set is: {_COLLAPSE}.",
    fix="save the mapping that the head was trained with",
    follows=("head.draft-vocab-size",),
)
def untouched(s: Subject) -> Outcome:
    """V6: all zeros with a reduced vocabulary, unless t2d says that the first ids are meant."""
    tables = _tables(s)
    if tables is None or tables.offsets is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    if tables.offsets.any() or not tables.reduced or _marks_first_ids(tables):
        return passed("no buffer left at its start value")
    return failed(f"{len(tables.offsets):,} zeros", expected="offsets of the chosen ids")


@check(
    "vocab.first-ids",
    severity="warning",
    rows=("V04",),
    asks="a reduced vocabulary is chosen by frequency, not the first ids",
    why="d2t and t2d agree that the drafter knows only the tokenizer's first ids; that is legal and rarely meant.",
    fix="check how the mapping was built",
)
def first_ids(s: Subject) -> Outcome:
    """All zeros, and t2d marks exactly the first ids."""
    tables = _tables(s)
    if tables is None or tables.offsets is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    if tables.offsets.any() or not tables.reduced or not _marks_first_ids(tables):
        return passed("a chosen set")
    return failed(f"ids 0 to {len(tables.offsets) - 1:,}", expected="a set chosen from data")


def _marks_first_ids(tables: _Tables) -> bool:
    if tables.marks is None or tables.offsets is None:
        return False
    count = len(tables.offsets)
    return bool(tables.marks[:count].all() and not tables.marks[count:].any())


@check(
    "vocab.range",
    rows=("V05",),
    asks="every mapped id is a row of the target's embedding",
    why="The engine asserts on the device at tp 1 and drafts garbage at tp > 1, where the lookup is masked.",
    fix="rebuild d2t with this target's tokenizer",
    follows=("vocab.absolute-ids", "target.vocab", "config.draft-vocab-size"),
)
def in_range(s: Subject) -> Outcome:
    """V3, first half: 0 <= d2t + arange < rows."""
    tables = _tables(s)
    if tables is None or tables.ids is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    outside = (tables.ids < 0) | (tables.ids >= tables.rows)
    count = int(outside.sum())
    if not count:
        return passed(f"{len(tables.ids):,} ids inside 0..{tables.rows - 1:,}")
    first = int(np.flatnonzero(outside)[0])
    return failed(
        f"{count:,} of {len(tables.ids):,} ids outside, first: draft {first} -> {int(tables.ids[first]):,}",
        expected=f"0 <= id < {tables.rows:,}",
    )


@check(
    "vocab.duplicate",
    rows=("V03", "V07"),
    asks="no two draft ids stand for the same target id",
    why="Two rows of the head share one token, so the head and the mapping come from different runs.",
    fix="export d2t and lm_head from the same run",
    follows=("vocab.absolute-ids",),
)
def duplicate(s: Subject) -> Outcome:
    """V3, second half: unique."""
    tables = _tables(s)
    if tables is None or tables.ids is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    values, counts = np.unique(tables.ids, return_counts=True)
    twice = values[counts > 1]
    if not len(twice):
        return passed(f"{len(values):,} different ids")
    return failed(f"{len(twice):,} target ids mapped twice: {_some(twice)}", expected="unique ids")


@check(
    "vocab.order",
    severity="warning",
    rows=("V07",),
    asks="mapped ids ascend",
    why="SGLang takes any order; tools that rebuild the mapping from t2d assume ascending ids and shuffle the head.",
    fix="nothing for SGLang; sort d2t and the rows of lm_head together for other tools",
    follows=("vocab.absolute-ids", "vocab.duplicate", "vocab.range", "vocab.t2d-disagrees"),
)
def order(s: Subject) -> Outcome:
    """V4's 'ascending'."""
    tables = _tables(s)
    if tables is None or tables.ids is None:
        return skipped(_NO_SHAPE if tables is None else _NO_MAP)
    falls = int((np.diff(tables.ids) < 0).sum())
    return judged(f"{falls:,} descents" if falls else "", expected="ascending ids", good="ascending")


@check(
    "vocab.t2d-missing",
    severity="info",
    rows=("V10",),
    asks="t2d is there as a second witness for d2t",
    why="SGLang reads only d2t, and some exporters write only that; the mapping is then less checkable, not wrong.",
    fix="nothing; to allow the full check, export t2d (bool [vocab_size]) too",
    follows=("vocab.missing",),
)
def t2d_missing(s: Subject) -> Outcome:
    """V1 for t2d, tolerated."""
    tables = _tables(s)
    if tables is None:
        return skipped(_NO_SHAPE)
    if tables.t2d is not None:
        return passed(f"t2d {tables.t2d.dtype} {list(tables.t2d.shape)}")
    if not tables.reduced or tables.d2t is None:
        return passed("no mapping to witness")
    return failed("no t2d", expected="t2d beside d2t")


@check(
    "vocab.t2d-dtype",
    severity="warning",
    rows=("V07",),
    asks="t2d is a vector of bool",
    why="Trainers use it as a mask over logits; another type selects rows by number instead of masking them.",
    fix="store t2d as bool [vocab_size]",
)
def t2d_dtype(s: Subject) -> Outcome:
    """V2, second half."""
    tables = _tables(s)
    if tables is None or tables.t2d is None:
        return skipped("the drafter has no t2d")
    seen = f"{tables.t2d.dtype} {list(tables.t2d.shape)}"
    good = tables.t2d.dtype == "BOOL" and len(tables.t2d.shape) == 1
    return passed(seen) if good else failed(seen, expected="BOOL [vocab_size]")


@check(
    "vocab.t2d-length",
    rows=("V07",),
    asks="t2d has one mark for each id of the target",
    why="A t2d of another length was built for another tokenizer, and d2t with it.",
    fix="rebuild the mapping with this target's tokenizer",
    follows=("target.vocab", "vocab.t2d-dtype"),
)
def t2d_length(s: Subject) -> Outcome:
    """V2/V5: len(t2d) == target vocabulary, by the drafter's config or by the target's rows."""
    tables, shape = _tables(s), shape_of(s.config)
    if tables is None or tables.t2d is None or shape is None:
        return skipped("the drafter has no t2d")
    marks = tables.t2d.shape[0] if tables.t2d.shape else 0
    if marks in (shape.vocab, tables.rows):
        return passed(f"{marks:,} marks")
    return failed(f"{marks:,} marks", expected=f"{tables.rows:,}")


@check(
    "vocab.t2d-count",
    rows=("V07",),
    asks="t2d marks as many ids as the head has rows",
    why="One report had 1,746 marks for 32,000 rows: the loss mask then hides most tokens from training.",
    fix="rebuild t2d from d2t, or export both from the run that trained the head",
    follows=("head.draft-vocab-size", "vocab.untouched", "vocab.t2d-length", "vocab.t2d-dtype", "vocab.d2t-length"),
)
def t2d_count(s: Subject) -> Outcome:
    """V5: popcount(t2d) == draft_vocab_size."""
    tables = _tables(s)
    if tables is None or tables.marks is None:
        return skipped("the drafter has no t2d")
    count = int(tables.marks.sum())
    if count == tables.draft:
        return passed(f"{count:,} ids marked")
    return failed(f"{count:,} ids marked", expected=f"{tables.draft:,}")


@check(
    "vocab.t2d-disagrees",
    rows=("V07", "V06"),
    asks="t2d marks exactly the ids that d2t maps to",
    why="The two tables come from different runs, so one of them does not belong to this head: near-zero acceptance.",
    fix="export d2t, t2d and lm_head from the same run",
    follows=(
        "vocab.absolute-ids", "vocab.untouched", "vocab.range", "vocab.duplicate", "vocab.t2d-length",
        "vocab.t2d-count", "vocab.t2d-dtype", "vocab.d2t-length", "vocab.d2t-dtype", "head.draft-vocab-size",
    ),
)  # fmt: skip
def t2d_disagrees(s: Subject) -> Outcome:
    """V4: nonzero(t2d) == sorted(d2t + arange)."""
    tables = _tables(s)
    if tables is None or tables.marks is None or tables.ids is None:
        return skipped("the drafter has not both tables")
    marked = np.flatnonzero(tables.marks)
    only_d2t, only_t2d = np.setdiff1d(tables.ids, marked), np.setdiff1d(marked, tables.ids)
    if not len(only_d2t) and not len(only_t2d):
        return passed(f"{len(marked):,} ids agree")
    return failed(
        f"{len(only_d2t):,} ids only in d2t, {len(only_t2d):,} only in t2d ({_some([*only_d2t[:2], *only_t2d[:2]])})",
        expected="the same set",
    )


@check(
    "vocab.stop-ids",
    severity="warning",
    rows=("V13",),
    asks="the target's end-of-text and end-of-turn ids are in the set",
    why="The end of an answer can then never be drafted; one round of every answer is lost.",
    fix="force the special ids into the set when the mapping is built",
    follows=(
        "vocab.missing", "vocab.absolute-ids", "vocab.untouched", "vocab.first-ids", "vocab.d2t-length",
        "vocab.range", "vocab.duplicate", "vocab.t2d-disagrees", "target.vocab",
    ),
)  # fmt: skip
def stop_ids(s: Subject) -> Outcome:
    """V8: needs the target's tokenizer files."""
    tables = _tables(s)
    if tables is None or tables.ids is None or s.target is None or not s.target.tokens.stops:
        return skipped("no mapping, or no target with known stop ids")
    absent = {token: text for token, text in s.target.tokens.stops.items() if not bool(np.any(tables.ids == token))}
    if not absent:
        return passed(f"all of {_some(s.target.tokens.stops)} in the set")
    return failed(
        _some(f"{token} {shown(text)} is not in the set" for token, text in absent.items()), expected="in the set"
    )


@check(
    "vocab.coverage",
    severity="warning",
    culprit="workload",
    rows=("V13",),
    asks=f"at least {_LOW_COVERAGE:.0%} of a text sample's tokens are in the set",
    why="What is outside is never drafted: one drafter went from 1.48 to 2.30 on CEval with Chinese data.",
    fix="probe on the domain the drafter was made for, or rebuild its vocabulary from yours",
    follows=("vocab.missing", "vocab.absolute-ids", "vocab.untouched", "vocab.d2t-dtype", "vocab.range"),
)
def coverage(s: Subject) -> Outcome:
    """V9: needs a sample of target token ids."""
    tables = _tables(s)
    if tables is None or not s.sample_ids:
        return skipped("no text sample was given")
    ids = tables.ids if tables.ids is not None else VocabMap.identity(tables.draft).ids
    share = VocabMap(ids).coverage(s.sample_ids)
    if share is None or share >= _LOW_COVERAGE:
        return passed(f"{share or 0:.1%} of {len(s.sample_ids):,} tokens")
    return failed(f"{share:.1%} of {len(s.sample_ids):,} tokens", expected=f"at least {_LOW_COVERAGE:.0%}")


CHECKS: tuple[Check, ...] = (
    missing, d2t_dtype, d2t_length, absolute_ids, untouched, first_ids, in_range, duplicate, order,
    t2d_missing, t2d_dtype, t2d_length, t2d_count, t2d_disagrees, stop_ids, coverage,
)  # fmt: skip
