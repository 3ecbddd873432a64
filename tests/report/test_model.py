"""The models hold a report whole: what is read is what is written, and the published schema is made from them."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_specprobe.report.model.report import Report
from pytest_specprobe.report.model.schema import schema_of_models
from pytest_specprobe.report.read import schema_text
from tests.characterization.records import reports
from tests.support.simulated_reports import World, entry, fault, report

# Written by versions that had the same fields of a drafter in another order.
OLDER = {"h200-mini", "h200-random-deepseek", "h200-smollm2", "mini-cpu"}
WHOLE = report(
    entry(World()), entry(World(blind=None, plain_s=None), name="b", findings=[fault("vocab.absolute-ids")])
)


def written(document: dict[str, Any]) -> dict[str, Any]:
    """The document as the model of it is written."""
    model = Report.model_validate(document)
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return dumped


def test_the_committed_schema_is_the_models() -> None:
    assert schema_text() == schema_of_models(), "python -m pytest_specprobe.report.model.schema"


@pytest.mark.parametrize("name", sorted(reports()))
def test_a_kept_report_is_written_as_it_was_read(name: str) -> None:
    kept = reports()[name]
    assert written(kept) == kept
    assert (json.dumps(written(kept)) == json.dumps(kept)) == (name not in OLDER)


def test_a_new_report_is_written_as_it_was_read() -> None:
    document = json.loads(json.dumps(WHOLE))
    assert json.dumps(written(document)) == json.dumps(document)


def test_a_number_stays_whole_or_broken() -> None:
    document = copy.deepcopy(reports()["mini-cpu"])
    document["machine"]["memory_gib"] = 8
    assert json.dumps(written(document)["machine"]) == json.dumps(document["machine"])


def of(r: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = r["drafters"][0]
    return first


SPOILED: dict[str, Callable[[dict[str, Any]], object]] = {
    "unknown verdict": lambda r: of(r).update(verdict="good"),
    "no bound": lambda r: of(r)["acceptance"]["accept_length"].pop("low"),
    "negative time": lambda r: of(r)["throughput"].update(round_s=-1),
    "no rounds": lambda r: of(r)["acceptance"]["prompts"][0].pop("rounds"),
    "another schema": lambda r: r.update(schema=2),
    "text for a number": lambda r: of(r)["throughput"].update(round_s="0.1"),
    "truth for a count": lambda r: of(r)["acceptance"].update(rounds=True),
    "infinity": lambda r: of(r)["throughput"].update(round_s=float("inf")),
    "one side of a change": lambda r: of(r).update(staging={"source_digest": "", "patched": {"a": [1]}}),
    "null for what an older report lacks": lambda r: of(r)["losslessness"].update(unexplained=None),
    "a field that is no report's": lambda r: of(r).update(colour="red"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_spoiled_report_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    document = reports()["mini-cpu"]
    Report.model_validate(document)
    spoil(document)
    with pytest.raises(ValidationError) as refused:
        Report.model_validate(document)
    assert refused.value.error_count() <= 2, "the fault alone is named, once per type that a number may have"


def test_what_an_older_report_lacks_is_none() -> None:
    document = json.loads(json.dumps(WHOLE))
    del of(document)["losslessness"]["unexplained"]
    lossless = Report.model_validate(document).drafters[0].losslessness
    assert lossless is not None
    assert lossless.unexplained is None
    assert "unexplained" not in written(document)["drafters"][0]["losslessness"]
