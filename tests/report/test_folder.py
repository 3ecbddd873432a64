"""A link that a pull request commits carries nothing that a run writes to a file of the user."""

import json
from pathlib import Path

import pytest

from pytest_specprobe import cli
from pytest_specprobe.errors import ProfileError
from pytest_specprobe.reading import Unreadable
from pytest_specprobe.report import file as report
from pytest_specprobe.report.folder import require_no_links
from pytest_specprobe.report.store import history, journal
from tests.support.simulated_reports import World, entry
from tests.support.simulated_reports import report as report_of

LINKS = (".specprobe", "history.jsonl", "history.jsonl.lock", "baselines.jsonl", "baselines.jsonl.lock", "logs")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """What the user has elsewhere: a file, and a folder with one."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "authorized_keys").write_text("ssh-ed25519 mine\n")
    return folder


def commit_link(checkout: Path, name: str, theirs: Path) -> Path:
    """Make the link as a checkout would: to a folder in the place of one, else to a file."""
    folder = checkout / ".specprobe"
    link = folder if name == ".specprobe" else folder / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(theirs if name in {".specprobe", "logs"} else theirs / "authorized_keys")
    return link


def untouched(theirs: Path) -> bool:
    names = [path.name for path in theirs.iterdir()]
    return names == ["authorized_keys"] and (theirs / "authorized_keys").read_text() == "ssh-ed25519 mine\n"


@pytest.mark.parametrize("name", LINKS)
def test_a_run_refuses_a_committed_link_by_name_and_writes_nothing(
    pytester: pytest.Pytester, theirs: Path, name: str
) -> None:
    link = commit_link(pytester.path, name, theirs)
    result = pytester.runpytest_inprocess("--specprobe-drafter=dense_mini", "--specprobe-static")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{link} is a symbolic link to {theirs}*", "*--specprobe-report=DIR*"])
    assert untouched(theirs)


@pytest.mark.parametrize("name", LINKS)
def test_serve_refuses_it_too(
    tmp_path: Path, theirs: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    link = commit_link(tmp_path / "checkout", name, theirs)
    monkeypatch.chdir(tmp_path / "checkout")
    assert cli.main(["serve", "dense_mini", "--device", "cpu"]) == 2
    assert f"{link} is a symbolic link" in capsys.readouterr().err
    assert untouched(theirs)


def test_every_link_is_named_at_once_and_those_above_the_checkout_are_the_users(tmp_path: Path, theirs: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "checkout").symlink_to(tmp_path / "real")
    checkout = tmp_path / "checkout"
    require_no_links(checkout / ".specprobe", roots=(checkout,))
    links = [commit_link(checkout, name, theirs) for name in ("history.jsonl", "logs")]
    with pytest.raises(ProfileError) as caught:
        require_no_links(checkout / ".specprobe", roots=(checkout,))
    assert len(caught.value.problems) == 2
    assert all(str(link) in caught.value.what for link in links)
    (checkout / "out").symlink_to(theirs)
    with pytest.raises(ProfileError, match="out is a symbolic link"):
        require_no_links(checkout / "out" / "deeper", roots=(checkout,))


@pytest.mark.parametrize("name", ["history.jsonl", "history.jsonl.lock"])
def test_a_journal_is_appended_to_through_no_link(tmp_path: Path, theirs: Path, name: str) -> None:
    commit_link(tmp_path, name, theirs)
    with pytest.raises(OSError, match=f"symbolic link.*{name}"):
        journal.append(tmp_path / ".specprobe" / "history.jsonl", {"schema": 1})
    assert untouched(theirs)


def test_a_journal_is_read_through_no_link_but_one_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.jsonl"
    journal.append(file, {"schema": 1, "n": 1})
    link = tmp_path / ".specprobe" / history.NAME
    link.parent.mkdir()
    link.symlink_to(file)
    with pytest.raises(Unreadable, match=r"history\.jsonl is a symbolic link"):
        history.read(link.parent)
    assert len(history.read(link).skipped) == 1


def test_report_json_replaces_a_link(tmp_path: Path, theirs: Path) -> None:
    link = commit_link(tmp_path, report.NAME, theirs)
    assert report.write(report.compose((), gpus=()), folder=link.parent) == link
    assert not link.is_symlink()
    assert untouched(theirs)


def test_a_rendered_report_goes_through_no_link(
    tmp_path: Path, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ".specprobe"
    folder.mkdir()
    (folder / report.NAME).write_text(json.dumps(report_of(entry(World()))))
    page = tmp_path / "page.html"
    page.symlink_to(theirs / "authorized_keys")
    assert cli.main(["report", str(folder), "--format=html", "--output", str(page)]) == 2
    assert f"{page} is a symbolic link" in capsys.readouterr().err
    assert untouched(theirs)
    page.unlink()
    assert cli.main(["report", str(folder), "--format=html", "--output", str(page)]) == 0
    assert cli.main(["report", str(folder), "--format=html", "--output", "/dev/null"]) == 0
