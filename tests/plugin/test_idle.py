"""Without a named drafter the plugin adds nothing and imports nothing heavy."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "torch", "httpx", "sglang", "transformers", "pydantic", "psutil", "huggingface_hub", "safetensors"}


def test_start_up_imports_nothing_heavy() -> None:
    # pytest-benchmark may import what it likes; this is about what our plugin adds to plain pytest
    code = (
        "import sys, pytest; before = set(sys.modules); import pytest_specprobe.plugin\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; print(*sorted(new))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()).isdisjoint(HEAVY), run.stdout


def test_adds_no_tests_and_no_header(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own():\n    pass\n")
    result = pytester.runpytest_subprocess("--collect-only", "-q")
    result.stdout.fnmatch_lines(["test_adds_no_tests_and_no_header.py::test_own", "1 test collected*"])
    assert "specprobe:" not in result.stdout.str()


def test_does_not_write_a_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own():\n    pass\n")
    assert pytester.runpytest_subprocess().ret == 0
    assert not (pytester.path / ".specprobe").exists()


def test_a_specprobe_fixture_without_a_drafter_says_what_to_type(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(specprobe_client):\n    pass\n")
    result = pytester.runpytest_subprocess()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*pytest --specprobe-drafter=NAME*"])


def test_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures")
    names = ("profile", "checkpoint", "staged", "server", "baseline", "client", "acceptance", "throughput")
    for name in names:
        result.stdout.fnmatch_lines([f"specprobe_{name} [[]session scope[]]*", "    Give *"])
