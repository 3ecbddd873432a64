"""Did anyone else use the server? Seen in the log of a server that we own, and in a server's own count of tokens."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.passes import Client
from pytest_specprobe.measure.request import Generation, Prompt

# Prefill lines are not looked at: a health check is a prefill of one token, and never decodes.
_DECODE = re.compile(r"Decode batch.{0,400}?#running-req: (\d{1,9}).{0,400}?#queue-req: (\d{1,9})")
_SHARE = 0.02
# A health check prefills a token or so each time; somebody's real requests prefill hundreds.
_STRAY_SHARE = 0.05
_STRAY_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Prompt tokens of one pass on one server: those we sent, and those it prefilled (None: it does not say)."""

    what: str
    sent: int
    counted: int | None

    @property
    def foreign(self) -> int:
        """Return how many were not ours; 0 if that is within what health checks send."""
        more = 0 if self.counted is None else self.counted - self.sent
        return more if more > max(_STRAY_TOKENS, _STRAY_SHARE * self.sent) else 0


class Counting:
    """A client that counts the prompt tokens it makes a server prefill; safe to use from several threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = Lock()
        self.tokens = 0

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        """Run one request to its end, and count it."""
        done = self._client.generate(
            prompt, max_new_tokens=max_new_tokens, ignore_eos=ignore_eos, temperature=temperature
        )
        with self._lock:
            self.tokens += done.prompt_tokens - done.cached_tokens
        return done

    def flush(self) -> None:
        """Empty the prefix cache."""
        self._client.flush()


def check_prefilled(passes: Sequence[Prefilled]) -> Finding:
    """Check that the servers prefilled no more prompt tokens during our passes than we sent.

    Unlike the log's batches this is seen on anyone's server, and also requests that came between two of ours.
    """
    known = [p for p in passes if p.counted is not None]
    bad = [f"{p.foreign:,} prompt tokens beside our {p.sent:,} ({p.what})" for p in known if p.foreign]
    seen = f"none beside our {sum(p.sent for p in known):,} prompt tokens"
    return Finding(
        id="measure.foreign-requests",
        severity="error",
        status="fail" if bad else "pass" if known else "skip",
        culprit="machine",
        seen="; ".join(bad) or (seen if known else "this SGLang does not count them (/v1/loads)"),
        expected="no prompt tokens but the probe's own, and a health check's",
        why="Another client's requests take turns with ours or share their batch: every speed is too low by as much.",
        fix="make sure that nothing else talks to this server, then measure again",
    )


def check_traffic(log_text: str, *, concurrency: int) -> Finding:
    """Check that the decode batches of the log held no more requests than the probe had in flight.

    A request may linger in a batch or two after its last token, so more than 2 % of the lines, and two at least, must
    say so.

    :param log_text: the part of the log that the passes wrote.
    :param concurrency: the most requests that the probe had in flight at once.
    """
    requests = [int(found[1]) + int(found[2]) for found in _DECODE.finditer(log_text)]
    over = [count for count in requests if count > concurrency]
    crowded = len(over) >= 2 and len(over) > _SHARE * len(requests)
    seen = f"{len(over)} of {len(requests)} decode batches held more than {concurrency}, up to {max(over, default=0)}"
    return Finding(
        id="measure.other-traffic",
        severity="error",
        status="fail" if crowded else "pass",
        culprit="machine",
        seen=seen if over else f"at most {concurrency} requests in each of {len(requests)} decode batches",
        expected=f"no more than the probe's own {concurrency} requests at once",
        why="Another client's requests share the batch: they slow ours down and change what is verified together.",
        fix="make sure that nothing else talks to this server, then measure again",
    )
