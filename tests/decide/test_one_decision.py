"""The gate is set in one place: all that bears on it reaches ``Decision``, and no other room sets it."""

import ast
from pathlib import Path
from typing import Any

import pytest

import pytest_specprobe
from pytest_specprobe.decide.gate import GateCheck, Result
from pytest_specprobe.decide.verdict import decide, with_past
from pytest_specprobe.errors import ProbeImpossible
from pytest_specprobe.profiles import Gate
from tests.support.evidence import finding, seen

PACKAGE = Path(pytest_specprobe.__file__).parent
ABSENT = ProbeImpossible("no device for it\nnvidia-smi: none", culprit="machine", fix="run where the GPUs are")
UNREAD = ProbeImpossible("no target", culprit="target", fix="hf download it")


@pytest.mark.parametrize(
    ("evidence", "more", "expected"),
    [
        (None, {}, (None, None, "acceptance was not measured")),
        (
            None,
            {"narrowed": True},
            (None, None, "narrowed run: acceptance was not asked for"),
        ),
        (None, {"narrowed": True, "findings": [finding("measure.lossy")]}, (None, None, "narrowed run")),
        (None, {"impossible": [ABSENT]}, (None, "error", "no device for it")),
        (None, {"impossible": [ABSENT], "narrowed": True}, (None, "error", "no device for it")),
        (None, {"findings": [finding("vocab.one-to-one")], "narrowed": True}, ("broken", "fail", "vocab.one-to-one")),
        (None, {"findings": [finding("vocab.one-to-one")], "impossible": [ABSENT]}, ("broken", "fail", "vocab.one-")),
        (seen(), {"findings": [finding("measure.lossy")]}, (None, "error", "the measurement is invalid")),
        (seen(), {"findings": [finding("measure.lossy")], "impossible": [ABSENT]}, (None, "error", "no device")),
        (seen(), {"impossible": [ABSENT]}, ("finetune", "pass", "")),
        (seen(), {"narrowed": True}, ("finetune", "pass", "")),
    ],
)
def test_circumstances(evidence: Any, more: dict[str, Any], expected: tuple[str | None, str | None, str]) -> None:
    decision = decide(evidence, gate=Gate(), **more)
    verdict, gate, reason = expected
    assert (decision.verdict, decision.gate) == (verdict, gate)
    assert reason in decision.reasons[0]


def test_what_is_impossible_names_every_cause_and_step_and_the_first_culprit() -> None:
    decision = decide(None, gate=Gate(), impossible=[UNREAD, ABSENT])
    assert decision.reasons == ("no target", "no device for it"), "the first line of each"
    assert decision.next == ("hf download it", "run where the GPUs are")
    assert (decision.culprit, decision.gate_checks) == ("target", ())


def past(result: Result, reason: str | None = "against earlier runs: 0.80 of before") -> GateCheck:
    return GateCheck(name="max_regression", result=result, seen="0.80", wanted="at least 0.95", reason=reason)


@pytest.mark.parametrize(
    ("gate", "result", "expected"),
    [
        (Gate(), "pass", "pass"),
        (Gate(), "inconclusive", "inconclusive"),
        (Gate(), "fail", "fail"),
        (Gate(min_speedup=9.0), "pass", "fail"),
        (Gate(min_speedup=9.0), "inconclusive", "fail"),
        (Gate(min_speedup=0.8), "fail", "fail"),
        (Gate(min_speedup=0.8), "pass", "inconclusive"),
    ],
)
def test_the_past_is_one_more_condition(gate: Gate, result: Result, expected: str) -> None:
    before = decide(seen(), gate=gate)
    after = with_past(before, past(result))
    assert after.gate == expected
    assert after.gate_checks == (*before.gate_checks, past(result))
    said = after.reasons[len(before.reasons) :]
    assert said == (() if result == "pass" else ("against earlier runs: 0.80 of before",))
    assert (after.verdict, after.next, after.candidates) == (before.verdict, before.next, before.candidates)


@pytest.mark.parametrize(
    "nothing",
    [
        decide(None, gate=Gate()),
        decide(None, gate=Gate(), impossible=[ABSENT]),
        decide(seen(), gate=Gate(), findings=[finding("measure.lossy")]),
        decide(seen(), gate=Gate(), findings=[finding("vocab.one-to-one")]),
    ],
    ids=["not measured", "impossible", "invalid", "broken"],
)
@pytest.mark.parametrize("result", ["pass", "inconclusive", "fail"])
def test_where_nothing_is_held_against_the_gate_the_past_changes_nothing(nothing: Any, result: Result) -> None:
    assert with_past(nothing, past(result)) == nothing


def _sets_a_gate(node: ast.AST) -> bool:
    """A ``["gate"] = ...``, a ``Decision(...)``, or a ``replace(decision, gate=...)``."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return isinstance(node.slice, ast.Constant) and node.slice.value in {"gate", "gate_checks", "reasons"}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id == "replace":
        return any(keyword.arg in {"gate_checks", "reasons"} for keyword in node.keywords)
    return node.func.id == "Decision"


def test_no_other_room_sets_a_gate() -> None:
    setters = {
        path.parent.name
        for path in PACKAGE.rglob("*.py")
        if any(_sets_a_gate(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert setters == {"decide"}
