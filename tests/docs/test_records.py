"""Every figure that README, docs and records quote is the one in the raw file of the record it names."""

import json
import re
from pathlib import Path

import pytest

from docs import figures
from docs.build_record import build
from docs.figures import RECORDS, ROOT, WrongFigure, figure, filled, pages, screen, unquoted
from pytest_specprobe.report.read import read_report
from tests.support.simulated_reports import World, entry, report

NAMES = sorted(path.parent.name for path in RECORDS.glob("*/report.json"))
PATH = re.compile(r"(?<![\w.:/])/[\w.-]+/[\w./-]+")
# what every machine has at the same place
COMMON = ("/home/you", "/proc/", "/dev/", "/v1/", "/usr/")


@pytest.mark.parametrize("page", list(pages()), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_quoted_figure_is_the_records(page: Path) -> None:
    text = page.read_text()
    for wrote, right in zip(text.splitlines(), filled(text).splitlines(), strict=False):
        assert wrote == right, "python -m docs.figures"
    assert text == filled(text)


def test_the_performance_paragraph_says_no_figure_of_its_own() -> None:
    section = (ROOT / "README.md").read_text().partition("## Measured\n")[2].partition("\n## ")[0]
    assert "<!-- = " in section
    assert not re.search(r"\d", re.sub(r"`[^`]*`|\]\([^)]*\)", "", unquoted(section)))


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_whole_and_tells_nothing_of_the_machine_but_what_it_is(name: str) -> None:
    kept = RECORDS / name
    read_report(kept)
    assert "```bash\n" in (kept / "record.md").read_text(), "what was typed"
    told = re.sub(
        r"^```.*?^```|`[^`\n]*`", "", unquoted((kept / "record.md").read_text()), flags=re.DOTALL | re.MULTILINE
    )
    assert not re.search(r"\d\.\d", told), "a figure that is not quoted"
    for path in kept.rglob("*.json*"):
        foreign = [found for found in PATH.findall(path.read_text()) if not found.startswith(COMMON)]
        assert not foreign, f"{path.name}: exchange it with --path OLD=NEW"
        assert path.stat().st_size < 400_000, "records are read and cloned by everyone"


# --- the markup -------------------------------------------------------------------------------------------------


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "RECORDS", tmp_path)
    monkeypatch.setattr("docs.build_record.RECORDS", tmp_path)
    kept = tmp_path / "one"
    kept.mkdir()
    whole = report(entry(World(accept=0.5), name="a"), entry(World(accept=0.7), name="b"))
    whole["drafters"][0]["phases"] = [
        {"name": "boot", "what": "drafter", "status": "done", "seconds": 20.0},
        {"name": "boot", "what": "baseline", "status": "done", "seconds": 30.5},
    ]
    (kept / "report.json").write_text(json.dumps(whole))
    (kept / "other.json").write_text(json.dumps({"setting": [{"at": "3/1/4", "rate": 0.25}], "count": 12345}))
    return kept


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("one:a.phases[name=boot].seconds as s", "20 s"),
        ("one:a.phases[name=boot,what=baseline].seconds", "30.50"),
        ("one:a.phases[*].seconds as s", "50 s"),
        ("one:a.phases[1].seconds / one:a.phases[0].seconds", "1.52"),
        ("one:a.target", "mini_k25"),
        ("one:machine.gpus", "none"),
        ("one/other.json:setting[at=3/1/4].rate as %", "25%"),
        ("one/other.json:setting[at=3/1/4].rate as ms", "250.0 ms"),
        ("one/other.json:count", "12,345"),
    ],
)
def test_a_path_finds_its_figure(record: Path, asked: str, shown: str) -> None:
    assert figure(asked) == shown
    assert filled(f"x <!-- = {asked} -->?<!-- . --> y") == f"x <!-- = {asked} -->{shown}<!-- . --> y"


def test_an_estimate_comes_with_its_interval_or_one_of_its_bounds(record: Path) -> None:
    e = read_report(record)["drafters"][1]["acceptance"]["accept_length"]
    at = "one:b.acceptance.accept_length"
    assert figure(at) == f"{e['value']:.2f} [{e['low']:.2f}, {e['high']:.2f}]"
    assert [figure(f"{at} as {part}") for part in ("value", "low", "high")] == [
        f"{e[part]:.2f}" for part in ("value", "low", "high")
    ]
    assert figure(f"{at} / {at}") == "1.00"


@pytest.mark.parametrize(
    "asked",
    [
        "one:c.target", "two:a.target", "one/none.json:count", "one", "one:a.phases[name=none].seconds",
        "one:a.phases[7].seconds", "one:a.target as ms", "one:a.target as miles", "one:a.target / one:a.target",
        "one:b.losslessness",
    ],
)  # fmt: skip
def test_a_figure_that_is_nowhere_is_an_error(record: Path, asked: str) -> None:
    with pytest.raises(WrongFigure):
        figure(asked)


def test_a_changed_report_changes_the_page(record: Path) -> None:
    page = "<!-- = one:a.throughput.tok_per_s -->1.0<!-- . -->\n\n<!-- screen one -->\n```text\nold\n```\n"
    new = filled(page)
    assert screen("one", whole=False) in new
    assert "old" not in new
    assert filled(new) == new
    assert unquoted(new).strip() == "```"
    with pytest.raises(WrongFigure):
        screen("two", whole=False)


def test_building_exchanges_paths_and_keeps_what_people_wrote(record: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    whole = report(entry(World(), name="a"))
    whole["drafters"][0]["server"]["command"] = [
        "/scratch/x/python",
        "-m",
        "sglang",
        f"{ROOT}/fixtures",
        "/scratch/xy",
    ]
    (run / "report.json").write_text(json.dumps(whole))
    build("new", run, command="pytest", paths=[("/scratch/x", "/home/you")])
    kept = tmp_path / "new"
    command = json.loads((kept / "report.json").read_text())["drafters"][0]["server"]["command"]
    assert command == [
        "/home/you/python", "-m", "sglang", "/home/you/pytest-specprobe/fixtures", "/scratch/xy",
    ]  # fmt: skip
    made = (kept / "record.md").read_text()
    assert filled(made).count("| accept length | <!-- = new:a.acceptance.accept_length -->1.") == 1
    (kept / "record.md").write_text("mine")
    build("new", run, command="pytest")
    assert (kept / "record.md").read_text() == "mine"
