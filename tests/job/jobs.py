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

NAMES = ("aq_k2_mini", "scratch_k25_mini")
NATIVE = "aq_k2_mini_native"


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
