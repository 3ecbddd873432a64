"""docs/checks.md is what the checks say; ids, causes and texts are whole."""

from pathlib import Path

from pytest_specprobe.checkpoint import table
from pytest_specprobe.checkpoint.inspect import CHECKS

DOCS = Path(__file__).parents[2] / "docs" / "checks.md"
ROOMS = {"file", "config", "target", "tensor", "head", "fc", "rope", "vocab"}


def test_the_document_is_fresh() -> None:
    assert DOCS.read_text() == table.markdown(), "run: python -m pytest_specprobe.checkpoint.table > docs/checks.md"


def test_ids_are_slugs_by_room_and_unique() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    assert {id_.partition(".")[0] for id_ in ids} == ROOMS
    assert all(id_.replace(".", "", 1).replace("-", "").isalnum() and id_.islower() for id_ in ids)


def test_causes_exist_and_do_not_run_in_circles() -> None:
    causes = {check.id: set(check.follows) for check in CHECKS}
    assert set().union(*causes.values()) <= causes.keys()
    while causes:
        free = {id_ for id_, follows in causes.items() if not follows & causes.keys()}
        assert free, f"these fold into each other: {sorted(causes)}"
        for id_ in free:
            del causes[id_]


def test_every_text_is_there_and_ends_without_a_full_stop_where_one_is_added() -> None:
    for check in CHECKS:
        assert check.asks
        assert check.why.endswith(".")
        assert check.fix
        assert not check.fix.endswith(".")
