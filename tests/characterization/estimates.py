"""Golden files of estimates: from the rows of all records, and from simulated requests."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tests.characterization import adapter, records
from tests.characterization.golden import block, digest, inline, number
from tests.characterization.world import Row, World, chance, changed, one_pass, prompt_id, request


def estimates_of_records() -> str:
    """Every number of a record from its rows per prompt, and which of the record's own it does not give again."""
    return "\n".join(block(name, _recomputed(entry)) for name, entry in records.entries())


def _recomputed(entry: dict[str, Any]) -> dict[str, Any]:
    patched = ((entry.get("staging") or {}).get("patched") or {}).get("max_position_embeddings")
    rows = records.acceptance_rows(entry)
    acceptance = adapter.attempt(
        partial(
            adapter.acceptance,
            rows,
            depth=records.depth_of(entry),
            blind=records.blind_rows(entry),
            drafter_length=patched[0] if patched else None,
            dropped=entry["acceptance"]["dropped"],
        )
    )
    acceptance.pop("prompts", None)
    speed: dict[str, Any] = {}
    point: Any = None
    if entry["throughput"]:
        own, plain = records.speed_rows(entry)
        speed = adapter.throughput(own, baseline=plain)
        speed.pop("prompts")
    if entry["throughput"] and speed["break_even_length"]:
        point = adapter.measured_break_even(
            speed["break_even_length"],
            accept_length=acceptance["accept_length"]["value"],
            min_headroom=1.1,
            round_s=speed["round_s"],
            depth=records.depth_of(entry),
        )
    made = {"acceptance": acceptance, "throughput": speed, "point": point}
    return {**made, "other than the record": sorted(_others(entry, made))}


def _others(entry: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    point = made["point"] or {"break_even": None, "outlook": None}
    pairs = {
        "acceptance": (made["acceptance"], entry["acceptance"]),
        "throughput": (made["throughput"], entry["throughput"] or {}),
        "break_even": (point["break_even"] or {}, entry["break_even"] or {}),
        "outlook": (point["outlook"] or {}, entry.get("outlook") or {}),
    }
    for part, (ours, theirs) in pairs.items():
        shared = ours.keys() & theirs.keys() - {"latency", "client_overhead"}
        yield from (f"{part}.{name}" for name in shared if not _alike(ours[name], theirs[name]))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)


def _with_rows(whole: bool, made: dict[str, Any]) -> dict[str, Any]:
    """The rows per prompt as they are, or one digest of them."""
    return made if whole or "prompts" not in made else {**made, "prompts": [digest(row) for row in made["prompts"]]}


# --- simulated --------------------------------------------------------------------------------------------------


def _repeated(rows: list[Row]) -> list[Row]:
    """Two requests per prompt, the second of a coalesced first arrival."""
    again = [changed(row, first_tokens=2, last_s=row["last_s"] + 0.01) for row in rows]
    return [*rows, *again]


