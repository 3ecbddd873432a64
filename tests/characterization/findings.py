"""Golden file of findings: each self-check on data that is as it should be, and with one fault planted in it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.characterization import adapter
from tests.characterization.golden import block
from tests.characterization.world import Row, World, changed, one_pass, prompt_id, request, text_of

WORLD = World(prompts=12)
Case = tuple[str, Callable[[], Any]]


def findings() -> str:
    """The first case of a check is shown whole, the others by what they say."""
    found, whole = [], set()
    for title, make in [*_requests(), *_acceptance(), *_throughput(), *_gaps(), *_texts(), *_machine()]:
        made = adapter.attempt(make)
        told: list[Any] = []
        for finding in made if isinstance(made, list) else [made]:
            name = finding.get("id") if isinstance(finding, dict) else None
            words = {"expected", "why", "fix", "culprit", "severity"}
            told.append({k: v for k, v in finding.items() if name not in whole or k not in words or _moves(name, k)})
            whole.add(name)
        found.append(block(title, told))
    return "\n".join(found)


def _moves(name: str | None, field: str) -> bool:
    """Tell whether a field differs between cases of one check."""
    return field == "severity" or (
        name is not None
        and name.startswith("measure.")
        and field in {"expected", "why"}
        and ("busy" in name or "crowded" in name or "length" in name or "server-total" in name)
    )


def _own() -> list[Row]:
    return one_pass(WORLD, accept=0.6)


def _plain(tokens: int | None = None) -> list[Row]:
    return one_pass(WORLD, accept=None, tokens=tokens)


def _with(rows: list[Row], at: int, **fields: Any) -> list[Row]:
    return [changed(row, **fields) if i == at else row for i, row in enumerate(rows)]


def _requests() -> Iterator[Case]:
    own = _own()
    row = own[3]
    h, rounds, accepted, tokens = row["histogram"], row["rounds"], row["accepted"], row["completion_tokens"]
    faults: dict[str, dict[str, Any]] = {
        "no rounds": {"rounds": 0, "accepted": 0, "histogram": (0, 0, 0)},
        "no fields": {"rounds": None, "accepted": None, "histogram": None},
        "one token without rounds": {"rounds": 0, "accepted": 0, "histogram": (0, 0, 0), "completion_tokens": 1},
        "a negative count": {
            "histogram": (h[0] + 2, h[1], h[2] - 2) if h[2] < 2 else (-1, h[1] + 1, h[2]),
            "accepted": accepted,
        },
        "deeper than the depth": {"histogram": (*h, 1), "rounds": rounds + 1, "accepted": accepted + 3},
        "the sum is not the rounds": {"rounds": rounds + 1},
        "the weighted sum is not the accepted": {"accepted": accepted + 1},
        "a token too many": {"completion_tokens": 1 + rounds + accepted + 1, "sglang_accept_length": None},
        "trimmed by the depth": {"completion_tokens": 1 + rounds + accepted - 2, "sglang_accept_length": None},
        "trimmed by more": {"completion_tokens": 1 + rounds + accepted - 3, "sglang_accept_length": None},
        "not trimmed": {"completion_tokens": 1 + rounds + accepted, "sglang_accept_length": None},
        "a mean off by 0.9 %": {"sglang_accept_length": 1.009 * tokens / rounds},
        "a mean off by 1.1 %": {"sglang_accept_length": 1.011 * tokens / rounds},
        "a prefix hit": {"cached_tokens": 1},
    }
    yield "requests: as they should be", partial(adapter.check_requests, own, plain=_plain())
    for name, fields in faults.items():
        yield f"requests: {name}", partial(adapter.check_requests, _with(own, 3, **fields))
    yield (
        "requests: a prefix hit of the baseline",
        partial(adapter.check_requests, own, plain=_with(_plain(), 2, cached_tokens=7)),
    )
    yield (
        "requests: five silent ones",
        partial(adapter.check_requests, [changed(r, rounds=0) for r in own[:5]] + own[5:]),
    )
    yield (
        "requests: three silent ones",
        partial(adapter.check_requests, [changed(r, rounds=0) for r in own[:3]] + own[3:]),
    )
    yield (
        "requests: of four positions",
        partial(adapter.check_requests, one_pass(WORLD, accept=0.8, depth=4), depth=4),
    )


def _counts(*histogram: int, prompts: int = 2) -> list[Row]:
    """Requests whose histograms add up to this one."""
    rows = []
    for i in range(prompts):
        h = tuple(c // prompts + (i < c % prompts) for c in histogram)
        rounds, accepted = sum(h), sum(k * c for k, c in enumerate(h))
        tokens = 1 + rounds + accepted
        rows.append(
            changed(
                request(WORLD, i, accept=0.5),
                rounds=rounds,
                accepted=accepted,
                histogram=h,
                completion_tokens=tokens,
                output_ids=text_of(WORLD, i, tokens=tokens),
            )
        )
    return rows


def _acceptance() -> Iterator[Case]:
    for name, histogram in {
        "pinned at 995 of 1,000": (3, 2, 995),
        "not pinned at 994 of 1,000": (4, 2, 994),
        "pinned in the middle": (2, 998, 0),
        "pinned in 50 rounds": (0, 0, 50),
        "not pinned in 49 rounds": (0, 0, 49),
        "nothing accepted is no pin": (1000, 0, 0),
        "never rejected in 200": (0, 100, 100),
        "never rejected in 199": (0, 100, 99),
        "rejected once": (1, 100, 100),
    }.items():
        yield f"acceptance: {name}", partial(adapter.check_acceptance, _counts(*histogram))
    rows = _counts(600, 200, 200)  # 1.6 of 1,000 rounds
    for mean, uncounted in (
        (1.6, 0),
        (1.679, 0),
        (1.681, 0),
        (1.521, 0),
        (1.519, 0),
        (1.75, 40),
        (1.77, 40),
        (9.0, 5000),
        (3.5, 5000),
    ):
        yield (
            f"acceptance: the server's own mean is {mean}, {uncounted} uncounted",
            partial(adapter.check_acceptance, rows, server_mean=mean, uncounted=uncounted),
        )


def _throughput() -> Iterator[Case]:
    own, plain = one_pass(WORLD, accept=0.6, tokens=60), _plain(60)
    asked = {prompt_id(i): 60 for i in range(WORLD.prompts)}
    yield (
        "throughput: as it should be",
        partial(adapter.check_throughput, own, baseline=plain, asked=asked, acceptance=own),
    )
    yield "throughput: no baseline", partial(adapter.check_throughput, own, asked=60)

    def slowed(factor: float) -> list[Row]:
        return [changed(r, last_s=r["first_s"] + factor * (r["last_s"] - r["first_s"])) for r in plain]

    for factor in (1.23, 1.26, 1.29, 1.5):
        yield (
            f"throughput: a baseline {factor} times as slow",
            partial(adapter.check_throughput, own, baseline=slowed(factor)),
        )
    for at in (0.5, 0.55, 0.57, 0.63, 0.65, 0.7):
        other = one_pass(WORLD, accept=at)
        yield f"throughput: the other pass accepted {at}", partial(adapter.check_throughput, own, acceptance=other)
    for tokens in (59, 61):
        yield (
            f"throughput: one is {tokens} tokens long",
            partial(adapter.check_throughput, _with(own, 1, completion_tokens=tokens), asked=60),
        )
    yield (
        "throughput: one of the baseline is short",
        partial(adapter.check_throughput, own, baseline=_with(plain, 1, completion_tokens=50), asked=asked),
    )


def _gaps() -> Iterator[Case]:
    own = one_pass(WORLD, accept=0.6, tokens=60)

    def gap(seconds: float, count: int, usual: float = 0.01) -> list[Row]:
        times = [1.0 + usual * k for k in range(count)]
        times = [*times, times[-1] + seconds]
        return _with(
            own,
            2,
            chunk_s=tuple(times),
            start_s=0.5,
            first_s=times[0],
            last_s=times[-1],
            chunk_tokens=(1,) * len(times),
        )

    for seconds, count in ((0.19, 12), (0.21, 12), (0.21, 8), (0.21, 7), (0.21, 300), (0.21, 380), (0.21, 420)):
        yield (
            f"throughput: a gap of {seconds} s after {count} arrivals",
            partial(adapter.check_throughput, gap(seconds, count)),
        )

    # a median that is not the quartile
    mixed = [1.0 + 0.002 * k for k in range(6)]
    mixed += [mixed[-1] + 0.01 * (k + 1) for k in range(6)]
    for seconds in (0.15, 0.25):
        times = (*mixed, mixed[-1] + seconds)
        rows = _with(
            own, 2, chunk_s=times, start_s=0.5, first_s=1.0, last_s=times[-1], chunk_tokens=(1,) * len(times)
        )
        yield f"throughput: a gap of {seconds} s after short and long ones", partial(adapter.check_throughput, rows)

    def boots(factor: float) -> list[Row]:
        again = [changed(r, last_s=r["first_s"] + factor * (r["last_s"] - r["first_s"])) for r in own]
        return [*own, *again]

    for factor in (1.0, 1.049, 1.051, 1 / 1.049, 1 / 1.051):
        yield (
            f"two boots: the second is {factor:.4f} times as slow",
            partial(adapter.check_two_boots, boots(factor)),
        )
    first = 0.0
    for r in sorted(own, key=lambda r: r["first_s"])[5:7]:
        first += (r["first_s"] - r["start_s"]) / 2
    for ratio in (1.0, 1.24, 1.26, 1 / 1.24, 1 / 1.26):
        known = {
            "tok_per_s": {"value": 90.0, "low": 86.0, "high": 95.0, "n": 24},
            "source": "stored",
            "age_s": 60.0,
            "first_token_s": first / ratio,
        }
        yield (
            f"stored baseline: first tokens {ratio:.4f} times as late",
            partial(adapter.check_stored_baseline, own, known),
        )
    yield "stored baseline: none", partial(adapter.check_stored_baseline, own, None)
    yield "stored baseline: declared", partial(adapter.check_stored_baseline, own, {"declared": 80.0})
    yield (
        "a pass that failed",
        partial(adapter.failed_pass, "request code-00 failed: HTTP 500", "engine", "read the log"),
    )


def _texts() -> Iterator[Case]:
    own, plain = _own(), _plain()

    def looping(rows: list[Row], count: int) -> list[Row]:
        return [changed(r, output_ids=(5, 6, 7) * 20) if i < count else r for i, r in enumerate(rows)]

    def stuck(rows: list[Row], count: int, middle: int = 9) -> list[Row]:
        return [changed(r, output_ids=(1, *(4,) * (middle - 2), 2)) if i < count else r for i, r in enumerate(rows)]

    yield "texts: as they should be", partial(adapter.check_text, own, target=plain)
    for count in (3, 4, 8):
        yield f"texts: {count} of 12 loop", partial(adapter.check_text, looping(own, count))
        yield (
            f"texts: {count} of the target's loop",
            partial(adapter.check_text, own, target=looping(plain, count)),
        )
    for count in (1, 3, 4):
        yield f"texts: {count} of one token", partial(adapter.check_text, stuck(own, count))
        yield (
            f"texts: {count} of one token beside a target",
            partial(adapter.check_text, stuck(own, count), target=plain),
        )
        yield (
            f"texts: {count} of one token, the target's too",
            partial(adapter.check_text, stuck(own, count), target=stuck(plain, count)),
        )
    yield "texts: one of eight tokens", partial(adapter.check_text, stuck(own, 1, 8))
    for name, gaps, exact in (
        ("all best", {"a": [0.0] * 100}, False),
        ("none asked", {}, False),
        ("no places", {"a": []}, True),
        ("below a near-tie, exact", {"a": [0.0, 0.009]}, True),
        ("at a near-tie, exact", {"a": [0.0, 0.01]}, True),
        ("below a near-tie", {"a": [0.249] * 9}, False),
        ("5 of 100", {"a": [0.25] * 5 + [0.0] * 95}, False),
        ("6 of 100", {"a": [0.25] * 2 + [0.0] * 48, "b": [0.3] * 4 + [0.0] * 46}, False),
    ):
        yield f"readings: {name}", partial(adapter.check_reading, gaps, exact=exact)
    for name, odd, plain_odd in (("as many", 5, 5), ("more", 5, 4), ("far more", 6, 1), ("both many", 11, 11)):
        texts = [{f"p{i}": [0.5] * count + [0.0] * (100 - count) for i in range(8)} for count in (odd, plain_odd)]
        yield (
            f"readings beside a plain server's: {name}",
            partial(adapter.check_reading, texts[0], exact=False, plain=texts[1]),
        )
    yield from _same_texts(own, plain)
    yield from _sampling(own)


def _same_texts(own: list[Row], plain: list[Row]) -> Iterator[Case]:
    def parted(count: int, **fields: Any) -> list[Row]:
        rows = []
        for i, r in enumerate(plain):
            ids = list(r["output_ids"])
            if i < count:
                ids[4 + i] = 900 + i
            rows.append(changed(r, output_ids=tuple(ids), **fields))
        return rows

    def best(count: int, gap: float, *, both: bool = True) -> dict[str, tuple[tuple[int, int], float]]:
        return {prompt_id(i): ((900 + i, own[i]["output_ids"][4 + i] if both else 899), gap) for i in range(count)}

    none: dict[str, tuple[tuple[int, int], float]] = {}
    cases: dict[str, tuple[list[Row], list[Row], Any, bool]] = {
        "the same": (own, plain, none, False),
        "the same, exact": (own, plain, none, True),
        "one parts, not asked": (own, parted(1), none, False),
        "one parts, not asked, exact": (own, parted(1), none, True),
        "one parts at a near-tie": (own, parted(1), best(1, 0.24), False),
        "at the limit": (own, parted(1), best(1, 0.25), False),
        "at a near-tie, exact": (own, parted(1), best(1, 0.009), True),
        "at the limit, exact": (own, parted(1), best(1, 0.01), True),
        "of other tokens": (own, parted(1), best(1, 0.1, both=False), False),
        "one of twelve elsewhere": (own, parted(3), {**best(3, 0.1), **best(1, 2.0)}, False),
        "two of twelve elsewhere": (own, parted(3), {**best(3, 0.1), **best(2, 2.0)}, False),
        "one ended": (own, _with(plain, 2, output_ids=plain[2]["output_ids"][:9]), none, False),
        "one was cut": (
            own,
            _with(plain, 2, output_ids=plain[2]["output_ids"][:9], finish_reason="length"),
            none,
            False,
        ),
        "the longer was cut": (
            _with(own, 2, finish_reason="length"),
            _with(plain, 2, output_ids=plain[2]["output_ids"][:9]),
            none,
            False,
        ),
        "nothing shared": (own[:3], plain[3:], none, False),
        "the second request differs": ([*own, *_with(own, 2, output_ids=(1, 2, 3))], plain, none, False),
    }
    for name, (drafted, base, said, exact) in cases.items():
        yield (
            f"same texts: {name}",
            partial(adapter.check_same_texts, drafted, base, best=said, exact=exact),
        )
    for exact, odd in ((False, (2, 2)), (False, (3, 2)), (False, (9, 1)), (False, (1, 9)), (True, (2, 2))):
        yield (
            f"same texts, read: {odd[0]} odd with and {odd[1]} without" + ", exact" * exact,
            partial(adapter.check_same_texts, own, parted(4), best=best(4, 1.0), exact=exact, odd=odd),
        )


def _sampling(own: list[Row]) -> Iterator[Case]:
    def other(count: int, first: int = 0) -> list[Row]:
        """The last ``count`` go on otherwise, the first ``first`` begin otherwise."""
        rows = [
            changed(r, output_ids=(*r["output_ids"][:5], 888)) if i >= len(own) - count else r
            for i, r in enumerate(own)
        ]
        return [changed(r, output_ids=(777, *r["output_ids"][1:])) if i < first else r for i, r in enumerate(rows)]

    for count, first in ((0, 0), (1, 0), (0, 9), (0, 10), (12, 0)):
        yield (
            f"sampled: {count} go on otherwise, {first} begin otherwise",
            partial(adapter.check_sampling, other(count, first), own),
        )


def _machine() -> Iterator[Case]:
    counted: dict[str, list[tuple[str, int, int | None]]] = {
        "none": [],
        "not counted": [("drafter", 1000, None)],
        "all ours": [("drafter", 1000, 1000), ("baseline", 500, 480)],
        "64 more": [("drafter", 1000, 1064)],
        "65 more": [("drafter", 1000, 1065)],
        "5 % more": [("drafter", 4000, 4200)],
        "more than 5 %": [("drafter", 4000, 4201), ("blind control", 100, 100), ("baseline", 2000, 9000)],
        "one not counted": [("drafter", 1000, 2000), ("baseline", 500, None)],
    }
    for name, passes in counted.items():
        yield f"prompt tokens: {name}", partial(adapter.check_prompt_tokens, passes)

    def log(over: int, lines: int, queued: int = 0) -> str:
        def line(running: int) -> str:
            return (
                f"[2026] Decode batch, #running-req: {running}, #token: 9, cuda graph: True, #queue-req: {queued}\n"
            )

        return (
            "".join(line(5 if at < over else 4) for at in range(lines))
            + "Prefill batch, #running-req: 9, #queue-req: 9\n"
        )

    for over, lines, queued in (
        (0, 0, 0),
        (0, 50, 0),
        (1, 10, 0),
        (2, 99, 0),
        (2, 100, 0),
        (3, 100, 0),
        (0, 50, 1),
        (50, 50, 2),
    ):
        yield (
            f"log: {over} of {lines} batches of five, {queued} queued",
            partial(adapter.check_log, log(over, lines, queued), streams=4),
        )
    for part in ("machine", "level", "sweep"):
        for busy in (0.0, 0.099, 0.101, 0.399, 0.401):
            turns = [(2 + 40 * busy, 2.0, 5.0), (1 + 40 * busy, 1.0, 5.0)]
            yield (
                f"load: {part}, {busy:.1%} by others",
                partial(adapter.check_machine, turns, cores=8, part=part),
            )
    yield (
        "load: more of our own than of all",
        partial(adapter.check_machine, [(1.0, 2.0, 5.0)], cores=8, part="machine"),
    )
    yield "load: no time at all", partial(adapter.check_machine, [(0.0, 0.0, 0.0)], cores=8, part="machine")
