"""Checks of ``t2d``, the second witness of a mapping, and of the set against the target and a text sample."""

import numpy as np

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, passed, skipped
from pytest_specprobe.checkpoint.engine.shape import shape_of
from pytest_specprobe.checkpoint.files.header import shown
from pytest_specprobe.checkpoint.vocab_mapping import NO_SHAPE, VocabMap, read_tables, some

_LOW_COVERAGE = 0.75


@check(
    "vocab.t2d-missing",
    severity="info",
    asks="t2d is there as a second witness for d2t",
    why="SGLang reads only d2t, and some exporters write only that; the mapping is then less checkable, not wrong.",
    fix="nothing; to allow the full check, export t2d (bool [vocab_size]) too",
    follows=("vocab.missing",),
)
def t2d_missing(s: Subject) -> Outcome:
    """Look for t2d, without which d2t has no witness."""
    tables = read_tables(s)
    if tables is None:
        return skipped(NO_SHAPE)
    if tables.t2d is not None:
        return passed(f"t2d {tables.t2d.dtype} {list(tables.t2d.shape)}")
    if not tables.reduced or tables.d2t is None:
        return passed("no mapping to witness")
    return failed("no t2d", expected="t2d beside d2t")


@check(
    "vocab.t2d-dtype",
    severity="warning",
    asks="t2d is a vector of bool",
    why="Trainers use it as a mask over logits; another type selects rows by number instead of masking them.",
    fix="store t2d as bool [vocab_size]",
)
def t2d_dtype(s: Subject) -> Outcome:
    """Hold the type and the shape of t2d."""
    tables = read_tables(s)
    if tables is None or tables.t2d is None:
        return skipped("the drafter has no t2d")
    seen = f"{tables.t2d.dtype} {list(tables.t2d.shape)}"
    good = tables.t2d.dtype == "BOOL" and len(tables.t2d.shape) == 1
    return passed(seen) if good else failed(seen, expected="BOOL [vocab_size]")


@check(
    "vocab.t2d-length",
    asks="t2d has one mark for each id of the target",
    why="A t2d of another length was built for another tokenizer, and d2t with it.",
    fix="rebuild the mapping with this target's tokenizer",
    follows=("target.vocab", "vocab.t2d-dtype"),
)
def t2d_length(s: Subject) -> Outcome:
    """V2/V5: len(t2d) == target vocabulary, by the drafter's config or by the target's rows."""
    tables, shape = read_tables(s), shape_of(s.config)
    if tables is None or tables.t2d is None or shape is None:
        return skipped("the drafter has no t2d")
    marks = tables.t2d.shape[0] if tables.t2d.shape else 0
    if marks in (shape.vocab, tables.rows):
        return passed(f"{marks:,} marks")
    return failed(f"{marks:,} marks", expected=f"{tables.rows:,}")


@check(
    "vocab.t2d-count",
    asks="t2d marks as many ids as the head has rows",
    why="One report had 1,746 marks for 32,000 rows: the loss mask then hides most tokens from training.",
    fix="rebuild t2d from d2t, or export both from the run that trained the head",
    follows=("head.draft-vocab-size", "vocab.untouched", "vocab.t2d-length", "vocab.t2d-dtype", "vocab.d2t-length"),
)
def t2d_count(s: Subject) -> Outcome:
    """V5: popcount(t2d) == draft_vocab_size."""
    tables = read_tables(s)
    if tables is None or tables.marks is None:
        return skipped("the drafter has no t2d")
    count = int(tables.marks.sum())
    if count == tables.draft:
        return passed(f"{count:,} ids marked")
    return failed(f"{count:,} ids marked", expected=f"{tables.draft:,}")


@check(
    "vocab.t2d-disagrees",
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
    tables = read_tables(s)
    if tables is None or tables.marks is None or tables.ids is None:
        return skipped("the drafter has not both tables")
    marked = np.flatnonzero(tables.marks)
    only_d2t, only_t2d = np.setdiff1d(tables.ids, marked), np.setdiff1d(marked, tables.ids)
    if not len(only_d2t) and not len(only_t2d):
        return passed(f"{len(marked):,} ids agree")
    return failed(
        f"{len(only_d2t):,} ids only in d2t, {len(only_t2d):,} only in t2d ({some([*only_d2t[:2], *only_t2d[:2]])})",
        expected="the same set",
    )


@check(
    "vocab.stop-ids",
    severity="warning",
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
    tables = read_tables(s)
    if tables is None or tables.ids is None or s.target is None or not s.target.tokens.stops:
        return skipped("no mapping, or no target with known stop ids")
    absent = {token: text for token, text in s.target.tokens.stops.items() if not bool(np.any(tables.ids == token))}
    if not absent:
        return passed(f"all of {some(s.target.tokens.stops)} in the set")
    return failed(
        some(f"{token} {shown(text)} is not in the set" for token, text in absent.items()), expected="in the set"
    )


@check(
    "vocab.coverage",
    severity="warning",
    culprit="workload",
    asks=f"at least {_LOW_COVERAGE:.0%} of a text sample's tokens are in the set",
    why="What is outside is never drafted: one drafter went from 1.48 to 2.30 on CEval with Chinese data.",
    fix="probe on the domain the drafter was made for, or rebuild its vocabulary from yours",
    follows=("vocab.missing", "vocab.absolute-ids", "vocab.untouched", "vocab.d2t-dtype", "vocab.range"),
)
def coverage(s: Subject) -> Outcome:
    """V9: needs a sample of target token ids."""
    tables = read_tables(s)
    if tables is None or not s.sample_ids:
        return skipped("no text sample was given")
    ids = tables.ids if tables.ids is not None else VocabMap.identity(tables.draft).ids
    share = VocabMap(ids).coverage(s.sample_ids)
    if share is None or share >= _LOW_COVERAGE:
        return passed(f"{share or 0:.1%} of {len(s.sample_ids):,} tokens")
    return failed(f"{share:.1%} of {len(s.sample_ids):,} tokens", expected=f"at least {_LOW_COVERAGE:.0%}")


CHECKS: tuple[Check, ...] = (
    t2d_missing, t2d_dtype, t2d_length, t2d_count, t2d_disagrees, stop_ids, coverage,
)  # fmt: skip
