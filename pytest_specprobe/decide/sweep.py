"""What a sweep says: a verdict per setting, the best one, and which settings cannot win whatever they accept.

Invariant: whether a drafter reads its target does not depend on the setting, so that part of every verdict is the
probe's own; payment and headroom are the setting's, at the sweep's simultaneous intervals.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_specprobe.decide.breakeven import BreakEven, measured_break_even
from pytest_specprobe.decide.evidence import Evidence
from pytest_specprobe.decide.predicted import Predicted
from pytest_specprobe.decide.verdict import decide
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.measure.sweep import Arm, Sweep, simultaneous
from pytest_specprobe.profiles import Gate, Speculation

LOWER_ESTIMATE = (
    "1 + the acceptance of its positions on the longer chain, which a chain of its own beats by up to 10 %; tok/s "
    "between two bounds, not measured"
)


def cannot_win(setting: Speculation, arms: Sequence[Arm]) -> str | None:
    """Say why a setting loses to one already measured even if every draft is accepted; None if it may win.

    A round of ``setting`` lasts at least as long as one of the longest measured chain that is no deeper: it runs as
    many draft steps and verifies as many tokens. So its speedup is at most (depth + 1) / B of that chain. It is
    skipped only if that bound, at B's lower end, is below the lower end of another setting's speedup.
    """
    chains = [arm for arm in arms if arm.setting.eagle_topk == 1 and arm.setting.depth <= setting.depth]
    paid = [arm for arm in arms if arm.throughput.speedup is not None]
    if not chains or not paid:
        return None
    chain = max(chains, key=lambda arm: arm.setting.depth)
    best = max(paid, key=lambda arm: arm.throughput.speedup.low if arm.throughput.speedup else 0.0)
    length, speedup = chain.throughput.break_even_length, best.throughput.speedup
    if length is None or speedup is None or (setting.depth + 1) / length.low >= speedup.low:
        return None
    return (
        f"not run: at most {(setting.depth + 1) / length.low:.2f} x even if every draft were accepted (rounds at "
        f"least as long as at {chain.setting}), and {best.setting} surely reaches {speedup.low:.2f}"
    )


def sweep_rows(
    sweep: Sweep, *, probe: Acceptance, predicted: Sequence[Predicted], gate: Gate
) -> list[dict[str, Any]]:
    """Return the ``sweep`` list of report.json: one row per setting, the own one first, then as asked for.

    :param probe: the acceptance pass, which tells whether the drafter reads its target.
    :param predicted: brackets of chains shorter than the own one, for settings that nobody could run.
    """
    measured = {arm.setting: arm for arm in sweep.arms}
    brackets = {bracket.num_steps: bracket for bracket in predicted}
    rows = []
    for setting in sweep.settings:
        arm = measured.get(setting)
        if arm is not None:
            rows.append(_measured(arm, sweep, probe, gate))
        else:
            bracket = brackets.get(setting.num_steps) if setting.eagle_topk == 1 else None
            rows.append(_unmeasured(setting, sweep.skipped, bracket))
    return rows


def sweep_best(sweep: Sweep) -> dict[str, Any]:
    """Return ``sweep_best`` of report.json: the fastest setting, and how sure that is."""
    best = sweep.best
    return {
        "setting": str(best.setting),
        "own": str(sweep.own),
        "over_own": best.over_own and best.over_own.to_json(),
        "speedup": best.throughput.speedup and best.throughput.speedup.to_json(),
        "surely_better": sweep.surely_better,
        "settings": len(sweep.settings),
        "concurrency": best.throughput.concurrency,
        "confidence": simultaneous(len(sweep.settings)),
        "parity": sweep.parity and sweep.parity.to_json(),
        "fallback": sweep.fallback,
    }


def _measured(arm: Arm, sweep: Sweep, probe: Acceptance, gate: Gate) -> dict[str, Any]:
    point = _break_even(arm, gate)
    speed, acceptance = arm.throughput, arm.acceptance
    seen = Evidence(
        accept_length=acceptance.accept_length,
        margin=probe.margin,
        accepted=acceptance.accepted,
        rounds=acceptance.rounds,
        blind=probe.blind is not None,
        tok_per_s=speed.tok_per_s,
        speedup=speed.speedup,
        headroom=None if point is None else point.headroom_interval,
        break_even=point,
    )
    decision = decide(seen.without_times() if sweep.crowded else seen, gate=gate)
    return {
        "setting": str(arm.setting),
        "how": arm.how,
        "note": _note(arm, sweep),
        "own": arm.setting == sweep.own,
        "best": arm is sweep.best,
        "apart": arm.apart,
        "verdict": decision.verdict,
        "candidates": list(decision.candidates),
        "accept_length": acceptance.accept_length.to_json(),
        "max_accept_length": arm.setting.depth + 1,
        "by_position": [e.to_json() for e in acceptance.by_position],
        "histogram": list(acceptance.histogram),
        "tok_per_s": speed.tok_per_s.to_json(),
        "speedup": speed.speedup and speed.speedup.to_json(),
        "over_own": arm.over_own and arm.over_own.to_json(),
        "break_even": speed.break_even_length and speed.break_even_length.to_json(),
        "round_s": speed.round_s,
        "bracket": None,
    }


def _unmeasured(
    setting: Speculation, skipped: Mapping[Speculation, str], bracket: Predicted | None
) -> dict[str, Any]:
    why = skipped.get(setting, "not run")
    return {
        "setting": str(setting),
        "how": "skipped" if bracket is None else "lower-estimate",
        "note": why if bracket is None else f"{why}: {LOWER_ESTIMATE}",
        "own": False,
        "best": False,
        "apart": False,
        "verdict": None,
        "candidates": [],
        "accept_length": None,
        "max_accept_length": setting.depth + 1,
        "by_position": [],
        "histogram": [],
        "tok_per_s": None,
        "speedup": None,
        "over_own": None,
        "break_even": None,
        "round_s": None,
        "bracket": bracket and bracket.to_json(),
    }


def _break_even(arm: Arm, gate: Gate) -> BreakEven | None:
    length = arm.throughput.break_even_length
    if length is None:
        return None
    return measured_break_even(length, round_s=arm.throughput.round_s, depth=arm.setting.depth, p_reach=gate.p_reach)


def _note(arm: Arm, sweep: Sweep) -> str:
    notes = ["what it is compared with did not fit beside it and ran at another time"] if arm.apart else []
    if arm.how == "one-boot":
        parity = sweep.parity
        if parity is None:
            notes.append("speed of a shared boot, which was not compared with a boot of its own")
        else:
            ratio = f"{parity.ratio.value:.3f} [{parity.ratio.low:.3f}, {parity.ratio.high:.3f}] x"
            shown = "as fast as" if parity.shown else "speed of a shared boot, not shown to equal"
            notes.append(f"{shown} a boot of its own: {ratio} at {parity.setting}")
    return "; ".join(notes)
