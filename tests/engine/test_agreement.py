"""The judge of the proof: never wrong about a server that agrees, and not to be fooled by one that does not."""

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.engine.agreement import Agreement, judge
from tests.support.engine.serving import Answer
from tests.support.engine.simulation import MARGIN, Prediction

DEPTH, LENGTH = 3, 24
COUNTS = st.lists(st.integers(0, DEPTH), min_size=LENGTH, max_size=LENGTH)


def serve(accepted: list[int], joins: list[bool]) -> tuple[Answer, list[int]]:
    """Return the answer of a server that accepts what it is told to, and where its rounds began."""
    done, sizes, starts = 1, [1], []
    while done < LENGTH:
        starts.append(done)
        size = min(accepted[done - 1] + 1, LENGTH - done)
        sizes.append(size)
        done += size
    counts = Counter(accepted[start - 1] for start in starts)
    chunks: list[int] = []
    for size, join in zip(sizes, [False, *joins[1 : len(sizes)]], strict=True):
        chunks[-1:] = [chunks[-1] + size] if join else [*chunks[-1:], size]
    answer = Answer(
        prompt=(1,),
        output=tuple(range(LENGTH)),
        chunks=tuple(chunks),
        histogram=tuple(counts[i] for i in range(max(counts) + 1)),
        cached_tokens=0,
        stopped=False,
    )
    return answer, starts


def verdict(answer: Answer, accepted: list[int], margin: list[float]) -> Agreement:
    tally = Agreement()
    judge(tally, 0, answer, Prediction(accepted=accepted, margin=margin))
    return tally


@given(accepted=COUNTS, joins=st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH))
def test_a_server_that_agrees_is_never_called_wrong_however_its_arrivals_are_joined(
    accepted: list[int], joins: list[bool]
) -> None:
    answer, starts = serve(accepted, joins)
    tally = verdict(answer, accepted, [1.0] * LENGTH)
    assert tally.wrong == []
    assert (tally.close, tally.rounds) == (0, len(starts))


@given(accepted=COUNTS, which=st.integers(0, LENGTH), change=st.integers(1, DEPTH))
def test_one_round_that_differs_is_found_unless_it_hangs_on_a_near_tie(
    accepted: list[int], which: int, change: int
) -> None:
    answer, starts = serve(accepted, [False] * LENGTH)
    place = starts[which % len(starts)] - 1
    other = list(accepted)
    other[place] = (accepted[place] + change) % (DEPTH + 1)
    margin = [1.0] * LENGTH
    assert len(verdict(answer, other, margin).wrong) == 1
    margin[place] = MARGIN / 2
    tally = verdict(answer, other, margin)
    assert (tally.wrong, tally.close) == ([], 1)


@given(accepted=COUNTS, which=st.integers(0, LENGTH))
def test_joined_arrivals_hide_no_extra_draft(accepted: list[int], which: int) -> None:
    """Two rounds in one arrival: a simulation that overshoots it, or counts its rounds otherwise, is found."""
    joined = [False] * LENGTH
    answer, starts = serve(accepted, joined)
    assume(len(starts) > 3)
    at = 1 + which % (len(starts) - 3)
    joined[at + 1] = True
    answer, _ = serve(accepted, joined)
    assert answer.coalesced
    other = list(accepted)
    other[starts[at] - 1] = LENGTH
    assert verdict(answer, other, [1.0] * LENGTH).wrong
