"""The shipped history test and the gate it stands for: ``max_regression``, on the stand-in for two servers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.checkpoint.files.digest import text_digest
from tests.support.jobs import run_job
from tests.support.stand_in import FIXTURES, write_profile

Run = Callable[..., pytest.RunResult]
HISTORY = Path(".specprobe") / "history.jsonl"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target whose template writes the date into prompts, so that its files tell how they are rendered."""
    folder = tmp_path_factory.mktemp("target") / "mini_k25"
    shutil.copytree(FIXTURES / "mini_k25", folder)
    (folder / "chat_template.jinja").write_text("{{ strftime_now('%d %b %Y') }}")
    return folder


def configure(folder: Path, target: Path, *, limit: float = 0.0) -> None:
    write_profile(folder, limit=limit)
    with (folder / "specprobe.toml").open("a") as file:
        file.write(f'[targets.mini_k25]\nmodel = "{target}"\n')


@pytest.fixture(scope="module")
def past(attached: tuple[str, ...], target: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The history that one run leaves."""
    folder = tmp_path_factory.mktemp("past")
    configure(folder, target)
    assert run_job(folder, *attached).code == 0
    return (folder / HISTORY).read_text()


@pytest.fixture
def run(pytester: pytest.Pytester, attached: tuple[str, ...], target: Path, past: str) -> Run:
    """Run the product beside that history, spoilt."""

    def one(spoil: Callable[[Path], None], limit: float) -> pytest.RunResult:
        configure(pytester.path, target, limit=limit)
        path = pytester.path / HISTORY
        path.parent.mkdir()
        path.write_text(past)
        spoil(path)
        return pytester.runpytest_inprocess(*attached, "-v")

    return one


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        run = json.loads(path.read_text())
        change(run)
        path.write_text(json.dumps(run) + "\n")

    return edit


def faster(run: dict[str, Any]) -> None:
    """Let the past have been three times as fast."""
    for row in run["rows"]:
        for name in ("decode_s", "baseline_decode_s"):
            row[run["columns"].index(name)] /= 3


def one_prompt(run: dict[str, Any]) -> None:
    run["rows"] = run["rows"][:1]


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


def nothing(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("spoil", "code", "ends", "says"),
    [
        (nothing, 0, "PASSED", "no earlier run of the same key"),
        (edited(faster), 1, "FAILED", "gate max_regression: fail; saw tok_per_s 0."),
        (edited(one_prompt), 10, "FAILED", "gate max_regression: inconclusive; saw accept_length shares too few"),
        (unreadable, 10, "FAILED", "history.jsonl is a directory, not a file, wanted at least 0.75 of before"),
    ],
    ids=["first", "slower", "cannot-tell", "unreadable"],
)
def test_a_run_is_held_against_its_past(
    pytester: pytest.Pytester,
    run: Run,
    target: Path,
    *,
    spoil: Callable[[Path], None],
    code: int,
    ends: str,
    says: str,
) -> None:
    result = run(spoil, limit=0.25)
    assert result.ret == code
    result.stdout.fnmatch_lines([f"specprobe/test_history.py::test_history[[]attached[]] {ends}*"])
    assert says in " ".join(result.stdout.str().split())
    entry = json.loads((pytester.path / ".specprobe" / "report.json").read_text())["drafters"][0]
    assert entry["gate"] == {0: "pass", 1: "fail", 10: "inconclusive"}[code]
    assert entry["history"]["kept"] == (code == 0)
    where = {name: entry["server"][name] for name in ("local_device", "host", "environment")}
    assert where == {"local_device": None, "host": "127.0.0.1", "environment": None}, "nothing vouches for it"
    assert entry["workload"]["undated"] == text_digest(target)
    assert entry["workload"]["undated"] != entry["workload"]["rendered"]


def test_nothing_is_asked_without_a_limit(run: Run) -> None:
    result = run(edited(faster), limit=0.0)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_history[[]attached[]] SKIPPED*"])
    assert "regressed" in result.stdout.str(), "told, and not gated"