def acceptance_of_simulated() -> str:
    """Few passes whole: every option of an acceptance pass, and every error."""
    world, few = World(), World(prompts=5, length=40, seed="few")
    own, blind = one_pass(world, accept=0.6), one_pass(world, accept=0.08)
    short = changed(
        request(few, 0, accept=0.5), completion_tokens=1, output_ids=(7,), rounds=0, accepted=0, histogram=(0, 0, 0)
    )
    silent = changed(request(few, 1, accept=0.5), histogram=None)
    single = [changed(row, workload="alone") if at == 3 else row for at, row in enumerate(one_pass(few, accept=0.5))]
    cases: dict[str, tuple[list[Row], dict[str, Any]]] = {
        "plain": (own, {}),
        "with its blind control": (own, {"blind": blind}),
        "a blind control as good as the drafter": (own, {"blind": own}),
        "mapped ids and a short drafter": (own, {"mapped_ids": range(1, 60), "drafter_length": 300}),
        "a drafter length that is an edge": (own, {"drafter_length": 512}),
        "two dropped": (own, {"blind": blind, "dropped": {prompt_id(0): "loops", prompt_id(7): "loops too"}}),
        "four positions": (one_pass(world, accept=0.8, depth=4), {"depth": 4}),
        "nothing accepted": (one_pass(world, accept=0.0), {}),
        "several requests per prompt": (_repeated(own), {"blind": _repeated(blind)}),
        "long contexts": (
            [changed(row, prompt_tokens=row["prompt_tokens"] * 90) for row in own],
            {"drafter_length": 2048},
        ),
        "another seed": (own, {"seed": 7}),
        "at 99 %": (own, {"confidence": 0.99}),
        "a workload of one prompt": (single, {}),
        "workloads of one prompt each": (
            [changed(row, workload=row["prompt_id"]) for row in one_pass(few, accept=0.5)],
            {},
        ),
        "an answer of one token": ([short, *one_pass(few, accept=0.5)[1:]], {}),
        "an answer of one token without counts": (
            [changed(short, histogram=None), *one_pass(few, accept=0.5)[1:]],
            {},
        ),
        "no speculation reported": ([silent, *one_pass(few, accept=0.5)[2:]], {}),
        "deeper than the depth": (one_pass(few, accept=0.8, depth=4), {"depth": 3}),
        "missing on the blind control": (own, {"blind": blind[1:]}),
        "two prompts": (own[:2], {}),
        "three prompts of one workload": ([changed(row, workload="w") for row in own[:3]], {}),
        "one prompt": (own[:1], {}),
    }
    return "\n".join(
        block(title, _with_rows(at < 2, adapter.attempt(partial(adapter.acceptance, rows, **more))))
        for at, (title, (rows, more)) in enumerate(cases.items())
    )


def throughput_of_simulated() -> str:
    """Few passes whole: every kind of baseline, and every error."""
    world = World(prompts=8)
    own, plain = one_pass(world, accept=0.6, tokens=50), one_pass(world, accept=None, tokens=50)
    stored = {
        "tok_per_s": {"value": 90.0, "low": 86.0, "high": 95.0, "n": 24},
        "source": "stored",
        "age_s": 7200.0,
        "first_token_s": 0.05,
    }
    ended = [changed(row, last_s=row["first_s"]) for row in own]
    cases: dict[str, tuple[list[Row], dict[str, Any]]] = {
        "no baseline": (own, {}),
        "a booted baseline": (own, {"baseline": plain, "wall_s": 9.0, "baseline_wall_s": 11.0}),
        "an attached baseline": (own, {"baseline": plain, "baseline_source": "attached"}),
        "a declared baseline": (own, {"baseline": {"declared": 82.0}, "wall_s": 9.0}),
        "a stored baseline": (own, {"baseline": stored}),
        "a stored baseline without its witness": (own, {"baseline": {**stored, "first_token_s": None}}),
        "a dropped prompt": (own, {"baseline": plain, "dropped": {prompt_id(2): "loops"}, "wall_s": 9.0}),
        "four streams, two requests each": (
            _repeated(own),
            {"baseline": _repeated(plain), "concurrency": 4, "wall_s": 9.0},
        ),
        "no time of the server's own": ([changed(row, server_s=None) for row in own], {"baseline": plain}),
        "another seed, at 99 %": (own, {"baseline": plain, "seed": 7, "confidence": 0.99}),
        "one arrival": (
            [changed(row, chunk_s=row["chunk_s"][:1], chunk_tokens=row["chunk_tokens"][:1]) for row in own],
            {},
        ),
        "arrivals without a token": ([changed(row, chunk_tokens=(*row["chunk_tokens"][:-1], 0)) for row in own], {}),
        "only one server had the prompt": (own, {"baseline": plain[2:]}),
        "no decode time": (ended, {}),
        "all tokens at once": ([changed(row, first_tokens=50) for row in own], {}),
        "no rounds": ([changed(row, rounds=0) for row in own], {}),
        "one prompt": (own[:1], {}),
    }
    return "\n".join(
        block(title, _with_rows(at < 2, adapter.attempt(partial(adapter.throughput, rows, **more))))
        for at, (title, (rows, more)) in enumerate(cases.items())
    )


