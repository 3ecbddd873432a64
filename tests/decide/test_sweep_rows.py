"""What a sweep's rows say: a verdict per setting, what cannot win, and how far a shared boot's speed is trusted."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_specprobe.decide.predicted import predict_shorter
from pytest_specprobe.decide.sweep import cannot_win
from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.request import Estimate, Generation
from pytest_specprobe.measure.sweep import Arm, How, Parity, Sweep, Trial, measure_arm
from pytest_specprobe.measure.throughput import declared, measure_throughput
from pytest_specprobe.profiles import Gate, Speculation
from pytest_specprobe.report.build import sweep_best_of, sweep_of

ONE, TWO, THREE = (Speculation(num_steps=k, eagle_topk=1, num_draft_tokens=k + 1) for k in (1, 2, 3))
TREE = Speculation(num_steps=3, eagle_topk=4, num_draft_tokens=12)
ACCEPTED: dict[Speculation, Sequence[int]] = {ONE: [1, 0], TWO: [2, 1, 0], THREE: [3, 1, 0, 0], TREE: [3, 2, 1, 0]}
BASE = declared(100.0)


def requests(setting: Speculation, round_s: float) -> list[Generation]:
    accepted = [*ACCEPTED[setting]] * 12
    tokens = 1 + sum(a + 1 for a in accepted)
    return [
        Generation(
            prompt_id=f"p{i}", workload="w", prompt_tokens=5, cached_tokens=0, completion_tokens=tokens,
            output_ids=tuple((i * 7 + t * t) % 97 for t in range(tokens)), text="", finish_reason="length",
            rounds=len(accepted), accepted=sum(accepted),
            histogram=tuple(accepted.count(k) for k in range(setting.depth + 1)), sglang_accept_length=None,
            start_s=0.0, first_s=0.1, last_s=0.1 + round_s * (1 + i % 3 / 50) * len(accepted), first_tokens=1,
            chunk_tokens=(), chunk_s=(),
        )
        for i in range(24)
    ]  # fmt: skip


def arm(setting: Speculation, round_s: float, *, own_s: float = 0.02, how: How = "one-boot", base: Any = BASE) -> Arm:
    mine, own = requests(setting, round_s), requests(TWO, own_s)
    return measure_arm(Trial(setting=setting, how=how, requests=mine, own=own, baseline=base), own=TWO, settings=3)


def probe() -> Acceptance:
    return measure_acceptance(requests(TWO, 0.02), depth=2)


def rows(sweep: Sweep, **more: Any) -> dict[str, dict[str, Any]]:
    made = sweep_of(sweep, probe=more.pop("probe", probe()), predicted=more.pop("predicted", ()), gate=Gate())
    got: list[dict[str, Any]] = [row.document() for row in made]
    json.dumps(got, allow_nan=False)
    return {row["setting"]: row for row in got}


AS_FAST = Parity(setting=TWO, ratio=Estimate(1.0, 0.97, 1.03, 24), identical=24, compared=24)


def sweep(*arms: Arm, skipped: Mapping[Speculation, str] | None = None, parity: Parity | None = AS_FAST) -> Sweep:
    settings = tuple(dict.fromkeys((TWO, *(a.setting for a in arms), *(skipped or {}))))
    return Sweep(own=TWO, settings=settings, arms=arms, skipped=skipped or {}, parity=parity, fallback=None)


def test_each_setting_has_a_verdict_of_its_own() -> None:
    """At 100 tok/s without speculation: 2/1/3 delivers 2 per 22 ms, 1/1/2 1.5 per 13 ms, 3/1/4 2 per 40 ms."""
    got = rows(sweep(arm(TWO, 0.022), arm(ONE, 0.013), arm(THREE, 0.040)))
    assert [(name, row["verdict"]) for name, row in got.items()] == [
        ("2/1/3", "verify-bound"), ("1/1/2", "profitable"), ("3/1/4", "verify-bound")
    ]  # fmt: skip
    assert got["1/1/2"]["break_even"]["value"] == pytest.approx(1.3, rel=0.05)
    assert got["1/1/2"]["best"]
    assert [row["own"] for row in got.values()] == [True, False, False]
    assert got["3/1/4"]["max_accept_length"] == 4


def test_a_drafter_that_does_not_read_its_target_pays_at_no_setting() -> None:
    blind = measure_acceptance(requests(TWO, 0.02), depth=2, blind=requests(TWO, 0.02))
    assert rows(sweep(arm(ONE, 0.013), arm(TWO, 0.02)), probe=blind)["1/1/2"]["verdict"] == "uncorrelated"


def test_a_setting_that_loses_even_if_all_is_accepted_is_not_run() -> None:
    """3/1/4 rounds of 40 ms at 100 tok/s: at most 4 tokens per round is 1.0 x; a tree of that depth is no faster."""
    slow = arm(THREE, 0.040)
    why = cannot_win(TREE, [slow, arm(ONE, 0.010)])
    assert why is not None
    assert "rounds at least as long as at 3/1/4" in why
    assert "1/1/2 surely reaches 1.4" in why
    # the same tree may win where the best so far is not above that bound
    assert cannot_win(TREE, [slow, arm(ONE, 0.016)]) is None
    # a deeper chain's rounds say nothing about a shallower tree's
    assert cannot_win(Speculation(num_steps=2, eagle_topk=4, num_draft_tokens=8), [slow, arm(ONE, 0.010)]) is None


def test_nothing_is_skipped_without_a_baseline() -> None:
    assert cannot_win(TREE, [arm(THREE, 0.040, base=None), arm(ONE, 0.010, base=None)]) is None
    assert cannot_win(TREE, []) is None


def test_a_skipped_setting_says_why_and_has_no_number() -> None:
    row = rows(sweep(arm(TWO, 0.02), skipped={TREE: "not run: the server died"}))["3/4/12"]
    assert (row["how"], row["note"], row["speedup"], row["verdict"]) == (
        "skipped",
        "not run: the server died",
        None,
        None,
    )
    assert not row["best"]


def test_an_attached_server_gives_shorter_chains_a_labelled_lower_estimate() -> None:
    deep = measure_acceptance(requests(THREE, 0.02), depth=3)
    predicted = predict_shorter(deep, measure_throughput(requests(THREE, 0.02), baseline=BASE))
    own = measure_arm(
        Trial(setting=THREE, how="attached", requests=(mine := requests(THREE, 0.02)), own=mine, baseline=BASE),
        own=THREE, settings=3,
    )  # fmt: skip
    found = Sweep(
        own=THREE, settings=(THREE, ONE, TREE), arms=(own,), skipped={ONE: "not run", TREE: "not run"}, parity=None,
        fallback=None,
    )  # fmt: skip
    got = rows(found, predicted=predicted, probe=deep)
    assert (got["1/1/2"]["how"], got["3/4/12"]["how"]) == ("lower-estimate", "skipped")
    assert got["1/1/2"]["bracket"]["accept_length_low"] == pytest.approx(1.5)
    assert got["1/1/2"]["accept_length"] is None
    assert "beats by up to 10 %" in got["1/1/2"]["note"]


@pytest.mark.parametrize(
    ("parity", "says"),
    [
        (None, "was not compared with a boot of its own"),
        (Estimate(1.0, 0.98, 1.02, 24), "as fast as a boot of its own"),
        (Estimate(1.0, 0.90, 1.10, 24), "not shown to equal a boot of its own: 1.000 [0.900, 1.100] x at 2/1/3"),
        (Estimate(0.93, 0.92, 0.94, 24), "not shown to equal"),
    ],
)
def test_the_speed_of_a_shared_boot_is_labelled_until_parity_is_shown(parity: Estimate | None, says: str) -> None:
    found = None if parity is None else Parity(setting=TWO, ratio=parity, identical=24, compared=24)
    got = rows(sweep(arm(TWO, 0.02), arm(ONE, 0.02), arm(TREE, 0.02, how="own-boot"), parity=found))
    shared, alone = got["1/1/2"], got["3/4/12"]
    assert says in shared["note"]
    assert alone["note"] == ""
    counts = found is not None and found.shown
    for name in ("verdict", "tok_per_s", "speedup", "over_own", "break_even", "round_s"):
        assert (shared[name] is not None) == counts, name
        assert alone[name] is not None
    assert bool(shared["candidates"]) == counts
    assert shared["accept_length"] is not None
    assert ("--specprobe-sweep=1/1/2 boots it on its own" in shared["note"]) != counts


def test_the_best_setting_says_how_it_is_protected_from_luck() -> None:
    better = sweep_best_of(sweep(arm(TWO, 0.02), arm(ONE, 0.010), arm(THREE, 0.03)))
    assert (better.setting, better.own, better.surely_better) == ("1/1/2", "2/1/3", True)
    assert better.settings == 3
    assert better.confidence == pytest.approx(1 - 0.05 / 3)
    own = sweep_best_of(sweep(arm(TWO, 0.02), arm(ONE, 0.02)))
    assert (own.setting, own.over_own, own.surely_better) == ("2/1/3", None, False)
