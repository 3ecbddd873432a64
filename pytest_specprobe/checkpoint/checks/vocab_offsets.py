"""Checks of ``d2t``: what the engine reads, and so what decides every drafted token."""

import numpy as np

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.shape import shape_of
from pytest_specprobe.checkpoint.vocab_mapping import NO_MAP, NO_SHAPE, Ids, Marks, Tables, read_tables, some

# Below this many entries a strictly increasing table of offsets can be an honest coincidence.
_ABSOLUTE_EVIDENCE = 32
_COLLAPSE = "the server stays healthy and every draft is the wrong token: accept length about 1.0"


@check(
    "vocab.missing",
    asks="a drafter with a smaller vocabulary than its target ships d2t",
    why="Without d2t, draft ids are read as the first target ids: accept length 1.0-1.1 on a healthy server.",
    fix="export d2t (int64 [draft_vocab_size], target id minus draft id) with the weights",
    follows=("head.draft-vocab-size", "target.vocab"),
)
def missing(s: Subject) -> Outcome:
    """V1: reduced vocabulary means a mapping."""
    tables = read_tables(s)
    if tables is None:
        return skipped(NO_SHAPE)
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
    asks="d2t is a vector of integers",
    why="The engine adds arange and indexes the embedding with the sum; anything but integers crashes or rounds.",
    fix="store d2t as int64 [draft_vocab_size]",
)
def d2t_dtype(s: Subject) -> Outcome:
    """Hold the type and the shape of d2t."""
    tables = read_tables(s)
    if tables is None or tables.d2t is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
    seen = f"{tables.d2t.dtype} {list(tables.d2t.shape)}"
    return passed(seen) if tables.offsets is not None else failed(seen, expected="I64 [draft_vocab_size]")


@check(
    "vocab.d2t-length",
    asks="d2t has one entry for each row of the draft head",
    why="A row of the head without an entry cannot be mapped: index errors, or tokens read from another row.",
    fix="export d2t and lm_head from the same run; set draft_vocab_size to their length",
    follows=("head.draft-vocab-size", "head.borrowed-but-mapped", "vocab.d2t-dtype"),
)
def d2t_length(s: Subject) -> Outcome:
    """V5: len(d2t) == draft_vocab_size."""
    tables = read_tables(s)
    if tables is None or tables.d2t is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
    entries = tables.d2t.shape[0] if tables.d2t.shape else 0
    if entries == tables.draft:
        return passed(f"{entries:,} entries")
    return failed(f"{entries:,} entries", expected=f"{tables.draft:,}, one for each draft id")


@check(
    "vocab.absolute-ids",
    asks="d2t holds offsets (target id - draft id)",
    why=f"The engine adds arange once more, so {_COLLAPSE}, or a device assert when the sum leaves the vocabulary.",
    fix="subtract arange(draft_vocab_size) from d2t and save again",
)
def absolute_ids(s: Subject) -> Outcome:
    """V7: tell absolute ids from offsets, with t2d as the witness where there is one."""
    tables = read_tables(s)
    if tables is None or tables.offsets is None or tables.ids is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
    if not _holds_absolute_ids(tables.offsets, tables.ids, tables.marks, tables.rows):
        return passed("offsets")
    return failed(
        f"absolute target ids ({some(tables.offsets[:3])}, ... up to {int(tables.offsets.max()):,})",
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
    asks="d2t was filled in, not left as the buffer a trainer starts from",
    why=f"All-zero offsets mean 'the first ids of the target', which no data-driven set is: {_COLLAPSE}.",
    fix="save the mapping that the head was trained with",
    follows=("head.draft-vocab-size",),
)
def untouched(s: Subject) -> Outcome:
    """V6: all zeros with a reduced vocabulary, unless t2d says that the first ids are meant."""
    tables = read_tables(s)
    if tables is None or tables.offsets is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
    if tables.offsets.any() or not tables.reduced or _marks_first_ids(tables):
        return passed("no buffer left at its start value")
    return failed(f"{len(tables.offsets):,} zeros", expected="offsets of the chosen ids")


@check(
    "vocab.first-ids",
    severity="warning",
    asks="a reduced vocabulary is chosen by frequency, not the first ids",
    why="d2t and t2d agree that the drafter knows only the tokenizer's first ids; that is legal and rarely meant.",
    fix="check how the mapping was built",
)
def first_ids(s: Subject) -> Outcome:
    """All zeros, and t2d marks exactly the first ids."""
    tables = read_tables(s)
    if tables is None or tables.offsets is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
    if tables.offsets.any() or not tables.reduced or not _marks_first_ids(tables):
        return passed("a chosen set")
    return failed(f"ids 0 to {len(tables.offsets) - 1:,}", expected="a set chosen from data")


def _marks_first_ids(tables: Tables) -> bool:
    if tables.marks is None or tables.offsets is None:
        return False
    count = len(tables.offsets)
    return bool(tables.marks[:count].all() and not tables.marks[count:].any())


@check(
    "vocab.range",
    asks="every mapped id is a row of the target's embedding",
    why="The engine asserts on the device at tp 1 and drafts garbage at tp > 1, where the lookup is masked.",
    fix="rebuild d2t with this target's tokenizer",
    follows=("vocab.absolute-ids", "target.vocab", "config.draft-vocab-size"),
)
def in_range(s: Subject) -> Outcome:
    """Hold 0 <= d2t + arange < rows."""
    tables = read_tables(s)
    if tables is None or tables.ids is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
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
    asks="no two draft ids stand for the same target id",
    why="Two rows of the head share one token, so the head and the mapping come from different runs.",
    fix="export d2t and lm_head from the same run",
    follows=("vocab.absolute-ids",),
)
def duplicate(s: Subject) -> Outcome:
    """Look for a target id that two draft ids stand for."""
    tables = read_tables(s)
    if tables is None or tables.ids is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
    values, counts = np.unique(tables.ids, return_counts=True)
    twice = values[counts > 1]
    if not len(twice):
        return passed(f"{len(values):,} different ids")
    return failed(f"{len(twice):,} target ids mapped twice: {some(twice)}", expected="unique ids")


@check(
    "vocab.order",
    severity="warning",
    asks="mapped ids ascend",
    why="SGLang takes any order; tools that rebuild the mapping from t2d assume ascending ids and shuffle the head.",
    fix="nothing for SGLang; sort d2t and the rows of lm_head together for other tools",
    follows=("vocab.absolute-ids", "vocab.duplicate", "vocab.range", "vocab.t2d-disagrees"),
)
def order(s: Subject) -> Outcome:
    """V4's 'ascending'."""
    tables = read_tables(s)
    if tables is None or tables.ids is None:
        return skipped(NO_SHAPE if tables is None else NO_MAP)
    falls = int((np.diff(tables.ids) < 0).sum())
    return judged(f"{falls:,} descents" if falls else "", expected="ascending ids", good="ascending")


CHECKS: tuple[Check, ...] = (
    missing, d2t_dtype, d2t_length, absolute_ids, untouched, first_ids, in_range, duplicate, order,
)  # fmt: skip
