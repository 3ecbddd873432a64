"""Ask the target alone, by prefills in which nothing is drafted, about texts that servers of it wrote."""

import logging
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pytest_specprobe.errors import SpecprobeError
from pytest_specprobe.measure.checks.losslessness import Best, Question
from pytest_specprobe.measure.checks.odd_tokens import PairedReadings, Reading
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.server.http.client import Client

_Item = TypeVar("_Item")
logger = logging.getLogger(__name__)

_READ = 8
_PAIRS = 40
_LONGEST = 1024  # tokens of a text: the log-probabilities of a whole prefill take vocabulary x tokens of memory


def ask_target(client: Client, questions: Iterable[Question]) -> dict[str, Best]:
    """Return the target's two best tokens by prompt id.

    Any server of the target can be asked, one that speculates too: a first token is never drafted. What cannot be
    answered is left out, since only an answer excuses a divergence.
    """
    found: dict[str, Best] = {}
    for question in questions:
        try:
            found[question.prompt_id] = client.best_tokens(question.input_ids)
        except SpecprobeError as error:
            logger.warning("the target could not be asked about %s: %s", question.prompt_id, error.what)
    return found


def read_texts(client: Client, prompts: Sequence[Prompt], texts: Sequence[Generation]) -> tuple[Reading, ...]:
    """Return what the target says along eight of the texts, spread over the prompts; where it says nothing, none."""
    given = {prompt.id: prompt for prompt in prompts}
    readings = (_read(client, given[text.prompt_id], text.output_ids) for text in _spread(texts, _READ))
    return tuple(reading for reading in readings if reading is not None)


def read_pairs(
    client: Client, prompts: Sequence[Prompt], drafter: Sequence[Generation], baseline: Sequence[Generation]
) -> PairedReadings:
    """Return what one server of the target says along the first text of each prompt, with and without speculation.

    At most forty prompts, spread over all; a prompt counts only where both of its texts could be read.
    """
    own, plain = ({g.prompt_id: g.output_ids[:_LONGEST] for g in reversed(side)} for side in (drafter, baseline))
    pairs: list[tuple[Reading, Reading]] = []
    for prompt in _spread([prompt for prompt in prompts if prompt.id in own and prompt.id in plain], _PAIRS):
        first = _read(client, prompt, own[prompt.id])
        same = own[prompt.id] == plain[prompt.id]
        second = first if same or first is None else _read(client, prompt, plain[prompt.id])
        if first is not None and second is not None:
            pairs.append((first, second))
    return PairedReadings(tuple(first for first, _ in pairs), tuple(second for _, second in pairs))


def _spread(of: Sequence[_Item], most: int) -> Sequence[_Item]:
    """Return at most this many items, evenly spread over all."""
    return of if len(of) <= most else [of[i * len(of) // most] for i in range(most)]


def _read(client: Client, prompt: Prompt, output_ids: Sequence[int]) -> Reading | None:
    try:
        gaps = client.gaps_along(prompt.input_ids, output_ids)
    except SpecprobeError as error:
        logger.warning("the target could not be asked along %s: %s", prompt.id, error.what)
        return None
    return Reading(prompt.id, prompt.workload, gaps)
