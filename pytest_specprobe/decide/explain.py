"""Why a verdict is what it is, and what to do next, in sentences with their numbers."""

from collections.abc import Iterator, Sequence

from pytest_specprobe.decide.evidence import MIN_PROMPTS, Evidence
from pytest_specprobe.decide.gate import show
from pytest_specprobe.decide.prompts_needed import straddles
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.profiles import Gate, Verdict

_SAYS: dict[Verdict, str] = {
    "broken": "fix the failed check, then probe again: no number of this run says anything about the drafter",
    "uncorrelated": "do not fine-tune this drafter: train one from scratch for this target",
    "profitable": "ship it",
    "verify-bound": "no drafter of this depth pays well at this round time: make the verify step faster, or try "
    "other steps and topk, before any training",
    "finetune": "fine-tuning can pay",
    "undecided": "not decided",
}
_CONTROL = (
    "run the blind control, which tells whether it reads its target: --specprobe-blind boots it; beside an attached "
    'server none is booted, so accept "uncorrelated" there or probe a server of its own'
)
_SHORT = "it pays, but less than the gate asks: see the reasons"


def reasons(seen: Evidence, gate: Gate, verdict: Verdict, candidates: Sequence[Verdict]) -> Iterator[str]:
    """Yield what decided, the verdict's own reason first."""
    if seen.margin.low <= 0:
        yield _margin(seen)
    if verdict != "uncorrelated" and seen.timed:
        yield from _payment(seen, gate)
    if verdict == "undecided" and seen.few_prompts:
        yield (
            f"{seen.accept_length.n} prompts are too few for a verdict ({MIN_PROMPTS} needed): "
            "intervals of so few are not to be trusted"
        )
    if verdict == "undecided":
        yield f"still possible: {', '.join(candidates)}"
    if not seen.blind:
        stands = "; it pays whatever it reads" if verdict == "profitable" else ""
        yield (
            "not shown to read hidden states: no blind control was run, so p1 is compared with the floor alone"
            f"{stands}"
        )


def next_steps(
    seen: Evidence, verdict: Verdict, candidates: Sequence[Verdict], more: int | None, *, short: bool = False
) -> Iterator[str]:
    """Yield what to do next, the first thing first; ``short``: a number is not what the gate asks for."""
    if verdict == "undecided":
        yield from _settling(seen, candidates, more)
        return
    yield _SHORT if verdict == "profitable" and short else _SAYS[verdict]
    if verdict == "uncorrelated":
        if seen.accepted == 0:
            yield "every check is green and nothing is accepted: probe it on the target it was trained for"
        elif seen.margin.value > 0 and more is not None:
            yield f"if it is worth knowing, about {more} more prompts would show whether the small margin is real"
    if verdict == "finetune" and seen.break_even is not None and seen.break_even.required_acceptance is not None:
        point = seen.break_even
        yield (
            f"to pay it must reach an accept length of {point.accept_length:.2f} of at most "
            f"{point.max_accept_length}: {point.required_acceptance:.0%} acceptance at every position"
        )


def _settling(seen: Evidence, candidates: Sequence[Verdict], more: int | None) -> Iterator[str]:
    """Yield what would settle an undecided verdict."""
    if not seen.blind and "finetune" in candidates:
        yield _CONTROL
    if not seen.timed:
        return
    if seen.speedup is None:
        yield (
            "give a baseline: --specprobe-baseline=boot or stored, or a number in tok/s; beside an attached "
            "server a number, or the URL of one without speculation"
        )
    elif more is not None:
        yield f"about {more} more prompts of the same kind would probably settle it"
    elif len(candidates) > 2 or not _control_settles(seen, candidates):
        yield "too close to a threshold for more prompts to settle: treat the candidates as equal"


def _control_settles(seen: Evidence, candidates: Sequence[Verdict]) -> bool:
    """Tell whether nothing but the missing blind control keeps ``uncorrelated`` among the candidates."""
    return not seen.blind and seen.margin.low > 0 and "uncorrelated" in candidates


def _margin(seen: Evidence) -> str:
    rival = "the blind control and the floor" if seen.blind else "the floor"
    if seen.accepted == 0:
        return f"nothing at all was accepted in {seen.rounds} rounds, with every check green: the pair or the engine"
    how = "is not above" if seen.margin.high <= 0 else "is not shown to be above"
    told = f"first-position acceptance {how} {rival}: margin {show(seen.margin)}"
    if seen.length_margin is None:
        return told
    joint = "but" if seen.reads_target else "and"
    return f"{told}; {joint} the accept length less what they reach is {show(seen.length_margin)}"


def _payment(seen: Evidence, gate: Gate) -> Iterator[str]:
    point, speedup = seen.break_even, seen.speedup
    if speedup is None or point is None:
        yield "no baseline, so no break-even: whether it pays is not known"
        return
    yield (
        f"speedup {show(speedup)} {_side(speedup, 1.0)} 1.0; breaking even takes an accept length of "
        f"{show(point.accept_length_interval)} of at most {point.max_accept_length}"
    )
    whole = seen.end_to_end
    if speedup.low > 1 and whole is None:
        yield "whole requests were not compared: a baseline that is a number has no first-token time"
    elif speedup.high > 1 and whole is not None and whole.low < 1:
        side = _side(whole, 1.0)
        yield f"the speedup of whole requests, first-token time included, {show(whole)}, {side} 1.0"
    if seen.may_not_pay and seen.headroom is not None:
        room = _side(seen.headroom, gate.min_headroom)
        yield (
            f"headroom at {point.p_reach:.0%} acceptance per position, {show(seen.headroom)}, {room} "
            f"{gate.min_headroom:g}"
        )


def _side(estimate: Estimate, threshold: float) -> str:
    if straddles(estimate, threshold):
        return "straddles"
    return "is above" if estimate.low > threshold else "is below"
