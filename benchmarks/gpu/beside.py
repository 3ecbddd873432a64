"""Serves a drafter by ``specprobe serve`` and holds our client beside SGLang's own on that server.

Run: ``python -m benchmarks.gpu.beside DRAFTER PROFILES OUT WORKLOAD``: leaves beside.json, beside.md and serve.txt
in OUT.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from pytest_specprobe.server.attach import API_KEY_VARIABLE

_SPECPROBE = "import sys; from pytest_specprobe.cli import main; sys.exit(main(sys.argv[1:]))"
_TURNS = ("--prompts", "16", "--new-tokens", "192", "--pairs", "4")


def main() -> int:
    """Serve, compare, end the server."""
    drafter, profiles, out, workload = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    env = {**os.environ, API_KEY_VARIABLE: secrets.token_hex(16)}
    words = ("serve", drafter, "--profiles", profiles, "--device", "cuda", "--report", str(out / "report"), "--json")
    with (out / "serve.txt").open("w") as told:
        serve = subprocess.Popen(
            [sys.executable, "-c", _SPECPROBE, *words], stdout=subprocess.PIPE, stderr=told, text=True, env=env
        )
    try:
        held = json.loads(serve.stdout.readline()) if serve.stdout else {}
        server = held["drafter"]
        beside = ("--server", server["url"], "--log", server["log"], "--workload", workload, *_TURNS)
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.beside_sglang", *beside, "--json", str(out / "beside.json")],
            capture_output=True,
            text=True,
            env=env,
            timeout=300,
            check=False,
        )
        (out / "beside.md").write_text(run.stdout, encoding="utf-8")
        sys.stdout.write(run.stdout + run.stderr)
        return run.returncode
    finally:
        serve.send_signal(signal.SIGTERM)
        sys.stdout.write(f"serve ended with {serve.wait(120)}\n")


if __name__ == "__main__":
    sys.exit(main())
