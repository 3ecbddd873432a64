"""Acceptance at a temperature above zero, told apart from everything else: it enters no verdict and no gate.

Definition: the strict accept length of one sampled text per prompt. A draft counts as accepted when the server's own
sampling verify takes it: SGLang samples each position from the target at that temperature and takes the drafts that
the samples confirm (with ``--speculative-use-rejection-sampling``, by the ratio of target to draft probability).
Another sample gives another text and so another number; the interval, over prompts, holds that too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.statistics import combine, resample

_ENOUGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The sampled pass: the same prompts as the greedy one.

    ``over_greedy`` is its accept length over the greedy one's, paired by prompt.
    """

    temperature: float
    acceptance: Acceptance
    over_greedy: Estimate


def measure_sampled(
    generations: Sequence[Generation], greedy: Acceptance, *, temperature: float, dropped: Mapping[str, str]
) -> Sampled:
    """Turn the requests of one sampled pass into estimates.

    :param greedy: the acceptance pass over the same prompts.
    :param dropped: prompts whose greedy target text loops: they are left out here too.
    :raises MeasurementError: if a request reports no speculation, or fewer than two prompts are left.
    """
    own = measure_acceptance(generations, depth=greedy.depth, dropped=dropped)
    counts = {row.id: (row.rounds, row.accepted) for row in greedy.prompts if row.dropped is None}
    rows = [row for row in own.prompts if row.dropped is None and row.id in counts]
    samples = resample([row.workload for row in rows])
    here, there = (
        samples.ratio(
            np.array([rounds + accepted for rounds, accepted in pairs], dtype=np.float64),
            np.array([rounds for rounds, _ in pairs], dtype=np.float64),
        )
        for pairs in ([(row.rounds, row.accepted) for row in rows], [counts[row.id] for row in rows])
    )
    return Sampled(temperature=temperature, acceptance=own, over_greedy=combine(np.divide, here, there).estimate())


def check_sampled(generations: Sequence[Generation], greedy: Sequence[Generation]) -> Finding:
    """Check that the texts were sampled at all.

    SGLang verifies greedily on devices that have no sampling kernel, whatever the temperature: only the first token,
    which is prefill's, is sampled then. So texts that begin like the greedy one must not all go on like it.
    """
    texts = {g.prompt_id: g.output_ids for g in greedy}
    alike = [g for g in generations if g.output_ids[:1] == texts.get(g.prompt_id, ())[:1]]
    same = sum(g.output_ids == texts[g.prompt_id] for g in alike)
    return Finding(
        id="measure.not-sampled",
        severity="warning",
        status="fail" if len(alike) >= _ENOUGH and same == len(alike) else "pass",
        culprit="engine",
        seen=f"{same} of {len(alike)} texts that begin with the greedy token are the greedy text",
        expected="texts that differ from the greedy ones",
        why="The server sampled the first token only and verified greedily: this is no acceptance at a temperature.",
        fix="measure at a temperature on a CUDA server; SGLang verifies greedily on a CPU",
    )
