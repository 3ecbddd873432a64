"""Would fine-tuning ever pay? What a drafter of this depth would have to reach, and how far published ones got.

Invariant: bounds, not promises. Published accept lengths are facts of other targets, engines and texts; they show
what drafters of this depth have reached somewhere, never what this one will.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pytest_specprobe.decide.breakeven import MIN_HEADROOM, BreakEven, chain_length, required_acceptance
from pytest_specprobe.reading import Bounds, parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published accept length of a chain drafter, tokens per round, bonus token counted."""

    target: str
    drafter: str
    engine: str
    num_steps: int
    eagle_topk: int
    num_draft_tokens: int
    batch: int | None
    workload: str
    accept_length: float
    speedup: float | None
    source: str

    def __str__(self) -> str:
        return f"{self.drafter} on {self.target}, {self.workload}: {self.accept_length:.2f} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What it takes to reach one verdict: an accept length, and the acceptance at every position that gives it.

    ``acceptance`` is None where no acceptance of this depth gives it.
    """

    verdict: str
    accept_length: float
    acceptance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What training this drafter could come to at this round time.

    ``acceptance`` is the acceptance at every position that would give the measured accept length. ``goals`` are the
    accept lengths for breaking even and for a speedup of ``min_headroom``. ``round_s_for_training`` is the round time
    below which headroom is enough (the way out of ``verify-bound`` that no training opens). ``published`` are the
    facts of this depth, best first; ``published_at_break_even`` is how many of them reach break-even.
    """

    accept_length: float
    acceptance: float | None
    goals: tuple[Goal, ...]
    round_s: float
    round_s_for_training: float
    published: tuple[Published, ...]
    published_at_break_even: int

    def lines(self) -> tuple[str, ...]:
        """Return the outlook in sentences, for a terminal."""
        now = "" if self.acceptance is None else f", as {self.acceptance:.0%} acceptance at every position gives"
        told = [f"now: accept length {self.accept_length:.2f}{now}"]
        for goal in self.goals:
            how = "out of reach" if goal.acceptance is None else f"{goal.acceptance:.0%} at every position"
            told.append(f"for {goal.verdict}: accept length {goal.accept_length:.2f}, {how}")
        if self.round_s > self.round_s_for_training:
            told.append(
                f"training is worth it below a round time of {1000 * self.round_s_for_training:.1f} ms; "
                f"it is {1000 * self.round_s:.1f} ms"
            )
        if self.published:
            worst, best = self.published[-1].accept_length, self.published[0].accept_length
            told.append(
                f"published drafters of this depth: {worst:.2f} to {best:.2f}, {self.published_at_break_even} of "
                f"{len(self.published)} at or above this break-even; a bound, not a promise"
            )
        else:
            told.append("no published drafter of this depth is on record")
        return tuple(told)


def outlook(point: BreakEven, *, accept_length: float, min_headroom: float = MIN_HEADROOM) -> Outlook:
    """Return what training could come to.

    :param point: the measured break-even point.
    :param accept_length: the measured accept length, strict.
    :param min_headroom: the gate's; also the speedup of the second goal.
    """
    depth = point.max_accept_length - 1
    goals = [
        Goal(verdict=name, accept_length=length, acceptance=required_acceptance(length, depth=depth))
        for name, length in (
            ("profitable", point.accept_length),
            (f"a speedup of {min_headroom:g}", min_headroom * point.accept_length),
        )
    ]
    facts = sorted((f for f in published() if f.num_steps == depth), key=lambda f: -f.accept_length)
    reach = chain_length(point.p_reach, depth=depth)
    return Outlook(
        accept_length=accept_length,
        acceptance=required_acceptance(accept_length, depth=depth),
        goals=tuple(goals),
        round_s=point.round_s,
        round_s_for_training=point.round_s * reach / (min_headroom * point.accept_length),
        published=tuple(facts),
        published_at_break_even=sum(f.accept_length >= point.accept_length for f in facts),
    )


@cache
def published() -> tuple[Published, ...]:
    """Return all published accept lengths on record (``published.json``)."""
    text = files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    data = parse_json(text, Bounds(size=1 << 20))
    return tuple(Published(**fact) for fact in data["facts"])
