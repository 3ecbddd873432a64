"""Self-checks: each planted fault gives its own finding, and a sound pass gives none."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from pytest_specprobe.errors import MeasurementError
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.checks import validity
from pytest_specprobe.measure.checks.texts import check_texts, dropped_prompts
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.throughput import declared, measure_throughput

Make = Callable[..., Generation]
ROUNDS = [0, 1, 2, 0, 1, 0] * 6


def sound(make: Make) -> list[Generation]:
    return [make(f"p{i}", ROUNDS, depth=2) for i in range(8)]


def failing(findings: Iterable[Finding]) -> list[str]:
    return [f.id for f in findings if f.status == "fail"]


def test_a_sound_pass_fails_nothing_and_says_what_was_looked_at(make: Make, plain: Make) -> None:
    own = sound(make)
    base = [plain(f"p{i}", own[0].completion_tokens) for i in range(8)]
    acceptance, throughput = measure_acceptance(own, depth=2), measure_throughput(own, baseline=base)
    tokens = own[0].completion_tokens
    findings = [
        *validity.check_requests(own, depth=2),
        *validity.check_acceptance(acceptance, own, server_mean=acceptance.accept_length.value),
        *check_texts(own, target=base),
        *validity.check_throughput(throughput, own, baseline=base, new_tokens=tokens, acceptance=acceptance),
    ]
    assert failing(findings) == []
    assert len({f.id for f in findings}) == len(findings) == 14
    assert all(f.seen and f.expected and f.why and f.fix for f in findings)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rounds": None, "accepted": None, "histogram": None}, ["proof.no-speculation-fields"]),
        ({"rounds": 0, "accepted": 0, "histogram": (0, 0, 0)}, ["proof.no-speculation-fields"]),
        ({"histogram": (18, 12, 7)}, ["measure.histogram"]),
        ({"histogram": (18, 12, 5, 1)}, ["measure.histogram"]),
        ({"completion_tokens": 62}, ["measure.token-count", "measure.server-mean"]),
        ({"completion_tokens": 58}, ["measure.token-count", "measure.server-mean"]),
        ({"sglang_accept_length": 1.0}, ["measure.server-mean"]),
        ({"completion_tokens": 59, "sglang_accept_length": 59 / 36}, []),  # two drafts trimmed at the end
        ({"sglang_accept_length": None}, []),
    ],
)
def test_one_request_that_contradicts_itself(make: Make, change: dict[str, object], expected: list[str]) -> None:
    own = sound(make)
    assert own[3].completion_tokens == 61
    assert own[3].histogram == (18, 12, 6)
    own[3] = replace(own[3], **change)  # type: ignore[arg-type]
    findings = validity.check_requests(own, depth=2)
    assert failing(findings) == expected
    assert all("p3" in f.seen for f in findings if f.status == "fail")


@pytest.mark.parametrize(
    ("rounds", "pinned"),
    [
        ([2] * 60, True),
        ([1] * 60, True),  # simulated acceptance of a whole number
        ([1, 2] * 60, True),  # simulated acceptance of 2.5: nothing is ever rejected
        ([0] * 60, False),  # a dead drafter is a result, not a fault of the measurement
        ([2] * 55 + [0] * 5, False),
        ([2] * 5, False),  # too few to tell
    ],
)
def test_acceptance_that_does_not_look(make: Make, rounds: list[int], pinned: bool) -> None:
    own = [make(f"p{i}", rounds, depth=2) for i in range(3)]
    found = failing(validity.check_acceptance(measure_acceptance(own, depth=2), own))
    assert ("measure.pinned" in found) is pinned


def test_ends_that_cut_drafts_do_not_hide_acceptance_that_does_not_look(make: Make) -> None:
    """A last round of each answer is cut short, in every number but in this check."""
    own = [make(f"p{i}", [2] * 20, depth=2, trimmed=2) for i in range(3)]
    got = measure_acceptance(own, depth=2)
    assert got.histogram == (3, 0, 57)
    assert "measure.pinned" in failing(validity.check_acceptance(got, own))


@pytest.mark.parametrize(("loops", "invalid"), [(0, False), (2, False), (3, True)])
def test_more_than_a_quarter_of_looping_target_texts(make: Make, plain: Make, loops: int, invalid: bool) -> None:
    own = sound(make)
    target = [plain(f"p{i}", 60, output_ids=[1, 2] * 30 if i < loops else None) for i in range(8)]
    dropped = dropped_prompts(target)
    assert list(dropped) == [f"p{i}" for i in range(loops)]
    assert ("measure.looping" in failing(check_texts(own, target=target))) is invalid


def test_loops_are_looked_for_in_the_targets_text_not_the_drafters(make: Make, plain: Make) -> None:
    own = [make(f"p{i}", ROUNDS, depth=2, output_ids=[1, 2] * 31) for i in range(8)]
    target = [plain(f"p{i}", 60) for i in range(8)]
    assert "measure.looping" not in failing(check_texts(own, target=target))
    assert "measure.looping" in failing(check_texts(own))


def test_one_token_repeated_where_the_target_writes_text(make: Make, plain: Make) -> None:
    own = sound(make)
    own[0] = replace(own[0], output_ids=(0,) * own[0].completion_tokens)
    target = [plain(f"p{i}", 60) for i in range(8)]
    assert failing(check_texts(own, target=target)) == ["measure.one-token"]
    target[0] = plain("p0", 60, output_ids=[0] * 60)
    assert failing(check_texts(own, target=target)) == []


def test_many_one_token_texts_are_the_engines_even_if_the_target_alone_writes_them(make: Make, plain: Make) -> None:
    """NaN in the target itself: both servers write the same token for ever, which is no loop of the workload's."""
    own = [replace(g, output_ids=(0,) * g.completion_tokens) for g in sound(make)]
    target = [plain(f"p{i}", 60, output_ids=[0] * 60) for i in range(8)]
    (found,) = [f for f in check_texts(own, target=target) if f.status == "fail"]
    assert (found.id, found.culprit, found.severity) == ("measure.one-token", "engine", "error")
    assert failing(check_texts(own)) == ["measure.one-token"]


