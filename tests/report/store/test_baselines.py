"""Stored baselines: used again for the same question only, with their age, never sharper than they are."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.measure.checks.stored_baseline import check_stored
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.throughput import declared, measure_throughput
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.report.store import journal
from pytest_specprobe.report.store.baselines import (
    NAME,
    StoredBaseline,
    baseline_key,
    find,
    measured,
    mismatch,
    store,
)
from pytest_specprobe.report.store.key import Key
from tests.support.simulated_reports import World, requests
from tests.support.stored_baselines import FACTS, KEY, NOW, SPEC, SPEED, stored


def test_a_measured_baseline_is_found_again(tmp_path: Path) -> None:
    baseline = measured(SPEED, key=KEY, now=NOW)
    assert baseline is not None
    store(baseline, path=tmp_path / NAME)
    assert find(KEY, path=tmp_path / NAME) == baseline
    rate = sum(tokens for _, tokens, _ in baseline.rows) / sum(seconds for *_, seconds in baseline.rows)
    assert rate == pytest.approx(baseline.tok_per_s.value, rel=1e-5)


def test_what_was_not_measured_here_is_not_stored() -> None:
    again = measure_throughput(requests(World(), 0.6, 0.02), baseline=stored().known(now=NOW))
    assert measured(again, key=KEY, now=NOW) is None, "a stored baseline must not renew itself"
    attached = measure_throughput(
        requests(World(), 0.6, 0.02), baseline=requests(World(), None, 0.012), baseline_source="attached"
    )
    assert measured(attached, key=KEY, now=NOW) is None
    assert measured(measure_throughput(requests(World(), 0.6, 0.02), baseline=None), key=KEY, now=NOW) is None


@pytest.mark.parametrize(
    "other",
    [
        baseline_key(replace(SPEC, server_args=("--kv-cache-dtype", "fp8_e4m3")), **FACTS),
        baseline_key(replace(SPEC, tp=2), **FACTS),
        baseline_key(replace(SPEC, device="cuda"), **FACTS),
        baseline_key(replace(SPEC, env=(("OMP_NUM_THREADS", "2"),)), **FACTS),
        baseline_key(SPEC, **{**FACTS, "environ": {"OMP_NUM_THREADS": "16"}}),
        baseline_key(SPEC, **{**FACTS, "environ": {"SGLANG_CPU_OMP_THREADS_BIND": "0-7"}}),
        *(
            baseline_key(SPEC, **{**FACTS, name: "other"})
            for name in ("target", "engine", "torch", "hardware", "host", "workload", "rendering")
        ),
        *(baseline_key(SPEC, **{**FACTS, name: 7}) for name in ("max_new_tokens", "concurrency")),
    ],
)
def test_another_question_has_no_answer(tmp_path: Path, other: Key) -> None:
    store(stored(key=other), path=tmp_path / NAME)
    assert find(KEY, path=tmp_path / NAME) is None


def test_the_driver_counts_where_there_is_one() -> None:
    cuda = replace(SPEC, device="cuda")
    one, two = (baseline_key(cuda, **{**FACTS, "driver": driver}) for driver in ("570.1", "580.2"))
    assert one.differences(two) == {"driver": ("570.1", "580.2")}
    assert baseline_key(SPEC, **{**FACTS, "driver": "580.2"}) == KEY, "a server on the CPU does not use it"


def test_what_the_nearest_one_differs_in_is_said(tmp_path: Path) -> None:
    path = tmp_path / NAME
    assert mismatch(KEY, path=path) is None
    store(stored(key=baseline_key(SPEC, **{**FACTS, "target": "other"})), path=path)
    assert mismatch(KEY, path=path) is None, "another target is no answer that nearly fits"
    store(stored(1, key=baseline_key(SPEC, **{**FACTS, "torch": "2.8.0", "engine": "0.5.9"})), path=path)
    store(stored(3, key=baseline_key(SPEC, **{**FACTS, "torch": "2.8.0\x1b[31m\nrun this"})), path=path)
    said = mismatch(KEY, path=path)
    assert said is not None
    assert "differs in torch (2.8.0" in said
    assert "now 2.9.1" in said
    assert "engine" not in said
    assert said.isprintable(), "a file of others is shown, never obeyed"


def test_a_baseline_that_was_stored_without_a_part_says_so(tmp_path: Path) -> None:
    """Before driver, torch and host CPU belonged to the key."""
    old = stored(key=KEY.without("torch", "host", "driver"))
    store(old, path=tmp_path / NAME)
    assert find(KEY, path=tmp_path / NAME) is None
    said = mismatch(KEY, path=tmp_path / NAME)
    assert said is not None
    assert "host (not recorded; now 2 cores), torch (not recorded; now 2.9.1)" in said


def test_where_the_files_lie_does_not_matter() -> None:
    assert baseline_key(replace(SPEC, model="/elsewhere", python="/other/python"), **FACTS) == KEY


def test_what_the_user_exports_for_others_does_not_matter() -> None:
    """1 is what a CPU server gets anyway; the rest says where something is, or is kept from the server."""
    environ = {
        "OMP_NUM_THREADS": "1", "HOME": "/elsewhere", "SGLANG_CACHE_DIR": "/elsewhere", "NCCL_DEBUG": "INFO",
        "SGLANG_SIMULATE_ACC_LEN": "3", "PYTEST_VERSION": "9", "SGLANG_API_KEY": "secret", "CUDA_HOME": "/cuda",
    }  # fmt: skip
    assert baseline_key(SPEC, **{**FACTS, "environ": environ}) == KEY
    assert "secret" not in str(KEY.parts)


def test_a_server_that_speculates_is_no_baseline() -> None:
    speculation = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
    with pytest.raises(ValueError, match="does not speculate"):
        baseline_key(replace(SPEC, drafter=Path("d"), speculation=speculation), **FACTS)


def test_the_newest_is_used_whatever_the_order_of_lines(tmp_path: Path) -> None:
    for days, rate in ((3, 80.0), (1, 82.0), (2, 81.0)):
        store(stored(days, rate=rate), path=tmp_path / NAME)
    found = find(KEY, path=tmp_path / NAME)
    assert found is not None
    assert found.tok_per_s.value == 82.0
    assert found.known(now=NOW).age_s == pytest.approx(86_400)


def test_it_is_less_sure_than_it_was_when_measured() -> None:
    was, known = stored().tok_per_s, stored().known(now=NOW)
    assert known.source == "stored"
    assert known.tok_per_s.value == was.value
    assert known.tok_per_s.low < 0.95 * was.value < was.low
    assert known.tok_per_s.high > 1.05 * was.value > was.high
    speedup = measure_throughput(requests(World(), 0.6, 0.02), baseline=known).speedup
    beside = SPEED.speedup
    assert speedup is not None
    assert beside is not None
    assert speedup.high - speedup.low > beside.high - beside.low


def test_a_clock_that_went_back_gives_no_negative_age() -> None:
    assert stored(-1).known(now=NOW).age_s == 0


def test_lines_that_are_no_baseline_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / NAME
    journal.append(path, {"schema": 1, "created": "yesterday", "key": dict(KEY.parts), "tok_per_s": {}, "rows": []})
    journal.append(path, {**stored().to_json(), "tok_per_s": {"value": -1.0, "low": -1.0, "high": 1.0, "n": 3}})
    wrong: tuple[dict[str, Any], ...] = (
        {"first_token_s": 10**400},
        {"created": "9999-12-31T23:59:59-12:00"},
        *({"tok_per_s": {**asdict(stored().tok_per_s), "n": n}} for n in (None, "x", float("nan"), float("inf"))),
        *({"tok_per_s": {**asdict(stored().tok_per_s), "high": high}} for high in ("x", 10**400)),
    )
    for told in wrong:
        with path.open("a") as file:
            file.write(json.dumps({**stored().to_json(), **told}) + "\n")
    assert find(KEY, path=path) is None
    store(stored(), path=path)
    assert find(KEY, path=path) == stored()


@given(
    st.floats(1e-3, 1e6),
    st.floats(0.5, 1),
    st.floats(1, 2),
    st.lists(st.tuples(st.text(), st.integers(), st.floats(0, 9))),
)
def test_any_baseline_survives_its_line(
    rate: float, low: float, high: float, rows: list[tuple[str, int, float]]
) -> None:
    baseline = replace(stored(), tok_per_s=Estimate(rate, rate * low, rate * high, 5), rows=tuple(rows))
    assert StoredBaseline.parse(json.loads(json.dumps(baseline.to_json()))) == baseline


@pytest.mark.parametrize(
    ("then", "status"), [(0.2, "pass"), (0.17, "pass"), (0.15, "fail"), (0.24, "pass"), (0.26, "fail")]
)
def test_a_machine_of_another_speed_is_no_place_for_a_stored_baseline(then: float, status: str) -> None:
    """First tokens come after 0.2 s in these passes."""
    known = replace(stored(), first_token_s=then).known(now=NOW)
    again = measure_throughput(requests(World(), 0.6, 0.02), baseline=known)
    (finding,) = check_stored(again, known)
    assert finding.status == status
    assert finding.id == "measure.stored-baseline", "an id with measure. makes the measurement invalid"
    assert finding.severity == "error"


def test_only_a_stored_baseline_is_asked_for_its_machine() -> None:
    assert check_stored(SPEED, None) == ()
    assert check_stored(SPEED, declared(82.0)) == ()
