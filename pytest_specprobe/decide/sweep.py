"""What a sweep says: a verdict per setting, the best one, and which settings cannot win whatever they accept.

Invariant: whether a drafter reads its target does not depend on the setting, so that part of every verdict is the
probe's own; payment and headroom are the setting's, at the sweep's simultaneous intervals.
"""

from collections.abc import Sequence

from pytest_specprobe.decide.breakeven import BreakEven, measured_break_even
from pytest_specprobe.decide.evidence import Evidence
from pytest_specprobe.decide.verdict import Decision, decide
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.measure.sweep import Arm, Sweep
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


def decide_arm(arm: Arm, sweep: Sweep, probe: Acceptance, gate: Gate) -> Decision:
    """Decide on one measured setting.

    :param probe: the acceptance pass, which tells whether the drafter reads its target.
    """
    point = _break_even(arm, gate)
    speed, acceptance = arm.throughput, arm.acceptance
    seen = Evidence(
        accept_length=acceptance.accept_length,
        margin=probe.margin,
        accepted=acceptance.accepted,
        rounds=acceptance.rounds,
        blind=probe.blind is not None,
        length_margin=probe.length_margin,
        tok_per_s=speed.tok_per_s,
        speedup=speed.speedup,
        end_to_end=speed.end_to_end_speedup,
        headroom=None if point is None else point.headroom_interval,
        break_even=point,
    )
    return decide(seen.without_times() if sweep.crowded else seen, gate=gate)


def _break_even(arm: Arm, gate: Gate) -> BreakEven | None:
    length = arm.throughput.break_even_length
    if length is None:
        return None
    return measured_break_even(length, round_s=arm.throughput.round_s, depth=arm.setting.depth, p_reach=gate.p_reach)


def note(arm: Arm, sweep: Sweep) -> str:
    """Say how far the speed of a measured setting is to be trusted; empty if there is nothing to say."""
    notes = ["what it is compared with did not fit beside it and ran at another time"] if arm.apart else []
    if arm.how == "one-boot":
        parity = sweep.parity
        if parity is None:
            notes.append("speed of a shared boot, which was not compared with a boot of its own")
        else:
            ratio = f"{parity.ratio.value:.3f} [{parity.ratio.low:.3f}, {parity.ratio.high:.3f}] x"
            shown = "as fast as" if parity.shown else "speed of a shared boot, not shown to equal"
            notes.append(f"{shown} a boot of its own: {ratio} at {parity.setting}")
        if not sweep.comparable(arm):
            notes.append(f"to time it, sweep it alone: --specprobe-sweep={arm.setting} boots it on its own")
    return "; ".join(notes)
