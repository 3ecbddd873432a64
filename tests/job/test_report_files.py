"""What the main job leaves behind is what is published: schema, history, baselines, and every rendering."""

from pytest_specprobe.report.read import read_report, report_of
from pytest_specprobe.report.render.html import page
from pytest_specprobe.report.render.markdown import markdown
from pytest_specprobe.report.render.terminal import summary
from pytest_specprobe.report.store import history
from tests.support.jobs import NAME, Job
from tests.support.report_schema import SCHEMA, closed, problems


def test_the_report_is_valid_and_wholly_described(main_job: Job) -> None:
    assert problems(main_job.report, closed(SCHEMA)) == []


def test_what_passed_is_kept_and_nothing_else(main_job: Job) -> None:
    kept = {run.drafter for run in history.read(main_job.folder / ".specprobe").runs}
    assert kept == {name for name, entry in main_job.entries.items() if entry["gate"] == "pass"}
    for entry in main_job.entries.values():
        assert entry["history"]["kept"] == (entry["gate"] == "pass")


def test_the_screen_is_the_report_rendered(main_job: Job) -> None:
    report = read_report(main_job.folder / ".specprobe")
    for line in summary(report_of(report)):
        assert line in main_job.output


def test_every_rendering_is_made_of_it(main_job: Job) -> None:
    report = read_report(main_job.folder / ".specprobe")
    shown = page(report_of(report))
    assert shown.count("<figure>") >= 3
    told = "\n".join(markdown(report_of(report)))
    assert NAME in shown
    assert NAME.replace("_", "\\_") in told
