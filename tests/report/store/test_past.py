"""The end of a run: compared with its own past, kept if it passed, and the gate's regression limit."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.profiles import Gate
from pytest_specprobe.report.store import history
from pytest_specprobe.settings import Across
from tests.support.report_schema import SCHEMA, closed, problems
from tests.support.simulated_reports import World, entry, fault, remembered, report

FIRST = datetime(2026, 5, 1, tzinfo=UTC)


def finish(folder: Path, at: int, *, speed: float = 1.0, limit: float = 0.0, **options: Any) -> dict[str, Any]:
    """The entry of run number ``at``, remembered."""
    gate, findings = options.pop("gate", Gate()), options.pop("findings", ())
    whole = report(entry(World(accept=0.7, speed=speed, seed=at, **options), gate=gate, findings=findings))
    whole["created"] = (FIRST + timedelta(days=at)).isoformat(timespec="seconds")
    remembered(whole, folder=folder, limit=limit, environ={"GITHUB_SHA": f"c{at}"})
    assert problems(whole, closed(SCHEMA)) == []
    found: dict[str, Any] = whole["drafters"][0]
    return found


def test_the_first_run_has_no_past_and_passes(tmp_path: Path) -> None:
    found = finish(tmp_path, 0, limit=0.05)
    assert found["gate"] == "pass"
    assert found["history"] | {"key": ""} == {
        "key": "", "kept": True, "problem": None, "across": [], "trend": None, "changes": [], "runs": [],
    }  # fmt: skip
    assert found["gate_checks"][-1]["seen"] == "no earlier run of the same key"


def test_the_slow_run_is_the_one_that_is_flagged(tmp_path: Path) -> None:
    trends = [finish(tmp_path, at, speed=1.3 if at == 2 else 1.0)["history"]["trend"] for at in range(3)]
    assert trends[2] == "regressed"
    assert trends[1] != "regressed"
    assert [run.commit for run in history.read(tmp_path).runs] == ["c0", "c1", "c2"], "no limit was asked for"


@pytest.mark.parametrize(
    ("speed", "limit", "gate"), [(1.3, 0.05, "fail"), (1.04, 0.05, "inconclusive"), (1.0, 0.20, "pass")]
)
def test_the_limit_gates_and_keeps_a_loss_out(tmp_path: Path, speed: float, limit: float, gate: str) -> None:
    """What only cannot be told is kept: else there would never be references enough to tell."""
    for at in range(3):
        finish(tmp_path, at)
    found = finish(tmp_path, 3, speed=speed, limit=limit)
    assert found["gate"] == gate, found["gate_checks"][-1]
    assert found["history"]["kept"] == (gate != "fail")
    assert any("of the last 3 runs" in reason for reason in found["reasons"]) == (gate != "pass")
    assert len(history.read(tmp_path).runs) == 3 + (gate != "fail")


def test_a_gate_that_is_open_for_more_than_its_past_keeps_no_run(tmp_path: Path) -> None:
    finish(tmp_path, 0)
    length = finish(tmp_path, 1)["acceptance"]["accept_length"]["value"]
    found = finish(tmp_path, 2, speed=1.04, limit=0.05, gate=Gate(min_accept_length=length))
    assert {c["name"] for c in found["gate_checks"] if c["result"] == "inconclusive"} == {
        "min_accept_length", "max_regression",
    }  # fmt: skip
    assert not found["history"]["kept"]


def test_a_run_on_a_busy_machine_that_cannot_be_compared_is_not_kept(tmp_path: Path) -> None:
    crowded = (fault("measure.crowded-machine", severity="warning"),)
    anything = Gate(accept_verdicts=("profitable", "undecided", "finetune", "verify-bound"))
    first = finish(tmp_path, 0, limit=0.2, gate=anything, findings=crowded)
    assert first["history"]["kept"], "there was nothing to compare with"
    again = finish(tmp_path, 1, limit=0.2, gate=anything, findings=crowded)
    assert (again["gate"], again["history"]["kept"]) == ("inconclusive", False)
    quiet = finish(tmp_path, 2, limit=0.2)
    assert (quiet["gate"], quiet["history"]["kept"]) == ("inconclusive", True), "the reference that the first is not"
    assert finish(tmp_path, 3, limit=0.2)["gate"] == "pass"


def broken_lines(raw: bytes) -> bytes:
    return raw.replace(b"\n", b"\r")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw.replace(b'"schema":1', b'"schema":2'),
        lambda raw: b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 31000\n",
        broken_lines,
        lambda raw: raw.replace(b'"decode_s"', b'"decode_seconds"'),
        lambda raw: b"\0" * len(raw),
    ],
    ids=["newer-schema", "lfs-pointer", "carriage-returns", "other-columns", "zeros"],
)
def test_a_past_of_which_no_line_can_be_read_is_no_pass(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    for at in range(3):
        finish(tmp_path, at)
    path = tmp_path / history.NAME
    path.write_bytes(spoil(path.read_bytes()))
    before = path.read_bytes()
    found = finish(tmp_path, 3, speed=2.0, limit=0.05)
    assert found["gate"] == "inconclusive"
    assert "not readable" in found["history"]["problem"]
    assert not found["history"]["kept"]
    assert path.read_bytes() == before
    unasked = finish(tmp_path, 4)
    assert (unasked["gate"], unasked["history"]["kept"]) == ("pass", True), "told, and nothing asked for it"
    assert "not readable" in unasked["history"]["problem"]


def test_one_line_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    for at in range(3):
        finish(tmp_path, at)
    with (tmp_path / history.NAME).open("a") as file:
        file.write('{"schema": 1, "half a line')
    found = finish(tmp_path, 3, speed=2.0, limit=0.05)
    assert found["gate"] == "fail"
    assert found["history"]["problem"] is None


def test_runs_stamped_later_are_a_past_too(tmp_path: Path) -> None:
    """A machine whose clock was ahead wrote them: they were there when this run began."""
    for at in (3, 4, 5):
        finish(tmp_path, at)
    found = finish(tmp_path, 0, speed=2.0, limit=0.05)
    assert (found["gate"], found["history"]["kept"]) == ("fail", False)
    assert len(found["history"]["runs"]) == 3


def test_a_gate_that_failed_already_stays_failed(tmp_path: Path) -> None:
    finish(tmp_path, 0)
    found = finish(tmp_path, 1, limit=0.5, gate=Gate(min_tok_per_s=1e6))
    assert found["gate"] == "fail"
    assert not found["history"]["kept"]


def test_another_key_is_not_compared_with(tmp_path: Path) -> None:
    finish(tmp_path, 0)
    found = finish(tmp_path, 1, depth=3, limit=0.1)
    assert found["history"]["runs"] == []
    assert found["gate"] == "pass"
    assert found["gate_checks"][-1]["seen"].endswith("the last run of this drafter differs in speculation")


def moved(
    folder: Path, at: int, *, speed: float = 1.0, across: tuple[Across, ...] = (), **parts: Any
) -> dict[str, Any]:
    """The entry of a run with another drafter digest, engine version or flag, where the gate asks for the past."""
    whole = report(entry(World(accept=0.7, speed=speed, seed=at)))
    whole["created"] = (FIRST + timedelta(days=at)).isoformat(timespec="seconds")
    own = whole["drafters"][0]
    own["digests"] |= {name: parts[name] for name in ("drafter", "target") if name in parts}
    own["server"] |= {name: parts[name] for name in ("version",) if name in parts}
    own["server"]["flags"] |= parts.get("flags", {})
    remembered(whole, folder=folder, limit=0.1, across=across)
    assert problems(whole, closed(SCHEMA)) == []
    found: dict[str, Any] = whole["drafters"][0]
    return found


MOVES: dict[str, dict[str, Any]] = {
    "drafter": {"drafter": "d2" * 32},
    "engine": {"version": "0.5.24"},
    "flags": {"flags": {"attention_backend": "torch_native"}},
}


@pytest.mark.parametrize("part", MOVES)
def test_where_one_part_alone_moved_there_is_a_past_that_nobody_asked(tmp_path: Path, part: Across) -> None:
    """Half as fast on the next engine: the first run of its key, and no pass, however often it is repeated."""
    assert moved(tmp_path, 0)["gate"] == "pass"
    for at in (1, 2):
        found = moved(tmp_path, at, speed=2.0, **MOVES[part])
        assert (found["gate"], found["history"]["kept"]) == ("inconclusive", False)
        assert f"--specprobe-across={part}" in found["reasons"][-1]
    asked = moved(tmp_path, 3, speed=2.0, across=(part,), **MOVES[part])
    assert (asked["gate"], asked["history"]["kept"]) == ("fail", False)
    assert f"the same key but for {part}" in asked["reasons"][-1]
    assert asked["history"]["across"] == [part]
    same = moved(tmp_path, 4, across=(part,), **MOVES[part])
    assert (same["gate"], same["history"]["kept"]) == ("pass", True)
    assert moved(tmp_path, 5, **MOVES[part])["gate"] == "pass", "it has a past of its own key now"


def test_an_engine_that_resolves_other_flags_moved_both(tmp_path: Path) -> None:
    both = {**MOVES["engine"], **MOVES["flags"]}
    moved(tmp_path, 0)
    for across in ((), ("engine",), ("flags",), ("drafter",)):
        found = moved(tmp_path, 1, across=across, **both)
        assert found["gate"] == "inconclusive"
        assert "--specprobe-across=engine,flags" in found["reasons"][-1]
    assert moved(tmp_path, 1, across=("engine", "flags"), **both)["gate"] == "pass"


def test_a_past_behind_a_run_of_another_kind_is_found(tmp_path: Path) -> None:
    """The last run differs in its hardware too; the one before it in the engine alone."""
    moved(tmp_path, 0)
    finish(tmp_path, 1, depth=3)
    found = moved(tmp_path, 2, **MOVES["engine"])
    assert (found["gate"], found["history"]["kept"]) == ("inconclusive", False)


def test_what_more_than_these_parts_tells_apart_has_no_past(tmp_path: Path) -> None:
    moved(tmp_path, 0)
    found = moved(tmp_path, 1, target="7b" * 32, **MOVES["engine"])
    assert found["gate"] == "pass"
    assert "engine, target" in found["gate_checks"][-1]["seen"]


def test_across_does_not_reach_another_drafter(tmp_path: Path) -> None:
    other = report(entry(World(accept=0.7, speed=0.2, seed=9), name="another"))
    remembered(other, folder=tmp_path, limit=0.1)
    found = moved(tmp_path, 1, across=("drafter",), **MOVES["drafter"])
    assert (found["gate"], found["history"]["runs"]) == ("pass", [])


def test_a_moved_part_and_other_prompts_do_not_lock_each_other(tmp_path: Path) -> None:
    """Across the engine the prompts are still rendered otherwise: kept, as any such run, and compared from then."""
    rendered(tmp_path, 0, "a" * 64)
    for at, (across, kept) in enumerate([((), False), (("engine",), True)], 1):
        whole = report(entry(World(accept=0.7, seed=at)))
        whole["drafters"][0]["workload"] |= {"rendered": "b" * 64, "undated": None}
        whole["drafters"][0]["server"]["version"] = "0.5.24"
        remembered(whole, folder=tmp_path, limit=0.1, across=across)
        found = whole["drafters"][0]
        assert (found["gate"], found["history"]["kept"]) == ("inconclusive", kept)


def rendered(folder: Path, at: int, digest: str, *, undated: str | None = None, speed: float = 1.0) -> dict[str, Any]:
    """The entry of a run whose prompts were rendered so."""
    whole = report(entry(World(accept=0.7, speed=speed, seed=at)))
    whole["created"] = (FIRST + timedelta(days=at)).isoformat(timespec="seconds")
    whole["drafters"][0]["workload"] |= {"rendered": digest, "undated": undated}
    remembered(whole, folder=folder, limit=0.1)
    assert problems(whole, closed(SCHEMA)) == []
    found: dict[str, Any] = whole["drafters"][0]
    return found


def test_prompts_that_are_rendered_otherwise_each_time_do_not_pass_for_ever(tmp_path: Path) -> None:
    """Each such run would be the first of its key; the first that is rendered as one before it is compared."""
    assert rendered(tmp_path, 0, "a" * 64)["gate"] == "pass"
    other = rendered(tmp_path, 1, "b" * 64, speed=2.0)
    assert (other["gate"], other["history"]["kept"]) == ("inconclusive", True)
    assert "differs in rendered" in other["reasons"][-1]
    assert rendered(tmp_path, 2, "b" * 64, speed=2.0)["gate"] == "pass"
    assert rendered(tmp_path, 3, "b" * 64, speed=3.0)["gate"] == "fail"


def test_a_template_with_the_date_is_known_by_its_files(tmp_path: Path) -> None:
    assert rendered(tmp_path, 0, "a" * 64, undated="t" * 64)["gate"] == "pass"
    assert rendered(tmp_path, 1, "b" * 64, undated="t" * 64, speed=2.0)["gate"] == "fail"
    assert rendered(tmp_path, 1, "b" * 64, undated="u" * 64)["gate"] == "inconclusive", "another template"


def test_a_history_that_cannot_be_written_spoils_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / history.NAME).mkdir()
    found = finish(tmp_path, 0)
    assert found["gate"] == "pass"
    assert "Is a directory" in found["history"]["problem"]
    assert not found["history"]["kept"]
    assert "Is a directory" in caplog.text


def test_a_past_that_cannot_be_asked_or_kept_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / history.NAME).mkdir()
    unread = finish(tmp_path, 0, limit=0.05)
    assert unread["gate"] == "inconclusive"
    assert "is a directory" in unread["reasons"][-1]
    (tmp_path / history.NAME).rmdir()
    (tmp_path / f"{history.NAME}.lock").mkdir()
    unkept = finish(tmp_path, 0, limit=0.05)
    assert unkept["gate"] == "inconclusive"
    assert [check["name"] for check in unkept["gate_checks"]].count("max_regression") == 1
    assert "this run cannot be kept" in unkept["reasons"][-1]


def test_a_run_of_unknown_key_is_no_pass_where_the_past_is_asked_for(tmp_path: Path) -> None:
    whole = report(entry(World(accept=0.7)))
    whole["drafters"][0]["digests"]["target"] = None
    for limit, gate in ((0.0, "pass"), (0.05, "inconclusive")):
        remembered(whole, folder=tmp_path, limit=limit)
        assert whole["drafters"][0]["gate"] == gate
    assert not (tmp_path / history.NAME).exists()


def test_a_run_that_measured_nothing_has_no_history(tmp_path: Path) -> None:
    whole = report(entry(World()) | {"acceptance": None, "verdict": None, "gate": "error"})
    remembered(whole, folder=tmp_path)
    assert whole["drafters"][0]["history"] is None
