"""How a shipped test turns one condition of the gate into pass, failure or inconclusive."""

from pytest_specprobe.decide.gate import GateCheck
from pytest_specprobe.decide.verdict import Decision
from pytest_specprobe.errors import GateFailed, Inconclusive
from pytest_specprobe.report.store.past import Past


def require_gate(decision: Decision, name: str) -> None:
    """Pass if the gate's condition ``name`` (and each below it: ``name.workload``) holds, or was not asked for.

    :raises GateFailed: if one does not hold, or nothing was held against the gate at all.
    :raises Inconclusive: if the interval allows both.
    """
    fix = decision.next[0] if decision.next else "see the reasons"
    reasons = "\n".join(decision.reasons)
    if not decision.gate_checks:
        what = f"gate {name}: not asked, since there is nothing to hold against it"
        raise GateFailed(what, culprit=decision.culprit, fix=fix, detail=reasons)
    for check in decision.gate_checks:
        if check.result != "pass" and f"{check.name}.".startswith(f"{name}."):
            raise _kind(check)(_says(check), culprit=decision.culprit, fix=fix, detail=reasons)


def require_verdict(decision: Decision) -> None:
    """Pass if every verdict that the intervals allow is one that the profile accepts."""
    for name in ("min_prompts", "accept_verdicts"):
        require_gate(decision, name)


def require_past(past: Past, *, limit: float) -> None:
    """Pass if nothing was lost against the earlier runs of the same key by more than ``limit``.

    :raises GateFailed: if accept length or tok/s surely is lower by at least that much.
    :raises Inconclusive: if the interval allows both, or the past could not be asked.
    """
    check = past.check(limit=limit)
    if check.result != "pass":
        raise _kind(check)(
            _says(check),
            culprit="drafter-file" if past.changes else "machine",
            fix="`specprobe history` shows the runs; a new level is accepted by starting a new history.jsonl",
            detail=check.reason or "",
        )


def _says(check: GateCheck) -> str:
    return f"gate {check.name}: {check.result}; saw {check.seen}, wanted {check.wanted}"


def _kind(check: GateCheck) -> type[Inconclusive | GateFailed]:
    return Inconclusive if check.result == "inconclusive" else GateFailed
