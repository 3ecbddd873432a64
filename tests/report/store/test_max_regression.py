"""``max_regression`` over simulated histories: what it can resolve, how often it errs, what it sees of a drift.

What the how-to says of it comes from here; ``pytest -rP`` shows the rates.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_specprobe.report.store.history import Run, keep
from pytest_specprobe.report.store.past import hold
from pytest_specprobe.report.store.regression import LAST, compare, judged
from tests.support.simulated_history import World

HOW_TO = (Path(__file__).parents[3] / "docs" / "how-to.md").read_text()
LIMIT = 0.10
TRIALS = 40
NOISE, REFERENCES = (0.005, 0.01, 0.02, 0.04), (1, 5, 10)


def told(line: str) -> None:
    """Show a rate with ``pytest -rP``."""
    print(line)  # noqa: T201 - the rates are to be read


def walk(
    world: World, seed: int, folder: Path, *, limit: float, count: int, speed: Callable[[int], float] = lambda at: 1.0
) -> list[tuple[str, int]]:
    """The gate's result of each run of a history that began empty, and how many references it had."""
    rng, kept, found = np.random.default_rng([seed, count]), list[Run](), list[tuple[str, int]]()
    for at in range(count):
        run = world.run(rng, at, speed=speed(at))
        past = hold(run, kept, limit=limit)
        result = past.check(limit=limit).result
        found.append((result, len(kept)))
        if keep(replace(run, gate=result), path=folder / f"{seed}.jsonl", unsure=past.compared):
            kept.append(run)
    return found


@pytest.mark.parametrize(("noise", "limit"), [(0.005, 0.05), (0.02, 0.05), (0.01, LIMIT), (0.02, LIMIT)])
def test_an_unchanged_drafter_never_locks_itself(tmp_path: Path, noise: float, limit: float) -> None:
    """A limit that two runs cannot resolve leaves the first runs open; it must not leave all others open."""
    counts: dict[str, Counter[str]] = {}
    for seed in range(4):
        for result, references in walk(World(runs=noise), seed, tmp_path, limit=limit, count=22):
            counts.setdefault("1" if references < 2 else "2-9" if references < LAST else "10", Counter())[result] += 1
    told(f"runs differ by {noise:.1%}, limit {limit:.0%}: { ({name: dict(c) for name, c in counts.items()}) }")
    failed = sum(found["fail"] for found in counts.values())
    assert failed == 0, "as the how-to says: of 88 runs"
    assert counts["10"].total() >= 40, "open runs become references"
    assert counts["10"]["pass"] / counts["10"].total() > (0.95 if limit == LIMIT else 0.8 if noise < 0.01 else 0.3)


@pytest.mark.parametrize(("noise", "starts"), [(0.005, 0), (0.02, 0), (0.01, 15)])
def test_a_slow_drift_is_flagged(tmp_path: Path, noise: float, starts: int) -> None:
    """1 % slower each run: the last ten sink with it, the first ten do not."""
    first = []
    for seed in range(3):
        found = walk(
            World(runs=noise), seed, tmp_path, limit=LIMIT, count=starts + 21,
            speed=lambda at: 0.99 ** max(at - starts, 0),
        )  # fmt: skip
        first.append(next((at - starts for at, (result, _) in enumerate(found) if result == "fail"), math.inf))
    told(f"runs differ by {noise:.1%}, 1 % slower each run from {starts} on: first failure after {first} runs")
    assert max(first) <= 20
    assert "fails within twenty runs" in " ".join(HOW_TO.split())


def test_a_drift_back_from_a_faster_level_is_not_seen(tmp_path: Path) -> None:
    """As the how-to says: the first runs are slower than it ever gets."""
    found = walk(
        World(runs=0.005), 1, tmp_path, limit=LIMIT, count=40,
        speed=lambda at: 1.0 if at < LAST + 1 else 1.25 * 0.99 ** (at - LAST - 1),
    )  # fmt: skip
    assert "fail" not in {result for result, _ in found}
    assert "faster level" in HOW_TO


def test_a_step_is_flagged_and_stays_out(tmp_path: Path) -> None:
    for seed in range(3):
        found = walk(World(runs=0.02), seed, tmp_path, limit=LIMIT, count=12, speed=lambda at: 1.0 if at < 4 else 0.8)
        assert [result for result, _ in found[4:]] == ["fail"] * 8
        assert found[-1][1] == 4


def resolved(noise: float, references: int) -> tuple[float, float]:
    """The least limit that 19 of 20 unchanged runs pass, and the loss that 9 of 10 runs fail at ``LIMIT``."""
    limits, losses = [], []
    for trial in range(TRIALS):
        *past, now = World(runs=noise).history(1000 * references + trial, references + 1)
        length, speed = (change.ratio for change in judged(compare(now, past)))
        assert length is not None
        assert speed is not None
        limits.append(1 - min(length.low, speed.low))
        # a slower run has all of the same interval, times what is left
        losses.append(1 - (1 - LIMIT) / speed.high)
    return float(np.quantile(limits, 0.95)), float(np.quantile(losses, 0.9))


def test_the_how_to_says_what_references_can_resolve() -> None:
    table = {}
    for line in HOW_TO.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.fullmatch(r"[\d.]+ %", cells[0]):
            table[float(cells[0][:-2]) / 100] = [
                tuple(int(n) / 100 for n in re.findall(r"(\d+) %", c)) for c in cells[1:]
            ]
    assert tuple(table) == NOISE
    for noise, rows in table.items():
        for references, said in zip(REFERENCES, rows, strict=True):
            limit, loss = resolved(noise, references)
            told(f"runs differ by {noise:.1%}, {references} references: limit {limit:.1%}, loss {loss:.1%}")
            assert said == pytest.approx((limit, loss), abs=0.011)


def test_the_example_is_a_limit_that_five_references_resolve() -> None:
    (example,) = re.findall(r"max_regression = ([\d.]+)", HOW_TO)
    assert resolved(0.02, 5)[0] < float(example) == LIMIT


def test_busy_runs_are_not_the_first_ones() -> None:
    """A drift is looked for among runs whose times can be compared with."""
    rng = np.random.default_rng(5)
    busy = [replace(World().run(rng, at), quiet=False, crowded=True) for at in range(LAST)]
    quiet = [World().run(rng, at) for at in range(LAST, 2 * LAST + 2)]
    assert hold(quiet[-1], (*busy, *quiet[:-2]), limit=LIMIT).drift == ()
    past = hold(quiet[-1], (*busy, *quiet[:-1]), limit=LIMIT)
    assert past.drift
    assert not any(change.noisy for change in past.drift)
