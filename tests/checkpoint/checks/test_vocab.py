"""The mapping: any valid one passes every check, any single corruption gives exactly one root cause."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_specprobe.checkpoint.check import Subject
from pytest_specprobe.checkpoint.checks import vocab_marks, vocab_offsets
from pytest_specprobe.checkpoint.inspect import run_checks, survey
from pytest_specprobe.checkpoint.vocab_mapping import VocabMap, vocab_map
from tests.support import checkpoint_builder as build

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Tables:
    ids: Ints
    d2t: Ints
    t2d: Bools

    @property
    def rows(self) -> int:
        return len(self.t2d)


@st.composite
def valid(draw: st.DrawFn) -> Tables:
    """A reduced vocabulary, chosen in any way but "the first ids", which is a finding of its own."""
    rows = draw(st.integers(3, 400))
    ids = np.array(sorted(draw(st.sets(st.integers(0, rows - 1), min_size=1, max_size=rows - 1))), dtype=np.int64)
    assume(ids[-1] != len(ids) - 1)
    d2t, t2d = build.tables(ids, vocab=rows)
    return Tables(ids, d2t, t2d)


def causes(d2t: Ints | None, t2d: Bools | None, *, draft: int, rows: int, folder: Path) -> list[str]:
    made = build.llama()
    made.config |= {"vocab_size": rows, "draft_vocab_size": draft}
    made.tensors = {n: t for n, t in (("d2t", d2t), ("t2d", t2d)) if t is not None} | {"x": np.zeros(1)}
    subject: Subject = survey(made.save(folder))
    found = run_checks(subject, checks=(*vocab_offsets.CHECKS, *vocab_marks.CHECKS))
    return [f.id for f in found if f.status == "fail" and f.severity != "info"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocab")


many = settings(max_examples=100, deadline=None)


@given(tables=valid(), witness=st.booleans())
@many
def test_a_valid_mapping_has_no_finding(folder: Path, tables: Tables, witness: bool) -> None:
    # Without the witness a table of few entries may climb at every step by coincidence, which is no fault.
    t2d = tables.t2d if witness else None
    assume(witness or len(tables.ids) < 32 or not (np.diff(tables.d2t) > 0).all())
    assert causes(tables.d2t, t2d, draft=len(tables.ids), rows=tables.rows, folder=folder) == []


@given(tables=valid(), data=st.data())
@many
def test_one_wrong_offset_has_one_cause(folder: Path, tables: Tables, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tables.ids) - 1))
    wrong = tables.d2t.copy()
    wrong[at] += data.draw(st.integers(-tables.rows, tables.rows).filter(bool))
    found = causes(wrong, tables.t2d, draft=len(wrong), rows=tables.rows, folder=folder)
    assume(wrong.any())
    assert len(found) == 1
    assert found[0] in ("vocab.range", "vocab.duplicate", "vocab.t2d-disagrees", "vocab.absolute-ids")


@given(tables=valid(), data=st.data())
@many
def test_one_flipped_mark_is_a_wrong_count(folder: Path, tables: Tables, data: st.DataObject) -> None:
    marks = tables.t2d.copy()
    at = data.draw(st.integers(0, tables.rows - 1))
    marks[at] = not marks[at]
    found = causes(tables.d2t, marks, draft=len(tables.ids), rows=tables.rows, folder=folder)
    assert found == ["vocab.t2d-count"]


@given(tables=valid(), data=st.data())
@many
def test_one_moved_mark_is_a_disagreement(folder: Path, tables: Tables, data: st.DataObject) -> None:
    marks = tables.t2d.copy()
    marks[data.draw(st.sampled_from(list(tables.ids)))] = False
    marks[data.draw(st.sampled_from(list(np.flatnonzero(~tables.t2d))))] = True
    found = causes(tables.d2t, marks, draft=len(tables.ids), rows=tables.rows, folder=folder)
    assert found in (["vocab.t2d-disagrees"], ["vocab.absolute-ids"])
    # Only where the moved marks happen to equal the offsets themselves can absolute ids be read into the tables.
    assert (found == ["vocab.absolute-ids"]) == np.array_equal(np.sort(tables.d2t), np.flatnonzero(marks))


@given(tables=valid())
@many
def test_absolute_ids_are_named_as_such(folder: Path, tables: Tables) -> None:
    found = causes(tables.ids, tables.t2d, draft=len(tables.ids), rows=tables.rows, folder=folder)
    assume(tables.ids.any() and not np.array_equal(tables.ids, tables.d2t))
    assert found == ["vocab.absolute-ids"]


@given(tables=valid())
@settings(max_examples=40, deadline=None)
def test_an_untouched_buffer_is_named_as_such(folder: Path, tables: Tables) -> None:
    zeros = np.zeros_like(tables.d2t)
    for marks in (tables.t2d, np.zeros_like(tables.t2d), np.ones_like(tables.t2d), None):
        found = causes(zeros, marks, draft=len(zeros), rows=tables.rows, folder=folder)
        assert found == ["vocab.untouched"]


@given(tables=valid())
@many
def test_the_map_is_the_engines_formula(folder: Path, tables: Tables) -> None:
    made = build.Checkpoint(build.llama_config(), {"d2t": tables.d2t})
    found = vocab_map(_weights(made.save(folder)), vocab=tables.rows)
    assert found is not None
    np.testing.assert_array_equal(found.ids, tables.ids)
    assert found.contains(int(tables.ids[0]))
    assert not found.contains(int(np.flatnonzero(~tables.t2d)[0]))
    assert found.coverage(list(range(tables.rows))) == pytest.approx(len(tables.ids) / tables.rows)


def _weights(path: Path) -> Any:
    weights = survey(path).weights
    assert weights is not None
    return weights


def test_coverage_counts_repeats_and_is_undefined_for_no_tokens() -> None:
    mapping = VocabMap(np.array([1, 5, 9]))
    assert mapping.coverage([1, 1, 1, 2]) == 0.75
    assert mapping.coverage([]) is None
    assert VocabMap.identity(4).coverage([0, 3]) == 1.0


def test_the_most_probable_mapping_of_a_large_set_is_never_taken_for_absolute_ids(folder: Path) -> None:
    rng = np.random.default_rng(0)
    d2t, _ = build.mapping(rng, draft=32_000, vocab=163_840)
    assert causes(d2t, None, draft=32_000, rows=163_840, folder=folder) == []
