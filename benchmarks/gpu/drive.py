"""Runs named steps on a GPU host, each on its own: a deadline, a folder for what it leaves, and no say in the others.

Run in a work folder, with the repository and the installed packages on PYTHONPATH:
``python -m benchmarks.gpu.drive STEP ... [--until SECONDS]``. Every step leaves ``out/STEP/`` (log.txt, result.json,
and a probe its report folder); ``--until`` is how long all of them may take. Prints one line per step, last.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest_specprobe
from pytest_specprobe.server.gpu.holders import gpu_holders
from pytest_specprobe.server.gpu.nvidia_smi import gpu_memory_mib

HERE = Path(__file__).parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
SPECPROBE = (sys.executable, "-c", "import sys; from pytest_specprobe.cli import main; sys.exit(main(sys.argv[1:]))")
SMOLLM2 = (sys.executable, "-m", "fixtures.build.smollm2")
RANDOM = (sys.executable, "-m", "fixtures.build.random_pair")
_WORKLOADS = Path(pytest_specprobe.__file__).parent / "measure" / "workloads"
_PER_DOMAIN = 10
_GRACE_S = 40.0


@dataclass(frozen=True, slots=True)
class Step:
    """One command; ``expect`` is the exit code that counts as success, None: any verdict (0, 1 or 10)."""

    argv: tuple[str, ...]
    timeout_s: float = 300.0
    expect: int | None = 0
    env: Mapping[str, str] = field(default_factory=dict)


def probe(drafter: str, *more: str, expect: int | None = None, timeout_s: float = 420.0) -> Step:
    """Return the step that probes one drafter; ``{out}`` stands for the step's folder."""
    words = (
        f"--specprobe-drafter={drafter}",
        "--specprobe-device=cuda",
        f"--specprobe-profiles={HERE / 'specprobe.toml'}",
        "--rootdir=.",
        "--specprobe-report={out}/report",
        "--junitxml={out}/junit.xml",
    )
    return Step((*PYTEST, *words, *more), timeout_s, expect)


def kill(at: str) -> Step:
    """Return the step that kills a probe of the mini family at a line of its output."""
    words = (
        "--specprobe-drafter=aq_k2_mini",
        "--specprobe-device=cuda",
        "--rootdir=.",
        "--specprobe-report={out}/report",
    )
    profiles = f"--specprobe-profiles={HERE / 'specprobe.toml'}"
    return Step(
        (sys.executable, "-m", "benchmarks.gpu.kill", at, "60", "{out}/pytest.txt", "--", *words, profiles), 420.0
    )


STEPS: dict[str, Step] = {
    "doctor": Step((*SPECPROBE, "doctor"), 60.0, None),
    "plan": probe("aq_k2_mini", "--specprobe-plan", expect=0, timeout_s=60.0),
    "mini": probe("aq_k2_mini"),
    "mini-scratch": probe("scratch_k25_mini"),
    "mini-dense": probe("dense_mini"),
    "mini-tp1": probe("aq_k2_mini", "--no-specprobe-blind"),
    "mini-tp2": probe("aq_k2_mini_tp2", "--no-specprobe-blind"),
    "kill-probe": kill(r"specprobe +aq_k2_mini +probe +.*acceptance.*"),
    "kill-boot": kill(r"specprobe +aq_k2_mini +boot +.*(?:weights|kv-cache|graphs).*"),
    # simulated acceptance, a lossy threshold and no fault, each beside the same plain server
    "planted": Step((sys.executable, "-m", "benchmarks.gpu.planted", "{out}"), 560.0),
    "starved": probe("starved", "--no-specprobe-blind", expect=11),
    "greedy": probe("greedy", "--no-specprobe-blind", expect=11),
    "smollm2-convert": Step((*SMOLLM2, "convert", "models/smollm2.whl", "models/smollm2"), 120.0),
    "smollm2-train": Step((*SMOLLM2, "train", "models/smollm2", "models/smollm2_eagle3"), 240.0),
    "smollm2-widen": Step((*SMOLLM2, "widen", "models/smollm2", "models/smollm2_wide", "--times", "64"), 180.0),
    "smollm2": probe(
        "smollm2",
        "--specprobe-concurrency=1,4,16,64",
        "--specprobe-sweep=1/1/2,2/1/3,4/1/5,5/1/6",
        timeout_s=560.0,
    ),
    # single settings, each on a boot of its own, to hold the sweep's one boot against
    "smollm2-s1": probe("smollm2_s1", "--no-specprobe-blind", "--specprobe-baseline=none"),
    "smollm2-s5": probe("smollm2_s5", "--no-specprobe-blind", "--specprobe-baseline=none"),
    "beside": Step(
        (
            sys.executable,
            "-m",
            "benchmarks.gpu.beside",
            "smollm2",
            str(HERE / "specprobe.toml"),
            "{out}",
            "smollm2.jsonl",
        )
    ),
    "smollm2-wide": probe("smollm2_wide", "--no-specprobe-blind"),
    "llama-make": Step((*RANDOM, "models/random_llama", "--shape", "llama"), 240.0),
    "deepseek-make": Step((*RANDOM, "models/random_deepseek", "--shape", "deepseek", "--layers", "8"), 240.0),
    "llama": probe("random_llama", expect=1),
    "llama-tp1": probe("random_llama", "--no-specprobe-blind"),
    "llama-tp2": probe("random_llama_tp2", "--no-specprobe-blind"),
    "deepseek": probe("random_deepseek", expect=1),
}


