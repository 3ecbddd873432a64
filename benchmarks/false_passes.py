"""How often does a gate pass what it should not? Simulated probes whose truth is known, no server.

Run: ``python -m benchmarks.false_passes``. Prints one line per fault: what was simulated, how many of the runs
passed or were called what they are not, and the same figure before the fault was mended. The simulations are those
of the tests (:mod:`tests.decide.simulation`, :mod:`tests.measure.short_answers`, :mod:`tests.measure.stretches`),
which hold what is printed here to be small; a revision from before gives its own figures.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.decide.breakeven import measured_break_even
from pytest_specprobe.decide.verdict import Decision, decide, evidence
from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.checks.texts import dropped_prompts
from pytest_specprobe.measure.passes import acceptance_pass, natural_lengths, throughput_pass
from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.measure.throughput import Throughput, measure_throughput
from pytest_specprobe.profiles import Gate, Verdict
from tests.decide.simulation import World, probe
from tests.measure.short_answers import DEPTH, ShortAnswers
from tests.measure.stretches import probe as stretched
from tests.support.requests import plain_of, request_of

# What the drafter makes of its own tokens alone, and what a round costs: from never paying to paying.
OWN_TOKENS = (0.25, 0.35, 0.45, 0.55, 0.65)
ROUNDS_S = (0.016, 0.018, 0.020, 0.022, 0.024)
RUNS = 25


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


def ends_after_a_few_tokens() -> Figure:
    """Probe a pair whose answers have 3 to 8 tokens, at rounds that cost more than they deliver."""
    made = []
    for seed in range(RUNS):
        own, plain = ShortAnswers(speculates=True, seed=seed), ShortAnswers(speculates=False)
        prompts = [Prompt(id=f"p{i}", workload="w", text="", input_ids=(i,)) for i in range(40)]
        texts = acceptance_pass(own, prompts, max_new_tokens=256)
        runs = throughput_pass(own, plain, prompts, new_tokens=natural_lengths(texts))
        dropped = dropped_prompts(texts)
        made.append(
            decided(
                measure_acceptance(texts, depth=DEPTH, dropped=dropped),
                measure_throughput(runs.drafter, baseline=runs.baseline, dropped=dropped),
            )
        )
    return called(made, "profitable")


def answers_later() -> Figure:
    """Probe drafters that decode 1.07 times as fast and whose first token comes later by more than that gains."""
    made = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        own, plain = [], []
        for i in range(32):
            rounds = rng.integers(0, 3, size=40).tolist()
            ids = tuple(range(1000 * i, 1000 * i + 41 + sum(rounds)))
            own.append(request_of(f"p{i}", rounds, depth=2, first_token_s=0.4, output_ids=ids))
            plain.append(plain_of(f"p{i}", len(ids), token_s=0.016, output_ids=ids))
        made.append(decided(measure_acceptance(own, depth=2), measure_throughput(own, baseline=plain)))
    return called(made, "profitable")


def better_at_every_token() -> Figure:
    """Probe drafters that are better than their blind controls at every token, easy or hard."""
    made = [decided(stretched((0.98, 0.10), (0.88, 0.05), seed=seed), None) for seed in range(RUNS)]
    return called(made, "uncorrelated")


def decided(acceptance: Acceptance, throughput: Throughput | None) -> Decision:
    """Decide on these passes with the default gate."""
    point = None
    if throughput is not None and throughput.break_even_length is not None:
        depth = acceptance.depth
        point = measured_break_even(throughput.break_even_length, round_s=throughput.round_s, depth=depth)
    return decide(evidence(acceptance, throughput, point), gate=Gate())


def called(made: Sequence[Decision], wrong: Verdict) -> Figure:
    """Count the verdicts that are not the truth."""
    counts = Counter(str(decision.verdict) for decision in made)
    return Figure(counts[wrong], len(made), ", ".join(f"{count} {name}" for name, count in counts.most_common()))


FAULTS: Mapping[str, tuple[Callable[[], Figure], str]] = {
    "a drafter that ignores its target, no blind control: passed as worth training": (ignores_its_target, "16 of 25"),
    "answers of 3 to 8 tokens, rounds that do not pay: called profitable": (ends_after_a_few_tokens, "22 of 25"),
    "faster decoding, later answers: called profitable": (answers_later, "25 of 25"),
    "better than its blind control at every token: called uncorrelated": (better_at_every_token, "25 of 25"),
}


def main() -> None:
    """Simulate and print."""
    for name, (simulate, before) in FAULTS.items():
        now = simulate()
        sys.stdout.write(f"{name}\n  {now.wrong} of {now.runs} (before: {before}): {now.told}\n")


if __name__ == "__main__":
    main()
