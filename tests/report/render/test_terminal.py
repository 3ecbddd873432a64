"""The terminal summary: verdict first, one screen, nothing lost at the right edge, colour only where asked."""

import copy
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.cli import main
from pytest_specprobe.errors import CheckFailed
from pytest_specprobe.profiles import Gate
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.html import page
from pytest_specprobe.report.render.markdown import escape, markdown
from pytest_specprobe.report.render.terminal import summary
from tests.support.simulated_reports import World, entry, fault, report

FINETUNE = World(accept=0.4, round_s=0.0225)


def lines(*entries: dict[str, object], **options: Any) -> list[str]:
    return list(summary(report_of(report(*entries)), **options))


def place(found: list[str], text: str) -> int:
    return next(i for i, line in enumerate(found) if text in line)


def test_verdict_then_why_then_numbers_then_what_to_do() -> None:
    found = lines(entry(FINETUNE))
    assert "FINETUNE" in found[1]
    order = [
        place(found, text) for text in ("gate ", "why ", "accept length ", "tok/s ", "break-even ", "what to do ")
    ]
    assert order == sorted(order)


def test_one_screen() -> None:
    assert len(lines(entry(FINETUNE))) <= 40
    crowd = [fault(f"vocab.fault-{i}", severity="warning") for i in range(30)]
    found = lines(entry(FINETUNE, findings=crowd))
    assert len(found) <= 54
    assert any("26 more findings" in line for line in found)


def test_every_number_has_interval_formula_and_count() -> None:
    told = entry(FINETUNE)
    text = " ".join(" ".join(lines(told)).split())
    length = told["acceptance"]["accept_length"]
    a = told["acceptance"]
    assert (
        f"{length['value']:.2f} [{length['low']:.2f}, {length['high']:.2f}] tokens/round of at most 3 (1 + "
        f"{a['accepted']:,} accepted / {a['rounds']:,} rounds, 30 prompts" in text
    )
    speedup = told["throughput"]["speedup"]
    assert f"{speedup['value']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}] x" in text


@pytest.mark.parametrize("width", [60, 72, 100])
def test_long_lines_wrap_under_their_text(width: int) -> None:
    found = lines(entry(FINETUNE, findings=[fault("vocab.absolute-ids")]), width=width)
    words = [line for line in found[2:] if len(line) > width]
    assert all(" " not in line.strip() for line in words), "only a word that is too long itself may stick out"
    hanging = [line for line in found if line.startswith(" " * 19)]
    assert hanging
    assert all(not line[19].isspace() for line in hanging)


def test_a_finding_that_is_a_reason_is_not_told_twice() -> None:
    found = "\n".join(lines(entry(FINETUNE, findings=[fault("vocab.absolute-ids")])))
    assert found.count("vocab.absolute-ids") == 1


def test_no_colour_unless_asked() -> None:
    told = report_of(report(entry(FINETUNE)))
    plain, coloured = "\n".join(summary(told)), "\n".join(summary(told, colour=True))
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_an_invalid_measurement_says_so_before_its_numbers() -> None:
    found = lines(entry(FINETUNE, findings=[fault("measure.looping")]))
    assert "NO VERDICT" in found[1]
    assert place(found, "of an invalid measurement") < place(found, "accept length")


def test_no_baseline_is_undefined_and_not_zero() -> None:
    found = "\n".join(lines(entry(World(plain_s=None))))
    assert "speedup  " not in found
    assert "break-even  " not in found


def test_the_gate_names_what_it_did_not_like() -> None:
    found = " ".join(" ".join(lines(entry(FINETUNE, gate=Gate(min_tok_per_s=500)))).split())
    assert "gate failed: min_tok_per_s saw" in found


