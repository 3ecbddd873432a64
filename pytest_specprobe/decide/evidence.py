"""All that a decision looks at: intervals and counts, nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from pytest_specprobe.decide.breakeven import BreakEven
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.throughput import Throughput

MIN_PROMPTS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was measured of one drafter; None is what was not.

    ``margin`` is how far p1 is above the floor and, at the same places, above the blind control; ``length_margin`` is
    how far the accept length is above 1 + floor and the control's; ``blind`` tells if there was one; ``headroom``
    is L(p_reach) / B; ``speedup`` above 1 is the same as L above B within the throughput pass; ``end_to_end`` is that
    of whole requests, first-token time included; ``by_workload`` has the accept length of each workload with at least
    two prompts; without ``timed`` no time could be trusted.
    """

    accept_length: Estimate
    margin: Estimate
    accepted: int
    rounds: int
    blind: bool
    length_margin: Estimate | None = None
    tok_per_s: Estimate | None = None
    speedup: Estimate | None = None
    end_to_end: Estimate | None = None
    headroom: Estimate | None = None
    break_even: BreakEven | None = None
    by_workload: Mapping[str, Estimate] = field(default_factory=dict)
    timed: bool = True

    @property
    def reads_target(self) -> bool:
        """Tell whether first drafts or the accept length are shown to be above what a blind drafter reaches."""
        return self.margin.low > 0 or (self.length_margin is not None and self.length_margin.low > 0)

    @property
    def surely_blind(self) -> bool:
        """Tell whether both are shown not to be above it."""
        return self.margin.high <= 0 and (self.length_margin is None or self.length_margin.high <= 0)

    @property
    def may_pay(self) -> bool:
        """Tell whether decoding may be faster than the baseline, and whole requests may not be slower."""
        fast = self.speedup is None or self.speedup.high > 1
        return fast and (self.end_to_end is None or self.end_to_end.high >= 1)

    @property
    def may_not_pay(self) -> bool:
        """Tell whether decoding may be no faster than the baseline, or whole requests slower."""
        slow = self.speedup is None or self.speedup.low <= 1
        return slow or (self.end_to_end is not None and self.end_to_end.low < 1)

    @property
    def few_prompts(self) -> bool:
        """Tell whether there are too few prompts for any verdict that is not plain without an interval."""
        return self.accept_length.n < MIN_PROMPTS

    @property
    def undefined(self) -> tuple[str, ...]:
        """Return the names of the estimates that hold NaN or infinity: no comparison with them says anything."""
        estimates: dict[str, Estimate | None] = {
            "accept_length": self.accept_length,
            "margin": self.margin,
            "length_margin": self.length_margin,
            "tok_per_s": self.tok_per_s,
            "speedup": self.speedup,
            "end_to_end": self.end_to_end,
            "headroom": self.headroom,
            **{f"by_workload.{name}": length for name, length in self.by_workload.items()},
        }
        return tuple(
            name
            for name, estimate in estimates.items()
            if estimate is not None and not all(map(isfinite, (estimate.value, estimate.low, estimate.high)))
        )

    def without_times(self) -> "Evidence":
        """Return what is left if nothing timed can be trusted: what the target accepts depends on no clock."""
        return replace(
            self, tok_per_s=None, speedup=None, end_to_end=None, headroom=None, break_even=None, timed=False
        )


def evidence(
    acceptance: Acceptance, throughput: Throughput | None = None, break_even: BreakEven | None = None
) -> Evidence:
    """Gather what the decision looks at from the passes."""
    return Evidence(
        accept_length=acceptance.accept_length,
        margin=acceptance.margin,
        accepted=acceptance.accepted,
        rounds=acceptance.rounds,
        blind=acceptance.blind is not None,
        length_margin=acceptance.length_margin,
        tok_per_s=None if throughput is None else throughput.tok_per_s,
        speedup=None if throughput is None else throughput.speedup,
        end_to_end=None if throughput is None else throughput.end_to_end_speedup,
        headroom=None if break_even is None else break_even.headroom_interval,
        break_even=break_even,
        by_workload={n: p.accept_length for n, p in acceptance.by_workload.items() if p.accept_length is not None},
    )
