"""The root conftest.py: every test has one tier, and no other project's run notices that the file is there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, TIERS, tier_of

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("test_*.py"))
CHILDREN = {"subprocess", "multiprocessing"}
ABSENT = ("hypothesis", "pytest_timeout", "xdist", "safetensors", "jsonschema", "matplotlib")
REFUSE = f"""
import sys


class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Refuse)
"""
PLUGINS = ("hypothesispytest", "timeout", "xdist", "xdist.looponfail")
LOOK = """
import sys


def pytest_collection_finish(session):
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    files = [getattr(p, "__file__", None) for p in session.config.pluginmanager.get_plugins()]
    print("MARKS", sorted(marks), "HYPOTHESIS", "hypothesis" in sys.modules, "LOADED", ROOT in files)
"""


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return {*names, *(n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom))}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_unit_test_starts_no_child(path: Path) -> None:
    tier = tier_of(path.relative_to(TESTS))
    assert tier in TIERS
    assert tier != "unit" or not CHILDREN & imports(path)


def test_this_run_has_the_tiers(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("plugin") is not None
    marks = {name for name in TIERS if request.node.get_closest_marker(name)}
    assert marks == {"plugin"}


def test_a_probe_in_this_repository_needs_no_package_of_its_tests() -> None:
    """The README's first command: this file is loaded, and the packages of the ``test`` extra are not installed."""
    words = ["--specprobe-drafter=aq_k2_mini", "--specprobe-device=cpu", "--collect-only", "-p", "no:cacheprovider"]
    # an installed plugin would be imported as such, and only where it is installed
    words += [word for plugin in PLUGINS for word in ("-p", f"no:{plugin}")]
    code = f"{REFUSE}\nimport pytest\nsys.exit(pytest.main({words!r}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "<Function test_boot[aq_k2_mini]>" in run.stdout


def test_another_project_s_run_is_left_alone(pytester: pytest.Pytester) -> None:
    """The shipped suite lies below this repository's root, so its conftest.py is loaded, and does nothing."""
    pytester.makeconftest(f"ROOT = {str(ROOT / 'conftest.py')!r}\n{LOOK}")
    asked = (
        "--specprobe-drafter=aq_k2_mini",
        "--specprobe-device=cpu",
        "--collect-only",
        "-p",
        "no:hypothesispytest",
    )
    run = pytester.runpytest_subprocess(*asked, "-s")
    assert run.ret == 0
    said = next(line for line in run.outlines if "MARKS" in line)
    assert "HYPOTHESIS False LOADED True" in said, "else this shows nothing"
    assert not any(f"{name!r}" in said for name in TIERS)
    listed = pytester.runpytest_subprocess("--markers")
    assert not any(f"@pytest.mark.{name}:" in line for line in listed.outlines for name in TIERS)