def test_the_command_renders_a_report_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = report(entry(FINETUNE))
    (tmp_path / "report.json").write_text(json.dumps(told))
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    alone = list(summary(report_of(told)))
    assert shown[: len(alone)] == alone
    assert shown[len(alone)].startswith("  report  ")
    assert main(["report", str(tmp_path / "report.json"), "--format", "json", "--output", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out").read_text()) == told
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist"),
        ("{", "is not JSON"),
        ('{"schema": 1, "tool": "\\ud800"}', "lone surrogate"),
        ("[]", "is no report"),
        ('{"schema": 7, "drafters": []}', "has schema 7"),
        ('{"schema": 1, "drafters": [{"name": "x"}]}', "is not complete"),
    ],
)
def test_an_unusable_file_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "next: name a report.json" in error


WHOLE = report(entry(FINETUNE, findings=[fault("rope.positions")]))


def rendered(folder: Path, told: dict[str, Any], form: str) -> int:
    (folder / "report.json").write_text(json.dumps(told))
    return main(["report", str(folder), "--format", form, "--output", str(folder / "out")])


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("verdict", "great"), ("verdict", []), ("gate", "ok"), ("acceptance", {"x": 1}), ("throughput", {"x": 1}),
        ("checks", [1]), ("phases", None), ("reasons", 3), ("history", {"x": 1}), ("server", "there"),
        ("break_even", [1]),
    ],
)  # fmt: skip
def test_a_report_of_other_kinds_of_values_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: object, form: str
) -> None:
    told = copy.deepcopy(WHOLE)
    told["drafters"][0][field] = value
    assert rendered(tmp_path, told, form) == 2
    assert "is not complete" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_no_field_of_a_report_may_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    for field in [*WHOLE, *WHOLE["drafters"][0]]:
        told = copy.deepcopy(WHOLE)
        told.pop(field, None)
        told.get("drafters", [{}])[0].pop(field, None)
        code = rendered(tmp_path, told, form)
        assert code == (0 if field in ("sampled", "sweep_best") else 2), field
        assert ("next: name a report.json" in capsys.readouterr().err) == (code == 2)


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_a_report_gives_a_terminal_no_commands(tmp_path: Path, form: str) -> None:
    told = copy.deepcopy(WHOLE)
    evil = "saw\x1b[2J\x1b]0;owned\x07 \x9b31m"
    drafter = told["drafters"][0]
    drafter |= {"name": evil, "target": evil, "reasons": [evil], "next": [evil]}
    drafter["checks"][0] |= {"severity": "warning", "seen": evil, "fix": evil, "status": "fail"}
    assert rendered(tmp_path, told, form) == 0
    shown = (tmp_path / "out").read_text()
    assert "owned" in shown
    assert set(shown).isdisjoint("\x1b\x07\x9b")


def test_an_error_is_shown_and_not_obeyed() -> None:
    error = CheckFailed(
        "\x1b[31mred\x1b[0m \x1b[2J", culprit="engine", fix="a\xa0b", detail="log\r\x1b]0;x\x07\n\ttab"
    )
    assert str(error) == "red \ufffd[2J\n  culprit: engine\n  next: a\xa0b\n  | log\ufffd\ufffd]0;x\ufffd\n  | \ttab"


@pytest.mark.parametrize(
    ("winner", "says"), [("b", "b surely leads"), (None, "the lead is within the intervals")], ids=["sure", "open"]
)
def test_drafters_of_one_target_are_ranked_in_every_rendering(winner: str | None, says: str) -> None:
    both = report(entry(FINETUNE, name="a"), entry(FINETUNE, name="b"))
    value = {"low": 1.0, "high": 2.0, "n": 30}
    ranking = {
        "measure": "accept_length", "order": ["b", "a"], "winner": winner, "prompts": 30,
        "estimates": {"a": {"value": 1.36, **value}, "b": {"value": 1.49, **value}},
        "lead": {}, "chances": {},
    }  # fmt: skip
    both["comparisons"] = [{"target": "mini_k25", "accept_length": ranking, "speed": None}]
    model = report_of(both)
    told = f"on mini_k25: b 1.49 > a 1.36 ({says}, 30 shared prompts)"
    assert told in " ".join(" ".join(summary(model)).split())
    assert escape(told) in "\n".join(markdown(model))
    assert told in unescape(page(model))
