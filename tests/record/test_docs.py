"""The docs say what the code does: generated pages are fresh, and every block of commands is run or parsed.

Blocks marked ``console`` are run in one folder per page and their output is compared (``...`` stands for anything).
Blocks marked ``bash`` may boot servers, so that they are not run as they are: pytest is configured with them, and
``specprobe`` commands are parsed. The CI files are taken apart and treated in the same way.
"""

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with huggingface-hub

from docs.build_reference import reference, verbs
from pytest_specprobe.checkpoint.table import markdown as checks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLE = DOCS / "records" / "mini-cpu"
PAGES = ("tutorial.md", "how-to.md", "why-accept-length-above-one-is-not-a-gate.md")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
WEB = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (DOCS / page).read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[str]:
    """Every command that a page tells its reader to type, without its comment."""
    for block in blocks(page, "bash"):
        yield from (line.split("   #")[0].strip() for line in block.splitlines() if line.strip())
    for block in blocks(page, "yaml"):
        for job in jobs(yaml.safe_load(block)):
            yield from job


def jobs(document: dict[str, Any]) -> Iterator[list[str]]:
    if "jobs" in document:
        for job in document["jobs"].values():
            yield [step["run"] for step in job["steps"] if "run" in step]
    else:
        for job in document.values():
            yield [*job["script"], *job["after_script"]]


COMMANDS = sorted({command for page in PAGES for command in commands(page)})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a finished run in it, as ``.specprobe``."""
    shutil.copytree(EXAMPLE, tmp_path / ".specprobe")
    return tmp_path


def shell(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GITHUB_"))}
    env = keep | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100",
        "FIXTURES": str(ROOT / "fixtures"), "EXAMPLE": str(home / ".specprobe"),
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-c", command], cwd=home, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def test_reference_is_fresh() -> None:
    assert (DOCS / "reference.md").read_text() == reference(), "python -m docs.build_reference > docs/reference.md"


def test_checks_are_fresh() -> None:
    made = checks()
    assert (DOCS / "checks.md").read_text() == made, "python -m pytest_specprobe.checkpoint.table > docs/checks.md"


@pytest.mark.parametrize("page", PAGES)
def test_console_blocks_say_what_really_happens(page: str, home: Path) -> None:
    checker = doctest.OutputChecker()
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, wanted = part.partition("\n")
            run = shell(command, home)
            seen = (run.stdout + run.stderr).replace(str(home), "HOME")
            right = checker.check_output(wanted, seen, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            assert right, f"$ {command}\nwanted:\n{wanted}\nsaw:\n{seen}"


@pytest.mark.parametrize("command", [c for c in COMMANDS if re.search(r"(^| )specprobe ", c) and "=..." not in c])
def test_specprobe_commands_are_ones(command: str) -> None:
    _, verb, *arguments = shlex.split(command)
    verbs()[verb].parse_args(arguments)


PROBES = sorted({c.partition("pytest ")[2] for c in COMMANDS if "pytest --specprobe" in c})


@pytest.mark.filterwarnings("ignore:Can.t compare")
@pytest.mark.parametrize("arguments", PROBES)
def test_pytest_commands_are_ones(pytester: pytest.Pytester, arguments: str) -> None:
    """No unknown option, value or profile among them; as far as a run goes before it collects anything."""
    known = arguments.replace("my-drafter-eagle3", "aq_k2_mini").replace(" test_mine.py", "")
    config = pytester.parseconfigure(*shlex.split(known))
    assert config.pluginmanager.has_plugin("specprobe-active")


def test_ci_files_install_what_there_is_and_report(home: Path) -> None:
    found = [job for block in blocks("tutorial.md", "yaml") for job in jobs(yaml.safe_load(block))]
    assert len(found) == 2
    for steps in found:
        install, probe, *after = steps
        extras = re.findall(r"\[(.*?)\]", install)[0].split(",")
        assert set(extras) <= EXTRAS.keys()
        assert probe.startswith("pytest --specprobe-drafter=")
        for command in after:
            assert shell(command, home).returncode == 0, command
        assert (home / ".specprobe" / "report.html").exists()


@pytest.mark.parametrize("page", [*PAGES, "reference.md", "checks.md"])
def test_links_lead_somewhere(page: str) -> None:
    for link in WEB.findall((DOCS / page).read_text()):
        assert (DOCS / link).exists(), link


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_compile(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block, page, "exec")
    for block in blocks(page, "toml"):
        tomllib.loads(block)
