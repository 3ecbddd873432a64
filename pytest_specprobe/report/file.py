"""report.json: what it holds and how it is written."""

import json
import os
import platform
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import psutil

from pytest_specprobe.report.model.report import Comparison, DrafterReport, Report
from pytest_specprobe.report.model.servers import Machine, Tool

SCHEMA: Literal[1] = 1
NAME = "report.json"


def compose(
    entries: Iterable[DrafterReport],
    comparisons: Iterable[Comparison] = (),
    *,
    gpus: Sequence[str],
    gpu_driver: str | None = None,
) -> Report:
    """Return the whole report of a session around its drafters' entries."""
    return Report(
        schema=SCHEMA,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=Tool(name="pytest-specprobe", version=version("pytest-specprobe")),
        machine=machine(gpus=gpus, gpu_driver=gpu_driver),
        drafters=tuple(entries),
        comparisons=tuple(comparisons),
    )


def machine(*, gpus: Sequence[str], gpu_driver: str | None) -> Machine:
    """Return the ``machine`` object of report.json: what this run was on."""
    return Machine(
        cpu=_cpu(),
        cores=psutil.cpu_count(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        gpus=tuple(gpus),
        gpu_driver=gpu_driver,
    )


def _cpu() -> str:
    """Return the CPU's own name, which ``platform`` does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()


def write(report: Report, *, folder: Path) -> Path:
    """Write ``report.json`` below ``folder`` in one step: a reader sees the old file or the new one, whole.

    :raises OSError: if the folder cannot be written.
    :raises ValueError: if a number is NaN or infinite; undefined is None in a report.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report.document(), indent=1, allow_nan=False)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".report-", suffix=".json")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        temporary.replace(folder / NAME)
    finally:
        temporary.unlink(missing_ok=True)
    return folder / NAME
