"""docs/checks.md is what the checks say, and the checks cover the failure catalogue's static rows."""

from pathlib import Path

from pytest_specprobe.checkpoint import table
from pytest_specprobe.checkpoint.inspect import CHECKS

DOCS = Path(__file__).parents[2] / "docs" / "checks.md"
# Rows of the failure catalogue that files alone can show, without those that only a measurement settles.
STATIC_ROWS = {
    "V01", "V03", "V04", "V05", "V06", "V07", "V08", "V09", "V10", "V11", "V13",
    "L01", "L02", "L03", "L04", "L05", "L06", "L07",
    "T01", "T02", "T03", "T04", "T05", "T06", "T09", "T11", "T13", "T14", "T15", "T16",
    "C01", "C02", "C03", "C04", "C07", "C08", "P01", "P04", "Q01", "Q02", "Q04", "F01", "F02", "F03", "F04",
}  # fmt: skip
ROOMS = {"file", "config", "target", "tensor", "head", "fc", "rope", "vocab"}


def test_the_document_is_fresh() -> None:
    assert DOCS.read_text() == table.markdown(), "run: python -m pytest_specprobe.checkpoint.table > docs/checks.md"


def test_every_static_row_of_the_catalogue_has_a_check() -> None:
    assert STATIC_ROWS - {row for check in CHECKS for row in check.rows} == set()


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
