"""What the tests share: the record of one server."""

from dataclasses import dataclass

from tests.support.engine.serving import Answer, Shape

TOKENS = 128
CHUNK = 16
"""Prefill chunk of the chunked servers, in tokens; most prompts are longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one server did, by pass: ``one`` request at a time, ``many`` at once, ``again``, ``natural`` stop."""

    shape: Shape
    passes: dict[str, list[Answer]]
    log: str
