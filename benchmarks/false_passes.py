"""How often does a gate pass what it should not? Simulated probes whose truth is known, no server.

Run: ``python -m benchmarks.false_passes``. Prints one line per fault: what was simulated, how many of the runs
passed or were called what they are not, and the same figure before the fault was mended. The simulations are those
of the tests (:mod:`tests.decide.simulation`), which hold what is printed here to be small; a revision from before
gives its own figures.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tests.decide.simulation import World, probe

# What the drafter makes of its own tokens alone, and what a round costs: from never paying to paying.
OWN_TOKENS = (0.25, 0.35, 0.45, 0.55, 0.65)
ROUNDS_S = (0.016, 0.018, 0.020, 0.022, 0.024)


@dataclass(frozen=True)
class Figure:
    """How many of the simulated runs went wrong, in words too."""

    wrong: int
    runs: int
    told: str


def ignores_its_target() -> Figure:
    """Probe a drafter that reads its own tokens alone without a blind control, as CUDA profiles are by default."""
    rng = np.random.default_rng(25)
    made = [probe(World(p, None, round_s=s), rng) for p in OWN_TOKENS for s in ROUNDS_S]
    named = sum(d.verdict == "finetune" for d in made)
    passed = sum(d.gate == "pass" for d in made)
    paid = sum(d.verdict == "profitable" for d in made)
    return Figure(
        sum(d.gate == "pass" and d.verdict != "profitable" for d in made),
        len(made),
        f"{named} finetune; {passed} gates passed, {paid} of them profitable, which they are",
    )


FAULTS: Mapping[str, tuple[Callable[[], Figure], str]] = {
    "a drafter that ignores its target, no blind control: passed as worth training": (ignores_its_target, "16 of 25"),
}


def main() -> None:
    """Simulate and print."""
    for name, (simulate, before) in FAULTS.items():
        now = simulate()
        sys.stdout.write(f"{name}\n  {now.wrong} of {now.runs} (before: {before}): {now.told}\n")


if __name__ == "__main__":
    main()
