"""What the tool itself costs, as ratios taken in one run: ``python -m benchmarks.own_cost [RUNS] [--json FILE]``.

Start-up of a pytest run that names no drafter against one without the plugin; the static gate and staging of a
drafter of 2 GB (sparse: its pages read as zeros) against copying the file and loading it with ``safetensors.torch``.
The ways take turns, forwards and backwards, so that a drift of the machine meets all alike; medians. Prints one
table. Needs torch (the extra [sglang]). What clients and boots cost is in every report: docs/records.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

from pytest_specprobe.checkpoint.inspect import inspect
from pytest_specprobe.staging import stage
from tests.support.full_scale import kimi_k2

_LOAD = "import sys; from safetensors.torch import load_file; [t.clone() for t in load_file(sys.argv[1]).values()]"
_POSITIONS = 262_144


def turns(ways: Mapping[str, Callable[[], object]], *, runs: int) -> dict[str, float]:
    """Return the median seconds of each way; the first turn of all warms up and is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs + 1):
        for name in ways if run % 2 else reversed(list(ways)):
            start = perf_counter()
            ways[name]()
            seconds[name].append(perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def start_up(folder: Path) -> dict[str, Callable[[], object]]:
    """Return the two ways to start a pytest with one empty test."""
    (folder / "test_empty.py").write_text("def test_nothing():\n    pass\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def pytest(*words: str) -> Callable[[], object]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir=.",
            *words,
            "test_empty.py",
        ]
        return lambda: subprocess.run(command, cwd=folder, env=env, capture_output=True, check=True)

    return {"pytest without the plugin": pytest("-p", "no:specprobe"), "pytest with the plugin, no drafter": pytest()}


def handling(folder: Path) -> dict[str, Callable[[], object]]:
    """Return the ways to look at, stage, copy and load the same drafter."""
    drafter, target = kimi_k2(folder)
    weights, cache, copy = drafter / "model.safetensors", folder / "cache", folder / "copy"

    def staged() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        stage(drafter, cache=cache, target_positions=_POSITIONS)

    stage(drafter, cache=folder / "kept", target_positions=_POSITIONS)
    return {
        "static gate beside its target": lambda: inspect(drafter, target=target),
        "staging, first time": staged,
        "staging, again": lambda: stage(drafter, cache=folder / "kept", target_positions=_POSITIONS),
        "copying the file": lambda: shutil.copyfile(weights, copy),
        "loading it with safetensors.torch": lambda: subprocess.run(
            [sys.executable, "-c", _LOAD, weights], check=True
        ),
    }


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_cost", description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=int, nargs="?", default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specprobe-cost-") as folder:
        seconds = turns(start_up(Path(folder)), runs=3 * given.runs)
        seconds |= turns(handling(Path(folder)), runs=given.runs)
    plain, idle, gate, first, again, copy, load = seconds.values()
    ratios = {
        "start_up": idle / plain,
        "gate_over_load": gate / load,
        "first_staging_over_copy": first / copy,
        "staging_again_over_copy": again / copy,
        "staging_again_over_load": again / load,
    }
    for name, value in seconds.items():
        sys.stdout.write(f"{name:<36} {value:>8.3f} s\n")
    for name, value in ratios.items():
        sys.stdout.write(f"{name:<36} {value:>8.3f}\n")
    if given.json:
        found = {"runs": given.runs, "seconds": seconds, "ratios": ratios}
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
