"""SIGKILL pytest while it owns CUDA servers, and look whether any process or GPU memory is left.

Run: ``python -m benchmarks.gpu.kill AT DEADLINE_S LOG -- pytest-arguments``; AT is a regular expression for the line
of pytest's output (kept in LOG) at which to kill. Prints one JSON object; exit code 0 if nothing is left in time.
"""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from pytest_specprobe.server.gpu.holders import gpu_holders
from pytest_specprobe.server.gpu.nvidia_smi import gpu_memory_mib

# LC_*: one of the names that pass to a server, so that its processes are found by it too.
_TAG = "LC_SPECPROBE_GPU_KILL"
_PATIENCE_S = 400.0


def tagged(value: str) -> list[int]:
    """Return the living processes that carry the tag in their environment."""
    wanted, found = f"{_TAG}={value}".encode(), []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def main() -> int:
    """Start, wait for the line, kill, look."""
    at, deadline_s, arguments = sys.argv[1], float(sys.argv[2]), sys.argv[sys.argv.index("--") + 1 :]
    value, before = secrets.token_hex(8), gpu_memory_mib()
    log = Path(sys.argv[3])
    with log.open("wb") as output:
        victim = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, _TAG: value, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    start = time.monotonic()
    while not (seen := re.search(at, log.read_text(errors="replace"))):
        if victim.poll() is not None or time.monotonic() - start > _PATIENCE_S:
            victim.kill()
            sys.stdout.write(json.dumps({"at": at, "error": "never came to it", "exit": victim.wait()}) + "\n")
            return 2
        time.sleep(0.2)
    alive, during = tagged(value), gpu_memory_mib()
    on_gpu = [h.pid for h in gpu_holders() if h.pid in alive]
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    killed = time.monotonic()
    left: list[str] = ["not looked yet"]
    while left and time.monotonic() - killed < deadline_s:
        time.sleep(0.5)
        left = [f"process {pid}" for pid in tagged(value)]
        left += [str(holder) for holder in gpu_holders() if holder.pid in on_gpu]
    found = {
        "at": seen.group(),
        "processes": len(alive),
        "gpu_processes": len(on_gpu),
        "gone_after_s": round(time.monotonic() - killed, 1),
        "left": left,
        "memory_mib": {"before": before, "at_kill": during, "after": gpu_memory_mib()},
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
