"""What accept length pays, and what it would take to get there.

Invariant: pure arithmetic on four numbers. With S the round time and D the draft depth,
B = S x baseline tok/s is the accept length at which speculation breaks even.
"""

from dataclasses import dataclass

from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.profiles import Verdict

P_REACH = 0.80
MIN_HEADROOM = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The break-even point of one target, drafter depth and machine.

    ``accept_length`` is B (tokens per round); ``max_accept_length`` D + 1; ``required_acceptance`` p*, the same at
    every position (None if B > D + 1: out of reach; 0 if B <= 1: any drafter pays); ``headroom`` L(p_reach) / B;
    ``ceiling_speedup`` (D + 1) / B; ``round_s`` S. ``accept_length_interval`` and ``headroom_interval`` are None
    where B is a bare number.
    """

    accept_length: float
    max_accept_length: int
    required_acceptance: float | None
    headroom: float
    ceiling_speedup: float
    round_s: float
    p_reach: float
    accept_length_interval: Estimate | None = None
    headroom_interval: Estimate | None = None


def break_even(*, round_s: float, baseline_tok_per_s: float, depth: int, p_reach: float = P_REACH) -> BreakEven:
    """Return the break-even point.

    :param round_s: S, seconds per draft-and-verify round (accept length / tok/s).
    :param baseline_tok_per_s: tok/s of one stream without speculation.
    :param depth: D, the most drafts one round can accept.
    :param p_reach: the acceptance per position that training is believed to reach.
    :raises ValueError: if a time, rate or depth is not positive, or ``p_reach`` is outside (0, 1).
    """
    if not (0 < round_s < float("inf") and 0 < baseline_tok_per_s < float("inf")):
        raise ValueError("round time and baseline must be positive")
    if not 0 < p_reach < 1:
        raise ValueError("p_reach must be between 0 and 1")
    length = round_s * baseline_tok_per_s
    return BreakEven(
        accept_length=length,
        max_accept_length=depth + 1,
        required_acceptance=required_acceptance(length, depth=depth),
        headroom=chain_length(p_reach, depth=depth) / length,
        ceiling_speedup=(depth + 1) / length,
        round_s=round_s,
        p_reach=p_reach,
    )


def measured_break_even(
    break_even_length: Estimate, *, round_s: float, depth: int, p_reach: float = P_REACH
) -> BreakEven:
    """Return the break-even point of a measured B, with its interval carried through.

    Headroom falls as B rises, so its interval is B's, turned over; no resampling is needed.
    """
    point = break_even(
        round_s=round_s, baseline_tok_per_s=break_even_length.value / round_s, depth=depth, p_reach=p_reach
    )
    reach = chain_length(p_reach, depth=depth)
    b = break_even_length
    return BreakEven(
        accept_length=b.value,
        max_accept_length=point.max_accept_length,
        required_acceptance=point.required_acceptance,
        headroom=reach / b.value,
        ceiling_speedup=point.ceiling_speedup,
        round_s=round_s,
        p_reach=p_reach,
        accept_length_interval=b,
        headroom_interval=Estimate(reach / b.value, reach / b.high, reach / b.low, b.n),
    )


def chain_length(p: float, *, depth: int) -> float:
    """Return L(p) = 1 + p + ... + p^D, the accept length if every position accepts with probability p.

    :raises ValueError: if ``depth`` is below 1 or ``p`` outside [0, 1].
    """
    if depth < 1:
        raise ValueError("the draft depth must be at least 1")
    if not 0 <= p <= 1:
        raise ValueError("an acceptance must be between 0 and 1")
    return float(sum(p**i for i in range(depth + 1)))


def required_acceptance(length: float, *, depth: int) -> float | None:
    """Return p*, which solves L(p) = ``length``: 0 if ``length`` <= 1, None if it is beyond D + 1."""
    if length > depth + 1:
        return None
    if length <= 1:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if chain_length(middle, depth=depth) < length:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def reading(point: BreakEven, accept_length: float, *, min_headroom: float = MIN_HEADROOM) -> Verdict:
    """Return what bare numbers say about paying, without any interval; a probe's verdict needs the intervals."""
    if accept_length > point.accept_length:
        return "profitable"
    return "verify-bound" if point.headroom < min_headroom else "finetune"
