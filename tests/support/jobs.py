"""Running the product as a user would type it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from pytest_specprobe.measure import workloads
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.statistics import combine, resample

NAME = "aq_k2_mini"
# the mini family's workload has 32 prompts; answers of these run long, and would take a third of the time
_LONG = {"code-16", "code-11", "docs-11", "code-14", "docs-08", "code-08", "code-13"}


@dataclass(frozen=True, slots=True)
class Job:
    """One finished run of the product."""

    code: int
    output: str
    folder: Path
    seconds: float

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / ".specprobe" / "report.json").read_text())
        return found

    @property
    def entries(self) -> Mapping[str, dict[str, Any]]:
        return {entry["name"]: entry for entry in self.report["drafters"]}

    @property
    def junit(self) -> ET.Element:
        return ET.parse(self.folder / "junit.xml").getroot()  # noqa: S314  (pytest wrote it)


def write_short_workload(folder: Path) -> None:
    """Write ``short.jsonl``: the prompts of the mini family whose answers are short, 25 of them."""
    whole = Path(workloads.__file__).with_name("workloads") / "mini.jsonl"
    lines = whole.read_text().splitlines(keepends=True)
    (folder / "short.jsonl").write_text("".join(line for line in lines if json.loads(line)["id"] not in _LONG))


def gain(better: dict[str, Any], moved: dict[str, Any]) -> Estimate:
    """Return how much longer one drafter's accept length is than another's, paired over the prompts of both."""
    one, two = _rows(better), _rows(moved)
    shared = sorted(one.keys() & two.keys())
    samples = resample([two[i]["workload"] for i in shared])

    def length(found: dict[str, dict[str, Any]]) -> Any:
        rounds = np.array([found[i]["rounds"] for i in shared], dtype=float)
        accepted = np.array([found[i]["accepted"] for i in shared], dtype=float)
        return samples.ratio(rounds + accepted, rounds)

    return combine(np.subtract, length(one), length(two)).estimate()


def _rows(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in entry["acceptance"]["prompts"] if row["dropped"] is None}


def run_job(folder: Path, *args: str, timeout: float = 900) -> Job:
    """Run pytest in ``folder`` with ``args`` and wait for it."""
    start = time.monotonic()
    # an outer pytest's settings must not reach the inner one
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=junit.xml", *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Job(run.returncode, run.stdout + run.stderr, folder, time.monotonic() - start)