def curves() -> str:
    def level(streams: int, verify_s: float, *, base: bool = True) -> dict[str, Any]:
        world = World(prompts=6, verify_s=verify_s, seed=f"level {streams}")
        plain = one_pass(world, accept=None, tokens=40) if base else None
        return {
            "rows": one_pass(world, accept=0.6, tokens=40),
            "baseline": plain,
            "concurrency": streams,
            "wall_s": 3.0 / streams,
            "baseline_wall_s": 3.5 / streams if base else None,
        }

    cases = {
        "pays up to four": [level(16, 0.020), level(1, 0.008), level(4, 0.010)],
        "pays at sixteen, but not below": [level(1, 0.020), level(16, 0.008)],
        "not surely at one": [level(1, 0.0168), level(4, 0.008)],
        "pays at all": [level(1, 0.008), level(2, 0.008)],
        "without a baseline": [level(1, 0.008, base=False), level(4, 0.008, base=False)],
        "the same level twice": [level(1, 0.008), level(1, 0.009)],
    }
    return "\n".join(block(name, adapter.attempt(partial(adapter.curve, levels))) for name, levels in cases.items())


def sampled_texts() -> str:
    world = World(prompts=8)
    greedy = one_pass(world, accept=0.6)
    warm = one_pass(world, accept=0.5, temperature=0.8)
    cases: dict[str, Any] = {
        "sampled": partial(adapter.sampled, warm, greedy, temperature=0.8),
        "one dropped": partial(adapter.sampled, warm, greedy, temperature=1.0, dropped={prompt_id(1): "loops"}),
        "a prompt that the greedy pass has not": partial(adapter.sampled, warm, greedy[1:], temperature=0.8),
        "no speculation": partial(
            adapter.sampled, [changed(r, histogram=None) for r in warm], greedy, temperature=0.8
        ),
    }
    return "\n".join(block(name, adapter.attempt(make)) for name, make in cases.items())


def rankings() -> str:
    """Two and three drafters, by accept length, speedup and tok/s; equal ones; too few shared prompts."""

    def lengths(accept: float, *, count: int = 12, seed: str = "1") -> Any:
        return adapter.acceptance(
            one_pass(World(prompts=count, seed=seed), accept=accept), dropped={prompt_id(1): "loops"}
        )["prompts"]

    def speeds(verify_s: float, *, base: bool = True, count: int = 12) -> Any:
        world = World(prompts=count, verify_s=verify_s)
        plain = one_pass(world, accept=None, tokens=40) if base else None
        return adapter.throughput(one_pass(world, accept=0.6, tokens=40), baseline=plain)["prompts"]

    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "a clear winner": ("accept_length", {"a": lengths(0.3), "b": lengths(0.7)}),
        "too close": ("accept_length", {"a": lengths(0.5), "b": lengths(0.51)}),
        "two the same": ("accept_length", {"a": lengths(0.5), "b": lengths(0.5), "c": lengths(0.3)}),
        "fewer prompts in one": ("accept_length", {"a": lengths(0.3), "b": lengths(0.7, count=7)}),
        "one shared prompt": ("accept_length", {"a": lengths(0.3)[2:4], "b": lengths(0.7)[3:]}),
        "one run": ("accept_length", {"a": lengths(0.3)}),
        "by speedup": ("speed", {"a": speeds(0.012), "b": speeds(0.009), "c": speeds(0.0091)}),
        "by tok/s": ("speed", {"a": speeds(0.012), "b": speeds(0.009, base=False)}),
    }
    return "\n".join(
        block(name, adapter.attempt(partial(adapter.ranking, measure, runs)))
        for name, (measure, runs) in cases.items()
    )


