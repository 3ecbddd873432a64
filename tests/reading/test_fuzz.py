"""A small part of ``proofs/test_fuzz.py``: hostile inputs at every edge end in a result or in one named error."""

from pathlib import Path

import pytest

from tests.support.reading_edges import EDGES, Edge, outcome

FEW = 12


@pytest.mark.timeout(300)
@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)
def test_hostile_inputs_are_accepted_or_refused(edge: Edge, tmp_path: Path) -> None:
    for at in range(FEW):
        assert outcome(edge, f"suite {at}", tmp_path)[0] in {"accepted", "refused"}


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)
def test_the_good_document_is_accepted(edge: Edge, tmp_path: Path) -> None:
    assert edge.read(tmp_path, edge.whole())
