"""Ask the target alone, by prefills in which nothing is drafted, about texts that were drafted."""

import logging
from collections.abc import Iterable, Sequence

from pytest_specprobe.errors import SpecprobeError
from pytest_specprobe.measure.checks.greedy import Reading
from pytest_specprobe.measure.checks.losslessness import Best, Question
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.server.http.client import Client

logger = logging.getLogger(__name__)

_READ = 8


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
    given = {prompt.id: prompt.input_ids for prompt in prompts}
    found: list[Reading] = []
    for text in texts[:: max(len(texts) // _READ, 1)][:_READ]:
        try:
            gaps = client.gaps_along(given[text.prompt_id], text.output_ids)
        except SpecprobeError as error:
            logger.warning("the target could not be asked along %s: %s", text.prompt_id, error.what)
        else:
            found.append(Reading(text.prompt_id, gaps))
    return tuple(found)
