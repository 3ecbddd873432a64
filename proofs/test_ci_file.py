"""The CI files of docs/tutorial.md run as printed, in a fresh clone, as a runner would run them.

Every ``run`` step of the GitHub workflow goes through ``bash -e`` in order, a failing one leaves only those with
``always()``; what ``uses`` an action is checked for what the action would need. The packages are those of the
interpreter that runs this proof, so that ``pip install`` finds SGLang there and installs this package alone. GitLab's
file types the same lines, and its ``after_script`` runs after them.
"""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml  # type: ignore[import-untyped]  # comes with huggingface-hub

from pytest_specprobe.report.read import read_report, report_of
from pytest_specprobe.report.render.markdown import markdown
from pytest_specprobe.report.store import history

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILES = [yaml.safe_load(block) for block in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text())]
GITHUB = next(file for file in FILES if "jobs" in file)["jobs"]["gate"]
GITLAB = next(file for file in FILES if "jobs" not in file)["drafter"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True, slots=True)
class Workflow:
    """A finished job: exit code and output of each step that ran, by its command, and where it ran."""

    clone: Path
    environ: Mapping[str, str]
    steps: Mapping[str, subprocess.CompletedProcess[str]]

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        script = self.clone.parent / "step.sh"
        script.write_text(command + "\n")
        return subprocess.run(
            ["bash", "-e", script], cwd=self.clone, env=self.environ, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    folder = tmp_path_factory.mktemp("runner")
    clone, python = folder / "clone", folder / "python"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    venv.create(python, with_pip=True)
    site = next((python / "lib").glob("python*")) / "site-packages"
    # read after the package's own, which comes first in the alphabet
    (site / "zz_runner.pth").write_text("".join(f"{p}\n" for p in sys.path if p.endswith("-packages")))
    pytest_script = python / "bin" / "pytest"
    pytest_script.write_text(f'#!/bin/sh\nexec {python}/bin/python -m pytest "$@"\n')
    pytest_script.chmod(0o755)
    keep = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "GITHUB_", "CI_")) and name != "PYTHONPATH"
    }
    environ = keep | {
        "CI": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_SHA": COMMIT,
        "PATH": f"{python / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    job = Workflow(clone, environ, {})
    steps: dict[str, subprocess.CompletedProcess[str]] = {}
    for step in GITHUB["steps"]:
        failed = any(run.returncode for run in steps.values())
        if "run" in step and (not failed or step.get("if") == "always()"):
            steps[step["run"]] = job.shell(step["run"])
    return Workflow(clone, environ, steps)


@pytest.fixture(scope="module")
def report(workflow: Workflow) -> dict[str, Any]:
    return read_report(workflow.clone / ".specprobe")


def the(workflow: Workflow, start: str) -> subprocess.CompletedProcess[str]:
    return next(run for command, run in workflow.steps.items() if command.startswith(start))


def test_the_package_of_the_clone_is_what_runs(workflow: Workflow) -> None:
    install = the(workflow, "pip install")
    assert install.returncode == 0, install.stdout + install.stderr
    run = workflow.shell("python -c 'import pytest_specprobe; print(pytest_specprobe.__file__)'")
    assert run.stdout.strip() == str(workflow.clone / "pytest_specprobe" / "__init__.py")


def test_the_job_ends_with_the_verdict_that_the_tutorial_shows(workflow: Workflow, report: dict[str, Any]) -> None:
    """On a busy machine the intervals may allow another verdict too; the job then ends with 10, as it says there."""
    probe = the(workflow, "pytest ")
    entry = report["drafters"][0]
    assert "finetune" in entry["candidates"], probe.stdout
    assert probe.returncode == {"pass": 0, "inconclusive": 10}[entry["gate"]], probe.stdout
    assert probe.returncode == 0 or entry["verdict"] == "undecided"


def test_the_summary_of_the_job_is_the_report(workflow: Workflow, report: dict[str, Any]) -> None:
    told = Path(workflow.environ["GITHUB_STEP_SUMMARY"]).read_text()
    assert told.splitlines() == list(markdown(report_of(report)))
    assert "aq\\_k2\\_mini on mini\\_k25: " in told
    assert "| accept length | " in told


def test_what_is_cached_and_uploaded_is_there(workflow: Workflow, report: dict[str, Any]) -> None:
    used = {step["uses"].partition("@")[0]: step.get("with", {}) for step in GITHUB["steps"] if "uses" in step}
    kept = history.read(workflow.clone / ".specprobe").runs
    assert [run.commit for run in kept] == [COMMIT] * (report["drafters"][0]["gate"] == "pass")
    assert list(workflow.clone.glob(used["actions/cache"]["path"]))
    uploaded = workflow.clone / used["actions/upload-artifact"]["path"]
    assert {"report.json", "report.html", "logs"} <= {path.name for path in uploaded.iterdir()}
    assert the(workflow, "specprobe report").returncode == 0
    assert "<figure>" in (uploaded / "report.html").read_text(), "with its plots"


def test_gitlab_types_the_same_and_its_after_script_runs(workflow: Workflow) -> None:
    typed = list(workflow.steps)
    assert GITLAB["script"] == typed[:2]
    for command in GITLAB["after_script"]:
        run = workflow.shell(command)
        assert run.returncode == 0, run.stderr
    assert "aq\\_k2\\_mini" in run.stdout
    for path in (*GITLAB["artifacts"]["paths"], GITLAB["artifacts"]["reports"]["junit"]):
        assert (workflow.clone / path).exists()


def test_nothing_is_left_running(workflow: Workflow) -> None:
    ours = str(workflow.clone)
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if any(ours in part for part in p.info["cmdline"] or ())]
    assert not left
