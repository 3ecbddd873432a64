"""Cost of ``specprobe inspect`` at full scale against loading the same file with ``safetensors.torch``.

Run: ``python benchmarks/static_gate.py [RUNS]``. Writes a sparse Kimi-K2 drafter of 2 GB and a target of 61 shards
and 70,000 tensors under the temporary directory, then runs each way in a process of its own, first of all once for
the page cache. Medians of the wall time of the whole process (interpreter start and imports included), of the work
alone, and of the peak resident memory that the operating system saw. Prints one table. Needs torch (the extra
[sglang]).
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.full_scale import kimi_k2

TIMED = """
import sys
from pathlib import Path
from time import perf_counter
{imports}
start = perf_counter()
{work}
print(perf_counter() - start)
"""
INSPECT = TIMED.format(
    imports="from pytest_specprobe.checkpoint.inspect import inspect",
    work="inspect(Path(sys.argv[1]), target=Path(sys.argv[2]) if sys.argv[2:] else None)",
)
# Cloned, as an engine would: load_file alone maps the file and has read nothing yet.
LOAD = TIMED.format(
    imports="from safetensors.torch import load_file",
    work="tensors = {n: t.clone() for n, t in load_file(sys.argv[1] + '/model.safetensors').items()}",
)


@dataclass(frozen=True)
class Cost:
    """Medians over processes: wall time of the whole, wall time of the work alone, peak resident memory."""

    seconds: float
    work_s: float
    megabytes: float


def measure(code: str, arguments: Sequence[str], *, runs: int) -> Cost:
    """Run ``python -c code arguments`` ``runs`` times after one run that warms the page cache."""
    rows = [_once(code, arguments) for _ in range(runs + 1)][1:]
    return Cost(*(statistics.median(column) for column in zip(*rows, strict=True)))


def _once(code: str, arguments: Sequence[str]) -> tuple[float, float, float]:
    start = perf_counter()
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=writer)
    os.close(writer)
    with os.fdopen(reader) as output:
        work_s = float(output.read())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return perf_counter() - start, work_s, usage.ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="specprobe-bench-") as folder:
        paths = [str(path) for path in kimi_k2(Path(folder))]
        alone, beside = measure(INSPECT, paths[:1], runs=runs), measure(INSPECT, paths, runs=runs)
        load = measure(LOAD, paths[:1], runs=runs)
    ratio = Cost(load.seconds / alone.seconds, load.work_s / alone.work_s, load.megabytes / alone.megabytes)
    rows = {
        "inspect the drafter": alone,
        "inspect it beside its target": beside,
        "load with safetensors.torch": load,
        "load / inspect the drafter": ratio,
    }
    lines = [f"{'':<28} {'wall s':>8} {'work s':>8} {'peak MB':>9}"]
    lines += [f"{name:<28} {c.seconds:>8.2f} {c.work_s:>8.3f} {c.megabytes:>9.1f}" for name, c in rows.items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
