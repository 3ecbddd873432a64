"""How a shipped test turns one condition of the gate into pass, failure or inconclusive."""

from pytest_specprobe.decide.verdict import Decision
from pytest_specprobe.errors import GateFailed, Inconclusive


def require_gate(decision: Decision, name: str) -> None:
    """Pass if the gate's condition ``name`` holds, or was not asked for.

    :raises GateFailed: if it does not hold.
    :raises Inconclusive: if the interval allows both.
    """
    for check in decision.gate_checks:
        if check.name != name or check.result == "pass":
            continue
        kind = Inconclusive if check.result == "inconclusive" else GateFailed
        reasons = "\n".join(f"  {reason}" for reason in decision.reasons)
        raise kind(
            f"gate {name}: {check.result}; saw {check.seen}, wanted {check.wanted}",
            culprit="drafter-file",
            fix=decision.next[0] if decision.next else "see the reasons",
            detail=reasons,
        )


def require_verdict(decision: Decision) -> None:
    """Pass if every verdict that the intervals allow is one that the profile accepts."""
    for name in ("min_prompts", "accept_verdicts"):
        require_gate(decision, name)
