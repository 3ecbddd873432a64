"""Round by round: what the server did against what the simulation says."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.engine.oracle import Oracle, Reading
from tests.support.engine.serving import Answer, Shape
from tests.support.engine.simulation import MARGIN, Drafter, Prediction, predict


@dataclass(slots=True)
class Agreement:
    """Tally over many answers. ``close`` rounds hang on a margin below MARGIN and prove nothing either way."""

    rounds: int = 0
    close: int = 0
    coalesced: int = 0
    accepted: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def close_share(self) -> float:
        """Share of rounds that could not be judged."""
        return self.close / self.rounds

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.accepted} accepted drafts, {self.close} too close to call, "
            f"{self.coalesced} coalesced answers, {len(self.wrong)} wrong: {self.wrong[:5]}"
        )


def simulate(answer: Answer, reading: Reading, *, oracle: Oracle, drafter: Drafter, shape: Shape) -> Prediction:
    """Predict every possible round of one answer."""
    return predict(
        drafter,
        sequence=reading.sequence,
        prompt_len=len(answer.prompt),
        output_len=len(answer.output),
        features=reading.features(drafter),
        target_margin=reading.margin,
        embedding=oracle.embedding,
        steps=shape.num_steps,
        topk=shape.topk,
        tokens=shape.tokens,
    )


def compare(answers: Iterable[Answer], *, oracle: Oracle, drafter: Drafter, shape: Shape) -> Agreement:
    """Compare every round of every answer with the simulation, starting each where the server started it."""
    tally = Agreement()
    for number, answer in enumerate(answers):
        reading = oracle.read(answer.prompt, answer.output)
        judge(tally, number, answer, simulate(answer, reading, oracle=oracle, drafter=drafter, shape=shape))
    return tally


def judge(tally: Agreement, number: int, answer: Answer, prediction: Prediction) -> None:
    """Add one answer to the tally."""
    tally.rounds += sum(answer.histogram)
    tally.accepted += answer.accepted
    if answer.coalesced:
        tally.coalesced += 1
        _judge_coalesced(tally, number, answer, prediction)
        return
    for start, accepted in answer.rounds():
        if prediction.margin[start - 1] < MARGIN:
            tally.close += 1
        elif accepted != prediction.accepted[start - 1]:
            tally.wrong.append(
                f"answer {number}, token {start}: server {accepted}, simulation "
                f"{prediction.accepted[start - 1]}, margin {prediction.margin[start - 1]:.4f}"
            )


def _judge_coalesced(tally: Agreement, number: int, answer: Answer, prediction: Prediction) -> None:
    """Judge an answer whose arrivals hide where some rounds began.

    From each arrival's start the simulation must land on its end, in as many rounds as it takes; over the answer
    the rounds and the accepted drafts must add up to the server's.
    """
    rounds = accepted = close = 0
    # The prefill's arrival holds one token, and rounds only if some were coalesced into it.
    ends = [end for end in itertools.accumulate(answer.chunks) if end > 1]
    for start, end in itertools.pairwise([1, *ends]):
        at = start
        while at < end:
            close += prediction.margin[at - 1] < MARGIN
            accepted += prediction.accepted[at - 1]
            at += prediction.accepted[at - 1] + 1
            rounds += 1
        if at != end and end != len(answer.output) and not close:
            tally.wrong.append(f"answer {number} (coalesced), token {start}: ends at {end}, simulation at {at}")
    tally.close += close
    if not close and (rounds, accepted) != (sum(answer.histogram), answer.accepted):
        tally.wrong.append(
            f"answer {number} (coalesced): server {answer.histogram}, simulation {rounds} rounds, {accepted} drafts"
        )
