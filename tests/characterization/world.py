"""Simulated requests as plain rows, whose truth is known; nothing here knows the product.

Invariant: a row depends on its arguments alone. Draws come from ``random.Random`` seeded by a text, whose
``random()`` is the same in every version of Python, and not from numpy.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

Row = dict[str, Any]
DOMAINS = ("code", "chat", "math")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The truth: acceptance per position, seconds of a verify step, a draft step and a plain step, and the prompts.

    ``blind`` is the blind control's acceptance. ``length`` is the usual answer in tokens.
    """

    accept: float = 0.6
    blind: float = 0.08
    verify_s: float = 0.010
    draft_s: float = 0.001
    plain_s: float = 0.010
    prompts: int = 24
    length: int = 44
    seed: str = "1"


def chance(*key: object) -> random.Random:
    """Return draws that belong to this key."""
    return random.Random("/".join(map(str, key)))  # noqa: S311 - texts and times, not secrets


def prompt_id(i: int) -> str:
    return f"{DOMAINS[i % 3]}-{i:02d}"


@cache
def text_of(world: World, i: int, *, temperature: float = 0.0, tokens: int = 128) -> tuple[int, ...]:
    """The target's text of prompt ``i``, far longer than its answer; a few tokens are much of it, as in any text."""
    draws = chance(world.seed, "text", i, temperature)
    return tuple(int(900 ** draws.random()) for _ in range(tokens))


@cache
def natural_length(world: World, i: int) -> int:
    """Tokens of the answer of prompt ``i`` that ends by itself."""
    return world.length + chance(world.seed, "length", i).randrange(20)


def request(
    world: World,
    i: int,
    *,
    accept: float | None,
    depth: int = 2,
    tokens: int | None = None,
    luck: str = "",
    temperature: float = 0.0,
) -> Row:
    """One finished request of prompt ``i``: on a server without speculation if ``accept`` is None.

    :param tokens: its length; None is its natural one.
    :param luck: names the draws of the times; the accepted drafts are the same in every request of a prompt.
    """
    limit = natural_length(world, i) if tokens is None else tokens
    drafts = chance(world.seed, "drafts", i, accept, depth, temperature)
    ease = 0.7 + 0.6 * chance(world.seed, "ease", i).random()
    arrivals, hits = [1], []
    while sum(arrivals) < limit:
        hit = 0
        while accept is not None and hit < depth and drafts.random() < min(accept * ease, 0.97):
            hit += 1
        hits.append(hit)
        arrivals.append(min(hit + 1, limit - sum(arrivals)))
    noise = chance(world.seed, "times", i, accept, depth, luck)
    step_s = world.plain_s if accept is None else world.verify_s + depth * world.draft_s
    times = [100.0 + 0.02 + 0.0004 * (10 + 9 * i) * (0.9 + 0.2 * noise.random())]
    for _ in arrivals[1:]:
        times.append(times[-1] + step_s * (0.9 + 0.2 * noise.random()))
    ids = text_of(world, i, temperature=temperature)[:limit]
    return {
        "prompt_id": prompt_id(i),
        "workload": DOMAINS[i % 3],
        "prompt_tokens": 10 + 37 * i,
        "cached_tokens": 0,
        "completion_tokens": limit,
        "output_ids": ids,
        "text": " ".join(map(str, ids)),
        "finish_reason": "stop" if tokens is None else "length",
        "rounds": None if accept is None else len(hits),
        "accepted": None if accept is None else sum(hits),
        "histogram": None if accept is None else tuple(hits.count(k) for k in range(depth + 1)),
        "sglang_accept_length": None if accept is None else limit / len(hits),
        "start_s": 100.0,
        "first_s": times[0],
        "last_s": times[-1],
        "first_tokens": 1,
        "chunk_tokens": tuple(arrivals),
        "chunk_s": tuple(times),
        "server_s": times[-1] - 100.0 - 0.002 * (0.5 + noise.random()),
    }


def one_pass(world: World, *, accept: float | None, **more: Any) -> list[Row]:
    """Every prompt once."""
    return [request(world, i, accept=accept, **more) for i in range(world.prompts)]


def changed(row: Mapping[str, Any], **fields: Any) -> Row:
    """The row with some fields exchanged."""
    return {**row, **fields}