def run(name: str, *, left_s: float) -> dict[str, object]:
    """Run one step in its folder and keep what it says."""
    step, out = STEPS[name], Path("out") / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    argv = [word.replace("{out}", str(out)) for word in step.argv]
    before, start = gpu_memory_mib(), time.monotonic()
    code, timed_out = _run(argv, out / "log.txt", timeout_s=min(step.timeout_s, left_s), env=step.env)
    result: dict[str, object] = {
        "step": name,
        "command": argv,
        "exit": code,
        "as_expected": code in (0, 1, 10) if step.expect is None else code == step.expect,
        "timed_out": timed_out,
        "seconds": round(time.monotonic() - start, 1),
        "gpu_memory_mib": {"before": before, "after": gpu_memory_mib()},
        "gpu_holders_after": [str(holder) for holder in gpu_holders()],
    }
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _run(argv: list[str], log: Path, *, timeout_s: float, env: Mapping[str, str]) -> tuple[int | None, bool]:
    with log.open("wb") as output:
        child = subprocess.Popen(
            argv,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            start_new_session=True,
        )
        try:
            return child.wait(max(timeout_s, 1.0)), False
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)  # pytest writes its report on this one
            try:
                return child.wait(_GRACE_S), True
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                return child.wait(), True


def workload() -> None:
    """Write the prompts for SmolLM2: the first of each built-in domain that it speaks."""
    lines: list[str] = []
    for domain in ("chat", "code", "math", "summary"):
        lines += (_WORKLOADS / f"{domain}.jsonl").read_text(encoding="utf-8").splitlines()[:_PER_DOMAIN]
    Path("smollm2.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def shown(result: Mapping[str, object]) -> str:
    """Return one line on a finished step, with the verdict that it ended in."""
    log = (Path("out") / str(result["step"]) / "log.txt").read_text(errors="replace")
    verdict = re.findall(r"^\S+ on \S+: (.*)$", log, re.MULTILINE)
    return f"{result['step']}: exit {result['exit']} after {result['seconds']} s; {'; '.join(verdict) or log[-200:]}"


def main() -> int:
    """Run the steps in order; exit code 0 if all went as expected."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.drive", description=__doc__.split("\n")[0])
    parser.add_argument("steps", nargs="+", choices=sorted(STEPS), metavar="STEP")
    parser.add_argument("--until", type=float, default=3600.0, help="seconds for all of them")
    given = parser.parse_args()
    start = time.monotonic()
    workload()
    results = []
    for name in given.steps:
        left_s = given.until - (time.monotonic() - start)
        if left_s > _GRACE_S:
            results.append(run(name, left_s=left_s - _GRACE_S))
            sys.stdout.write(shown(results[-1]) + "\n")
            sys.stdout.flush()
        else:
            sys.stdout.write(f"{name}: not run, out of time\n")
    return 0 if len(results) == len(given.steps) and all(r["as_expected"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
