"""The gate: what a profile asks of a drafter, each condition read at an interval's bound.

Invariant: a condition passes only if its whole interval does, fails only if its whole interval does, and is
inconclusive otherwise; the gate is as bad as its worst condition.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_specprobe.decide.evidence import MIN_PROMPTS, Evidence
from pytest_specprobe.measure.request import MIN_STRATUM, Estimate
from pytest_specprobe.profiles import Gate, Verdict

Result = Literal["pass", "fail", "inconclusive"]
GateResult = Literal["pass", "fail", "inconclusive", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One condition of the gate, named by its profile key: what was asked, what was seen, and how it ended.

    ``reason`` is the sentence for ``reasons`` where the condition does not pass; None where the verdict's say it.
    """

    name: str
    result: Result
    seen: str
    wanted: str
    reason: str | None = None


def gate_checks(seen: Evidence, gate: Gate, verdict: Verdict, candidates: Sequence[Verdict]) -> Iterator[GateCheck]:
    """Yield every condition of the gate.

    ``min_accept_length`` is strict (1.0 can be reached by a drafter of which nothing is accepted); a speedup or tok/s
    of 0 is not asked for and passes unmeasured.
    """
    yield _above("min_accept_length", seen.accept_length, gate.min_accept_length)
    for workload, wanted in sorted(gate.min_accept_length_by_workload.items()):
        yield _of_stratum(f"min_accept_length_by_workload.{workload}", seen.by_workload.get(workload), wanted)
    shown: Result = "fail" if tuple(candidates) == ("uncorrelated",) else "inconclusive"
    shown = "pass" if seen.reads_target else shown
    margins = show(seen.margin)
    if seen.margin.low <= 0 and seen.length_margin is not None:
        margins += f"; accept length {show(seen.length_margin)}"
    yield GateCheck(name="p1_margin", result=shown, seen=margins, wanted="above 0")
    for name, estimate, wanted in (
        ("min_speedup", seen.speedup, gate.min_speedup),
        ("min_tok_per_s", seen.tok_per_s, gate.min_tok_per_s),
    ):
        if wanted > 0:
            yield _above(name, estimate, wanted)
    yield GateCheck(
        name="min_prompts",
        result="inconclusive" if seen.few_prompts and verdict == "undecided" else "pass",
        seen=str(seen.accept_length.n),
        wanted=f"at least {MIN_PROMPTS}",
    )
    yield _verdict(gate, verdict, candidates)


def missed(checks: Iterable[GateCheck]) -> tuple[str, ...]:
    """Return the sentences of the conditions that do not pass and have one."""
    return tuple(check.reason for check in checks if check.result != "pass" and check.reason)


def worst(results: Iterable[Result]) -> Result:
    """Return ``fail`` if any condition fails, else ``inconclusive`` if any is, else ``pass``."""
    found = set(results)
    return "fail" if "fail" in found else "inconclusive" if "inconclusive" in found else "pass"


def show(estimate: Estimate | None) -> str:
    """Return an estimate as text: value and interval."""
    return "not measured" if estimate is None else f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


def _above(name: str, estimate: Estimate | None, wanted: float) -> GateCheck:
    result: Result = "inconclusive"
    if estimate is not None and estimate.low > wanted:
        result = "pass"
    elif estimate is not None and estimate.high <= wanted:
        result = "fail"
    seen, asked = show(estimate), f"above {wanted:g}"
    reason = f"the gate's {name}: saw {seen}, wanted {asked}"
    return GateCheck(name=name, result=result, seen=seen, wanted=asked, reason=reason)


def _of_stratum(name: str, estimate: Estimate | None, wanted: float) -> GateCheck:
    """Return the condition on part of the prompts: too few of them pass and fail nothing."""
    check = _above(name, estimate, wanted)
    if estimate is None or estimate.n >= MIN_STRATUM:
        return check
    seen = f"{estimate.value:.3g} of {estimate.n} prompts, fewer than {MIN_STRATUM}"
    return replace(
        check, result="inconclusive", seen=seen, reason=f"the gate's {name}: saw {seen}, wanted {check.wanted}"
    )


def _verdict(gate: Gate, verdict: Verdict, candidates: Sequence[Verdict]) -> GateCheck:
    accepted = [candidate in gate.accept_verdicts for candidate in candidates]
    result: Result = "inconclusive" if any(accepted) else "fail"
    if verdict in gate.accept_verdicts or all(accepted):
        result = "pass"
    names = verdict if verdict != "undecided" else f"undecided: {' or '.join(candidates)}"
    return GateCheck(
        name="accept_verdicts", result=result, seen=names, wanted=" or ".join(gate.accept_verdicts) or "none"
    )