def test_prefills_token_and_the_end_do_not_hide_one_repeated_token(make: Make) -> None:
    """Simulated acceptance: the first token is the target's, then one token for ever, then the end."""
    own = [replace(g, output_ids=(i, *([100] * 40), 2)) for i, g in enumerate(sound(make))]
    assert failing(check_texts(own)) == ["measure.one-token"]


@pytest.mark.parametrize(("stuck", "severity"), [(0, None), (2, "warning"), (3, "error")])
def test_without_the_targets_text_a_few_one_token_texts_are_a_warning(
    make: Make, stuck: int, severity: str | None
) -> None:
    own = sound(make)
    own[:stuck] = [replace(g, output_ids=(0,) * 9) for g in own[:stuck]]
    findings = check_texts(own)
    found = {f.id: f for f in findings if f.status == "fail"}
    assert (found["measure.one-token"].severity if found else None) == severity


def test_a_histogram_may_have_empty_places_but_no_negative_ones(make: Make) -> None:
    own = [make(f"p{i}", [0, 2], depth=2) for i in range(3)]
    assert failing(validity.check_requests(own, depth=2)) == []
    own[0] = replace(own[0], histogram=(2, -2, 2))
    assert failing(validity.check_requests(own, depth=2)) == ["measure.histogram"]


def test_what_was_seen_is_short(make: Make) -> None:
    own = [replace(g, cached_tokens=5) for g in sound(make)]
    (found,) = [f for f in validity.check_requests(own, depth=2) if f.status == "fail"]
    assert found.seen == "8 of 8 requests: p0, p1, p2, ..."
    loops = [replace(g, output_ids=(1, 2) * 30) for g in own[:2]]
    got = check_texts([*loops, *own[2:]])
    (texts,) = [f for f in got if f.id == "measure.looping"]
    assert texts.seen.startswith("2 of 8 target texts loop (p0 ends in a loop of 2 tokens")


@pytest.mark.parametrize(("gap", "stalled"), [(0.5, False), (0.7, True)])
def test_a_stall_is_long_against_the_usual_gap_and_the_request(make: Make, gap: float, stalled: bool) -> None:
    own = [make(f"p{i}", [0, 1] * 18, depth=2, round_s=0.03) for i in range(3)]
    times = own[0].chunk_s
    own[0] = replace(own[0], chunk_s=(*times[:-1], times[-2] + gap), last_s=times[-2] + gap)
    got = measure_throughput(own, baseline=None)
    assert ("measure.stall" in failing(validity.check_throughput(got, own))) is stalled
    long = [make(f"p{i}", [0, 1] * 400, depth=2, round_s=0.03) for i in range(3)]
    times = long[0].chunk_s
    long[0] = replace(long[0], chunk_s=(*times[:-1], times[-2] + gap), last_s=times[-2] + gap)
    assert failing(validity.check_throughput(measure_throughput(long, baseline=None), long)) == []