def break_evens() -> str:
    """Points of bare numbers on a grid, one line each; a few whole."""
    found = []
    for round_ms in (4.0, 8.0, 12.5, 20.0, 28.8, 40.0):
        for rate in (40.0, 82.0, 120.0, 240.0):
            for depth, length in ((1, 1.4), (2, 1.5), (3, 2.2), (5, 2.9)):
                point = adapter.break_even(
                    round_s=round_ms / 1000,
                    baseline_tok_per_s=rate,
                    depth=depth,
                    accept_length=length,
                    min_headroom=1.1,
                )
                names = ("accept_length", "required_acceptance", "headroom", "ceiling_speedup")
                numbers = " ".join(inline(point[name]) for name in names)
                look = point["outlook"]
                found.append(
                    f"{round_ms} ms {rate} tok/s depth {depth} length {length}: {numbers} {point['reading']} "
                    f"{inline([g['acceptance'] for g in look['goals']])} {number(look['round_s_for_training'])} "
                    f"{look['published']['at_break_even']} of {look['published']['count']}"
                )
    whole = {
        "as founded": {
            "round_s": 0.0288,
            "baseline_tok_per_s": 82.0,
            "depth": 2,
            "accept_length": 1.5,
            "min_headroom": 1.1,
        },
        "it pays": {
            "round_s": 0.0288,
            "baseline_tok_per_s": 40.0,
            "depth": 3,
            "accept_length": 2.4,
            "min_headroom": 1.3,
            "p_reach": 0.9,
        },
        "no published drafter so deep": {
            "round_s": 0.02,
            "baseline_tok_per_s": 60.0,
            "depth": 17,
            "accept_length": 3.0,
            "min_headroom": 1.1,
        },
        "no time": {
            "round_s": 0.0,
            "baseline_tok_per_s": 60.0,
            "depth": 1,
            "accept_length": 3.0,
            "min_headroom": 1.1,
        },
        "certain acceptance": {
            "round_s": 0.1,
            "baseline_tok_per_s": 60.0,
            "depth": 1,
            "accept_length": 3.0,
            "min_headroom": 1.1,
            "p_reach": 1.0,
        },
        "no depth": {
            "round_s": 0.1,
            "baseline_tok_per_s": 60.0,
            "depth": 0,
            "accept_length": 3.0,
            "min_headroom": 1.1,
        },
    }
    blocks = [block(name, adapter.attempt(partial(adapter.break_even, **more))) for name, more in whole.items()]
    return "\n".join([block("a grid", "\n".join(found)), *blocks])


def brackets() -> str:
    """What shorter chains would give, with a baseline, without one, and without a throughput pass."""
    world = World(prompts=8)
    rows = one_pass(world, accept=0.7, depth=4)
    speed = {"rows": one_pass(world, accept=0.7, depth=4, tokens=40)}
    plain = one_pass(world, accept=None, tokens=40)
    cases = {"with a baseline": {**speed, "baseline": plain}, "without": speed, "not timed": None}
    return "\n".join(block(name, adapter.predicted(rows, s, depth=4)) for name, s in cases.items())


def loops() -> str:
    """Texts of token ids, and what repeats in them: both sides of each threshold."""
    draws = chance("loops")
    fresh = [draws.randrange(5000) for _ in range(400)]
    texts = {
        **{
            f"period {p}, {turns} turns at the end": fresh[:40] + fresh[100 : 100 + p] * turns
            for p in (1, 2, 8, 12, 64, 127, 128, 129)
            for turns in (2, 3, 4)
        },
        **{f"{n} times one token at the end": fresh[:30] + [7] * n for n in (8, 22, 23, 24, 25)},
        **{f"{n} of 8 tokens at the end": fresh[:30] + fresh[50:58] * 3 + fresh[50 : 50 + n] for n in (0, 1, 7)},
        **{
            f"a loop that ended {n} tokens ago": fresh[:9] + fresh[50:54] * 9 + fresh[60 : 60 + n]
            for n in (0, 1, 2, 5)
        },
        **{f"{n} tokens said again": fresh[:60] + fresh[:n] + [9, 9] for n in (10, 40, 50, 60)},
        **{f"a short text of {n}": fresh[: n // 2] + fresh[: n - n // 2] for n in (30, 46, 47, 48, 50)},
        **{f"30 tokens said twice, and {n} of them more": fresh[:30] * 2 + fresh[:n] for n in (6, 7, 8)},
        "fresh": fresh,
        "empty": [],
        "one": [1],
    }
    told = "\n".join(f"{name}: {adapter.repeats(ids)}" for name, ids in texts.items())
    rows = [
        changed(request(World(), i, accept=0.6), output_ids=tuple(ids))
        for i, ids in enumerate([fresh, [7] * 60, fresh[:40] + [3, 4] * 20])
    ]
    return block("texts", told) + "\n" + block("dropped prompts", adapter.dropped(rows))
