"""One streamed answer of ``/generate``, parsed and timed: from SGLang's chunks to a ``Generation``.

SGLang has named the speculation fields three times (research: up to 0.5.10, 0.5.11, from 0.5.12 on); all are
read, and an answer with only a part of them is an error, never a zero.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.measure.checks.losslessness import Best
from pytest_specprobe.measure.request import Generation, Prompt

_LARGEST = sys.float_info.max
_ROUNDS = ("spec_verify_ct",)
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram", "spec_acceptance_histogram")


class Arrivals:
    """Collects the chunks of one streamed answer; ``start_s`` is when the request was sent (perf_counter)."""

    def __init__(self, prompt: Prompt, *, start_s: float) -> None:
        self._prompt = prompt
        self._start_s = start_s
        self._ids: list[int] = []
        self._text = ""
        self._meta: Mapping[str, Any] = {}
        self._chunk_tokens: list[int] = []
        self._chunk_s: list[float] = []

    def add(self, chunk: object, *, now_s: float) -> None:
        """Take in one decoded chunk that arrived at ``now_s``.

        Chunks hold all tokens so far, or (``--incremental-streaming-output``) the new ones only; the count of
        tokens tells which.

        :raises MeasurementError: if it reports an error, lacks a field, or contradicts the tokens before it.
        """
        if not isinstance(chunk, dict):
            raise self._bad(f"a chunk is {type(chunk).__name__}, not an object")
        if chunk.get("error") is not None:
            raise self._bad(f"the server reported {chunk['error']!r}")
        meta = chunk.get("meta_info")
        if not isinstance(meta, dict):
            raise self._bad("a chunk has no meta_info")
        total = self._count(meta, "completion_tokens")
        ids, before = chunk.get("output_ids"), len(self._ids)
        if not isinstance(ids, list) or not all(type(i) is int and i >= 0 for i in ids):
            raise self._bad("a chunk has no output_ids")
        if len(ids) == total and ids[:before] == self._ids:
            self._text = chunk.get("text") or self._text
        elif before + len(ids) == total:
            ids = [*self._ids, *ids]
            self._text += chunk.get("text") or ""
        else:
            raise self._bad(f"{total} completion_tokens are reported, but {len(ids)} ids came after {before}")
        if total > before:
            self._chunk_tokens.append(total - before)
            self._chunk_s.append(now_s)
        self._ids, self._meta = ids, meta

    def finish(self) -> Generation:
        """Return the finished request.

        :raises MeasurementError: if the answer ended early, has no token, or lacks a required field.
        """
        reason = self._meta.get("finish_reason")
        if not isinstance(reason, dict) or not isinstance(reason.get("type"), str):
            raise self._bad("the answer ended before the request was finished")
        if reason["type"] not in {"stop", "length"}:
            raise self._bad(f"it was cut off: {reason.get('message') or reason['type']}")
        if not self._ids:
            raise self._bad("the answer has no token")
        rounds, accepted, histogram = self._speculation()
        return Generation(
            prompt_id=self._prompt.id,
            workload=self._prompt.workload,
            prompt_tokens=self._count(self._meta, "prompt_tokens"),
            cached_tokens=self._count(self._meta, "cached_tokens"),
            completion_tokens=len(self._ids),
            output_ids=tuple(self._ids),
            text=self._text,
            finish_reason=reason["type"],
            rounds=rounds,
            accepted=accepted,
            histogram=histogram,
            sglang_accept_length=self._number("spec_accept_length") if rounds is not None else None,
            start_s=self._start_s,
            first_s=self._chunk_s[0],
            last_s=self._chunk_s[-1],
            first_tokens=self._chunk_tokens[0],
            chunk_tokens=tuple(self._chunk_tokens),
            chunk_s=tuple(self._chunk_s),
            server_s=self._number("e2e_latency"),
        )

    def _speculation(self) -> tuple[int | None, int | None, tuple[int, ...] | None]:
        values = [self._first(names) for names in (_ROUNDS, _ACCEPTED, _HISTOGRAM)]
        if all(value is None for value in values) and not any(k.startswith("spec_") for k in self._meta):
            return None, None, None
        rounds, accepted, histogram = values
        if rounds == 0:
            # A request that ended with its prefill token had no round; SGLang then leaves the others out.
            return 0, 0, ()
        if rounds is None or accepted is None or histogram is None:
            seen = ", ".join(sorted(k for k in self._meta if k.startswith("spec_")))
            raise self._bad(f"only a part of the speculation fields is there ({seen})")
        if not isinstance(histogram, list):
            raise self._bad(f"the acceptance histogram is {histogram!r}")
        counts = tuple(self._as_count("acceptance histogram", item) for item in histogram)
        return self._as_count(_ROUNDS[0], rounds), self._as_count(_ACCEPTED[0], accepted), counts

    def _number(self, name: str) -> float | None:
        value = self._meta.get(name)
        if value is None:
            return None
        if not is_number(value):
            raise self._bad(f"{name} is {value!r}")
        return float(value)

    def _first(self, names: tuple[str, ...]) -> Any:
        return next((self._meta[name] for name in names if self._meta.get(name) is not None), None)

    def _count(self, meta: Mapping[str, Any], name: str) -> int:
        return self._as_count(name, meta.get(name))

    def _as_count(self, name: str, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise self._bad(f"{name} is {value!r}")
        return value

    def _bad(self, what: str) -> MeasurementError:
        return MeasurementError(
            f"request {self._prompt.id}: {what}"[:500],
            culprit="engine",
            fix="look at the server's log; the measurement is invalid until every request succeeds",
        )


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value of an answer is a number that a float holds: no boolean, NaN, or integer beyond it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def best_of(answer: object) -> Best:
    """Return the two best tokens of an answer of one token with ``top_logprobs_num`` 2.

    :raises MeasurementError: if it does not hold them.
    """
    try:
        (first, best), (second, next_best) = (
            (float(entry[0]), int(entry[1]))
            for entry in answer["meta_info"]["output_top_logprobs"][0]  # type: ignore[index]
        )
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise _no_logprobs("of its two best tokens") from error
    if not math.isfinite(first - second):
        raise _no_logprobs("that are numbers")
    return Best((best, next_best), first - second)


def gaps_of(answer: object, output_ids: Sequence[int]) -> tuple[float, ...]:
    """Return how far each of these tokens is below the best one, of an answer with input log-probabilities.

    :raises MeasurementError: if it does not hold them for just these tokens.
    """
    try:
        meta = answer["meta_info"]  # type: ignore[index]
        # The first entry is the last token of the prompt, which nothing is asked about.
        own = [(float(entry[0]), entry[1]) for entry in meta["input_token_logprobs"][1:]]
        best = [float(entries[0][0]) for entries in meta["input_top_logprobs"][1:]]
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise _no_logprobs("of its input") from error
    if [token for _, token in own] != list(output_ids) or len(best) != len(own):
        raise _no_logprobs("of just the tokens asked for")
    # A token's own may be minus infinity: the target would never have said it.
    if not all(math.isfinite(top) and logprob < math.inf for (logprob, _), top in zip(own, best, strict=True)):
        raise _no_logprobs("that are numbers")
    return tuple(max(top - logprob, 0.0) for (logprob, _), top in zip(own, best, strict=True))


def _no_logprobs(what: str) -> MeasurementError:
    return MeasurementError(
        f"the server gives no log-probabilities {what}", culprit="engine", fix="use SGLang 0.5.12 or newer"
    )
