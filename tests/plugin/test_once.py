"""However pytest is asked to run, a session boots a drafter's server once, and leaves nothing: on the stand-in."""

import json
from pathlib import Path

import pytest

from pytest_specprobe.server.process import supervisor
from tests.support.held import stand_in

SHUFFLE = """
import random

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    random.Random(7).shuffle(items)
    print("order:", [item.name for item in items])
"""
OWN = """
def test_first(specprobe_client):
    assert specprobe_client.version() == "0.0-fake"


def test_fails(specprobe_server):
    assert specprobe_server.url == "not so"


def test_last(specprobe_client):
    assert specprobe_client.healthy()
"""


@pytest.fixture
def probe(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a probe on the stand-in, which counts its boots."""
    python = stand_in(pytester.path / "python")
    plan = {"pair": True, "count": str(pytester.path / "boots")}
    monkeypatch.setenv("FAKE_SGLANG", json.dumps(plan))
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(pytester.path / "state"))
    pytester.makepyfile(test_own=OWN)
    return [
        "--specprobe-drafter=dense_mini",
        "--specprobe-device=cpu",
        f"--specprobe-python={python}",
        "--specprobe-baseline=none",
        "--no-specprobe-blind",
    ]


def boots(folder: Path) -> int:
    """Count the boots so far; none of them is alive."""
    path = folder / "boots"
    pids = [int(line) for line in path.read_text().splitlines()] if path.exists() else []
    alive = [p for p in map(supervisor.read_process, pids) if p is not None and not p.zombie]
    assert alive == []
    assert not list((folder / "state").glob("servers/*"))
    return len(pids)


def test_in_any_order_and_without_a_cache_one_boot_serves_all(pytester: pytest.Pytester, probe: list[str]) -> None:
    pytester.makeconftest(SHUFFLE)
    result = pytester.runpytest_subprocess(*probe, "-p", "no:cacheprovider", "test_own.py", "specprobe/test_boot.py",
                                           "specprobe/test_acceptance.py", "-s")  # fmt: skip
    shuffled = next(line for line in result.outlines if line.startswith("order:"))
    assert not shuffled.startswith("order: ['test_boot[")
    result.assert_outcomes(passed=5, failed=1)
    assert boots(pytester.path) == 1
    assert not (pytester.path / ".pytest_cache").exists()


def test_stopping_early_rerunning_failures_and_only_collecting(pytester: pytest.Pytester, probe: list[str]) -> None:
    assert pytester.runpytest_subprocess(*probe, "test_own.py", "--co").ret == 0
    assert boots(pytester.path) == 0
    stopped = pytester.runpytest_subprocess(*probe, "test_own.py", "-x")
    stopped.assert_outcomes(passed=1, failed=1)
    assert boots(pytester.path) == 1
    again = pytester.runpytest_subprocess(*probe, "test_own.py", "--lf")
    again.assert_outcomes(failed=1)
    assert boots(pytester.path) == 2


def test_two_drafters_in_any_order_are_a_boot_each(pytester: pytest.Pytester, probe: list[str]) -> None:
    pytester.makeconftest(SHUFFLE)
    (pytester.path / "specprobe.toml").write_text(
        '[drafters.other]\nsource = "fixtures://dense_mini"\ntarget = "mini_llama"\n'
        "speculation = { num_steps = 3, eagle_topk = 1, num_draft_tokens = 4 }\n"
    )
    probe[0] += ",other"
    result = pytester.runpytest_subprocess(*probe, "test_own.py", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, failed=2)
    assert boots(pytester.path) == 2
