"""The published schema describes every field of a report, and refuses what is not one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_specprobe.cli import main
from tests.support.report_schema import SCHEMA, closed, problems
from tests.support.simulated_reports import World, entry, fault, report

RECORDS = sorted((Path(__file__).parents[2] / "docs" / "records").glob("*/report.json"))


WHOLE = report(
    entry(World()), entry(World(blind=None, plain_s=None), name="b", findings=[fault("vocab.absolute-ids")])
)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_report_is_valid_and_wholly_described() -> None:
    assert problems(WHOLE) == []
    assert problems(WHOLE, closed(SCHEMA)) == []


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_a_real_report_is_valid_and_wholly_described(path: Path) -> None:
    """The records of the docs are real runs'; a job test holds the newest run's against the schema too."""
    assert problems(json.loads(path.read_text()), closed(SCHEMA)) == []


def test_a_probe_that_measured_nothing_is_valid() -> None:
    bare = dict(entry(World(prompts=6)))
    for key in ("acceptance", "throughput", "break_even", "outlook", "losslessness", "server", "staging", "workload"):
        bare[key] = None
    bare |= {"verdict": None, "gate": "error"}
    assert problems(report(bare)) == []


def spoil_verdict(r: dict[str, Any]) -> None:
    r["drafters"][0]["verdict"] = "good"


def spoil_interval(r: dict[str, Any]) -> None:
    del r["drafters"][0]["acceptance"]["accept_length"]["low"]


def spoil_undefined(r: dict[str, Any]) -> None:
    r["drafters"][0]["throughput"]["round_s"] = -1


def spoil_rows(r: dict[str, Any]) -> None:
    del r["drafters"][0]["acceptance"]["prompts"][0]["rounds"]


def spoil_version(r: dict[str, Any]) -> None:
    r["schema"] = 2


@pytest.mark.parametrize("spoil", [spoil_verdict, spoil_interval, spoil_undefined, spoil_rows, spoil_version])
def test_a_spoiled_report_is_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(json.dumps(WHOLE))
    spoil(document)
    assert len(problems(document)) == 1


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
