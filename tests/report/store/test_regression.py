"""Regression against simulated histories with known breaks: how often is it wrong, either way?"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.report.store.past import hold
from pytest_specprobe.report.store.regression import MINIMUM, Change, Measure, compare, judged, trend
from tests.support.simulated_history import World

TRIALS = 40
QUIET, USUAL, NOISY = World(runs=0.005), World(runs=0.015), World(runs=0.05, requests=0.15)


def told(line: str) -> None:
    """Show a rate with ``pytest -rP``: what the bounds below hold is one thing, what was seen another."""
    print(line)  # noqa: T201 - the rates are to be read with -s


def rates(world: World, references: int, *, speed: float = 1.0, accept: float = 1.0) -> dict[str, float]:
    """The share of trials in which each trend was named, of tok/s and of accept length."""
    counts: dict[str, float] = {}
    for trial in range(TRIALS):
        rng = np.random.default_rng([trial, references])
        past = [world.run(rng, at) for at in range(references)]
        now = world.run(rng, references, speed=speed, accept=accept)
        for change in compare(now, past):
            name = f"{change.measure} {change.trend}"
            counts[name] = counts.get(name, 0) + 1 / TRIALS
    return counts


@pytest.mark.parametrize(
    ("world", "references"), [(QUIET, 1), (QUIET, 10), (USUAL, 1), (USUAL, 3), (USUAL, 10), (NOISY, 10)]
)
def test_false_alarms(world: World, references: int) -> None:
    """Nothing changed: an alarm in at most 1 run of 50 (the bound is 2 of 40 trials)."""
    found = rates(world, references)
    alarms = [found.get(f"{measure} regressed", 0) for measure in ("accept_length", "tok_per_s", "speedup")]
    told(f"runs differ by {world.runs:.1%}, {references} references: false alarms {alarms}; {found}")
    assert max(alarms) <= 2 / TRIALS


def test_a_loss_of_exactly_the_limit_fails_no_gate() -> None:
    """The one-sided error of a 95 % interval is 2.5 %; 3 of 40 would happen in 8 % of such tests, 4 in 2 %."""
    world, failed = World(runs=0.01), 0
    for trial in range(TRIALS):
        rng = np.random.default_rng([trial, 77])
        past = [world.run(rng, at) for at in range(5)]
        now = world.run(rng, 5, speed=1 - 0.10)
        failed += hold(now, past, limit=0.10).check(limit=0.10).result == "fail"
    told(f"a loss of the limit itself failed {failed} of {TRIALS}")
    assert failed <= 3


@pytest.mark.parametrize(
    ("world", "references", "slower", "least"),
    [
        (QUIET, 1, 0.15, 0.95),
        (QUIET, 5, 0.10, 0.85),
        (USUAL, 3, 0.15, 0.90),
        (USUAL, 8, 0.12, 0.85),
        (NOISY, 8, 0.25, 0.85),
    ],
)
def test_misses(world: World, references: int, slower: float, least: float) -> None:
    found = rates(world, references, speed=1 - slower)
    caught = found.get("tok_per_s regressed", 0)
    told(f"runs differ by {world.runs:.1%}, {references} references: {slower:.0%} slower missed {1 - caught:.0%}")
    assert caught >= least
    assert found.get("tok_per_s improved", 0) == 0
    assert found.get("accept_length regressed", 0) <= 2 / TRIALS, "the drafter did not change"


def test_a_drop_of_acceptance_is_caught() -> None:
    found = rates(USUAL, 5, accept=0.75)
    told(f"acceptance a quarter lower: {found}")
    assert found["accept_length regressed"] >= 0.95


def test_an_unchanged_run_is_called_steady_where_runs_agree() -> None:
    found = rates(World(runs=0.003, requests=0.01), 8)
    assert found["tok_per_s steady"] >= 0.9
    assert found["accept_length steady"] >= 0.9


def test_a_slow_drift_is_seen_against_the_first_runs() -> None:
    """0.5 % slower each run: no run is much slower than the last ten, the newest is than the first."""
    rng = np.random.default_rng(3)
    runs = [USUAL.run(rng, at, speed=0.995**at) for at in range(40)]
    changes = {change.measure: change for change in compare(runs[-1], runs[:10])}
    assert changes["tok_per_s"].trend == "regressed"
    assert changes["accept_length"].trend != "regressed"


def test_a_drift_does_not_hide_in_its_own_spread() -> None:
    rng = np.random.default_rng(4)
    runs = [QUIET.run(rng, at, speed=0.98**at) for at in range(11)]
    change = next(c for c in compare(runs[-1], runs[:-1]) if c.measure == "tok_per_s")
    assert change.trend == "regressed"
    assert change.spread < 0.025


def test_a_slow_machine_slows_the_baseline_too_and_leaves_the_speedup() -> None:
    rng = np.random.default_rng(5)
    past = [QUIET.run(rng, at) for at in range(5)]
    now = QUIET.run(rng, 5, speed=0.7)
    rows = [replace(row, baseline_decode_s=(row.baseline_decode_s or 0) / 0.7) for row in now.rows]
    found = {c.measure: c.trend for c in compare(replace(now, rows=tuple(rows)), past)}
    assert found["tok_per_s"] == found["baseline_tok_per_s"] == "regressed"
    assert found["speedup"] != "regressed"


def test_only_shared_prompts_count() -> None:
    """A run of easy prompts alone is not faster than one of all."""
    whole, other = USUAL.history(6, 2)
    easy = replace(other, rows=tuple(sorted(other.rows, key=lambda r: r.decode_s or 0)[:12]))
    change = compare(easy, [whole])[1]
    assert change.measure == "tok_per_s"
    assert change.ratio is not None
    assert change.ratio.n == 12
    assert change.trend != "improved"


def test_nothing_shared_cannot_tell() -> None:
    one, other = USUAL.history(8, 2)
    foreign = replace(other, rows=tuple(replace(row, id=f"x{row.id}") for row in other.rows))
    changes = compare(foreign, [one])
    assert {c.measure for c in changes} == {"accept_length", "tok_per_s"}
    assert trend(changes) == "cannot tell"
    assert all(c.ratio is None for c in changes)


def test_a_run_without_a_baseline_has_no_speedup_to_compare() -> None:
    one, other = USUAL.history(9, 2)
    bare = replace(
        other, rows=tuple(replace(row, baseline_tokens=None, baseline_decode_s=None) for row in other.rows)
    )
    assert [c.measure for c in compare(bare, [one])] == ["accept_length", "tok_per_s"]


@pytest.mark.parametrize("minimum", [0, 1, -0.1])
def test_the_minimum_is_a_share(minimum: float) -> None:
    one, other = USUAL.history(10, 2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        compare(one, [other], minimum=minimum)
    with pytest.raises(ValueError, match="nothing to compare"):
        compare(one, [])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.8, 1.0, 1.3]))
def test_turned_around_it_is_the_inverse(seed: int, speed: float) -> None:
    rng = np.random.default_rng(seed)
    one, other = USUAL.run(rng, 0), USUAL.run(rng, 1, speed=speed)
    for there, back in zip(compare(one, [other]), compare(other, [one]), strict=True):
        assert there.ratio is not None
        assert back.ratio is not None
        assert there.ratio.value == pytest.approx(1 / back.ratio.value)
        assert there.ratio.low <= there.ratio.value <= there.ratio.high


def change(measure: Measure, value: float, low: float, high: float) -> Change:
    return Change(measure=measure, ratio=Estimate(value, low, high, 30), references=3, minimum=MINIMUM, spread=0.01)


@pytest.mark.parametrize(
    ("value", "low", "high", "says"),
    [
        (0.90, 0.85, 0.949, "regressed"),
        (0.90, 0.85, 0.96, "cannot tell"),  # surely slower, and not surely by what counts
        (0.945, 0.90, 0.99, "cannot tell"),
        (0.90, 0.85, 0.95, "cannot tell"),  # the minimum itself is allowed
        (0.90, 0.80, 1.01, "cannot tell"),  # may be nothing
        (0.97, 0.96, 0.98, "steady"),  # surely slower, by too little to count
        (0.94, 0.93, 0.949, "regressed"),
        (1.00, 0.94, 1.03, "cannot tell"),
        (1.00, 0.96, 1.04, "steady"),
        (1.10, 1.02, 1.20, "cannot tell"),
        (1.10, 1.051, 1.20, "improved"),
        (1.04, 1.01, 1.07, "cannot tell"),
    ],
)
def test_trend_by_interval_and_minimum(value: float, low: float, high: float, says: str) -> None:
    assert change("tok_per_s", value, low, high).trend == says


def test_the_worst_of_what_is_judged_decides() -> None:
    worse, better = change("tok_per_s", 0.8, 0.7, 0.9), change("accept_length", 1.2, 1.1, 1.3)
    faster = change("tok_per_s", 1.2, 1.1, 1.3)
    assert trend([worse, better]) == "regressed"
    assert trend([faster, better]) == "improved"
    for aside in ("baseline_tok_per_s", "speedup"):
        assert trend([change(aside, 0.8, 0.7, 0.9), faster, better]) == "improved", f"{aside} is not judged"


def test_the_speedup_stands_in_for_times_of_a_busy_machine() -> None:
    length, busy = change("accept_length", 1.0, 0.99, 1.01), replace(change("tok_per_s", 0.5, 0.4, 0.6), noisy=True)
    speedup = change("speedup", 0.8, 0.7, 0.9)
    assert trend([length, busy]) == "cannot tell"
    assert trend([length, busy, speedup]) == "regressed"
    assert judged([length, busy, speedup]) == (length, speedup)


def test_one_slow_run_among_the_references_hides_no_other() -> None:
    rng = np.random.default_rng(11)
    past = [USUAL.run(rng, at, speed=0.7 if at == 3 else 1.0) for at in range(9)]
    change = next(c for c in compare(USUAL.run(rng, 9, speed=0.80), past) if c.measure == "tok_per_s")
    assert change.trend == "regressed"
    assert change.spread < 0.06


def test_times_of_a_busy_machine_are_not_compared() -> None:
    past = USUAL.history(12, 4)
    slow = USUAL.run(np.random.default_rng(13), 4, speed=0.5)
    busy = {c.measure: c.trend for c in compare(replace(slow, quiet=False), past)}
    assert busy["tok_per_s"] == "cannot tell"
    assert busy["accept_length"] == "steady", "what is accepted does not depend on the clock"
    assert busy["speedup"] == "regressed", "drafter and baseline take turns: one of them was really slower"


def test_on_a_crowded_machine_nothing_timed_is_compared() -> None:
    """Seen for real: the same drafter, speedup 1.16, then 0.74 [0.52, 0.97], beside eight processes on two cores."""
    past = USUAL.history(12, 4)
    slow = replace(USUAL.run(np.random.default_rng(13), 4, speed=0.5), quiet=False, crowded=True)
    assert {c.measure: c.trend for c in compare(slow, past)} == {
        "accept_length": "steady",
        "tok_per_s": "cannot tell",
        "speedup": "cannot tell",
        "baseline_tok_per_s": "cannot tell",
    }
    assert trend(compare(slow, past)) == "cannot tell"
    quiet = USUAL.run(np.random.default_rng(13), 4, speed=0.5)
    change = next(c for c in compare(quiet, [slow, *past]) if c.measure == "speedup")
    assert change.references == 4
    assert next(c for c in compare(quiet, [slow]) if c.measure == "speedup").noisy


def test_a_busy_run_is_nobodys_reference() -> None:
    quiet = USUAL.history(14, 4)
    slow = [replace(USUAL.run(np.random.default_rng([15, at]), at, speed=0.5), quiet=False) for at in range(4, 9)]
    change = next(
        c for c in compare(USUAL.run(np.random.default_rng(16), 9), [*quiet, *slow]) if c.measure == "tok_per_s"
    )
    assert change.references == 4
    assert change.trend != "improved"
    only = next(c for c in compare(quiet[0], slow) if c.measure == "tok_per_s")
    assert only.noisy
    assert only.trend == "cannot tell"