@pytest.mark.parametrize(("mean", "expected"), [(1.70, []), (1.9, ["measure.server-total"])])
def test_the_servers_running_mean(make: Make, mean: float, expected: list[str]) -> None:
    """It covers every request of the pass, dropped prompts too."""
    own = sound(make)
    got = measure_acceptance([*own, make("loop", [2] * 40, depth=2)], depth=2, dropped={"loop": "loops"})
    assert got.accept_length.value == pytest.approx(1.667, abs=1e-3)
    assert failing(validity.check_acceptance(got, own, server_mean=mean)) == expected
    with_loop = [*own, make("loop", [2] * 40, depth=2)]
    assert failing(validity.check_acceptance(got, with_loop, server_mean=1.83)) == []


@pytest.mark.parametrize(("uncounted", "expected"), [(0, ["measure.server-total"]), (40, [])])
def test_the_servers_total_lacks_what_its_log_interval_left_over(
    make: Make, uncounted: int, expected: list[str]
) -> None:
    """Seen: 1.463 for 1.549 over 432 rounds, of which up to 40 were not counted yet."""
    own = [make(f"p{i}", [0, 1, 0, 2, 0, 0] * 9, depth=2) for i in range(8)]
    got = measure_acceptance(own, depth=2)
    assert got.rounds == 432
    mean = got.accept_length.value - 0.15
    assert failing(validity.check_acceptance(got, own, server_mean=mean, uncounted=uncounted)) == expected


@pytest.mark.parametrize(("tok_s", "expected"), [(35.0, []), (30.0, ["measure.speedup-above-accept-length"])])
def test_a_speedup_above_the_accept_length_is_a_broken_baseline(
    make: Make, tok_s: float, expected: list[str]
) -> None:
    own = sound(make)  # 55.6 tok/s at accept length 1.667
    got = measure_throughput(own, baseline=declared(tok_s))
    assert failing(validity.check_throughput(got, own)) == expected


def test_passes_that_disagree_are_a_warning(make: Make) -> None:
    own = sound(make)
    other = measure_acceptance([make(f"p{i}", [*ROUNDS, 2, 2, 2, 2, 2], depth=2) for i in range(8)], depth=2)
    findings = validity.check_throughput(measure_throughput(own, baseline=None), own, acceptance=other)
    (found,) = [f for f in findings if f.status == "fail"]
    assert (found.id, found.severity) == ("measure.passes-disagree", "warning")
    assert "1.67, 1.83" in found.seen


def test_faults_of_a_throughput_pass(make: Make, plain: Make) -> None:
    own = sound(make)
    base = [plain(f"p{i}", 61) for i in range(8)]
    got = measure_throughput(own, baseline=base)
    base[1] = replace(base[1], completion_tokens=60)
    times = own[4].chunk_s
    own[4] = replace(own[4], chunk_s=(*times[:-1], times[-1] + 2.0), last_s=times[-1] + 2.0)
    lengths = {g.prompt_id: 61 for g in own}
    findings = validity.check_throughput(got, own, baseline=base, new_tokens=lengths)
    assert failing(findings) == ["measure.length", "measure.stall"]
    assert [f.severity for f in findings if f.status == "fail"] == ["error", "warning"]


@pytest.mark.parametrize("side", ["drafter", "baseline"])
def test_prefix_hits_on_either_server_are_a_warning(make: Make, plain: Make, side: str) -> None:
    own, base = sound(make), [plain(f"p{i}", 61) for i in range(8)]
    group = own if side == "drafter" else base
    group[2] = replace(group[2], cached_tokens=64)
    (found,) = [f for f in validity.check_requests(own, depth=2, plain=base) if f.status == "fail"]
    assert (found.id, found.severity) == ("measure.prefix-hit", "warning")
    assert "p2" in found.seen


def test_a_failed_request_makes_the_measurement_invalid() -> None:
    error = MeasurementError("request p3 failed: connection lost", culprit="engine", fix="read the log")
    finding = validity.invalid(error)
    assert finding.id == "measure.failed"
    assert (finding.status, finding.severity, finding.culprit) == ("fail", "error", "engine")
    assert "p3" in finding.seen
