"""Kill a pytest run that owns a server, at any step and in any way, and look what is left.

As a program, randomised trials: ``python -m tests.support.kills --trials 150 --seed 1`` (``--real TARGET DRAFTER``
boots real SGLang on a CPU with that pair instead of the stand-in).
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from safetensors.numpy import save_file

from pytest_specprobe.server.process import supervisor
from pytest_specprobe.staging import stage

logger = logging.getLogger(__name__)

VICTIM = Path(__file__).with_name("victim.py")
FAKE = Path(__file__).with_name("fake_sglang.py")
REPOSITORY = Path(__file__).parents[2]
# LC_*: one of the names that pass to a server, so that its processes are found by it too.
TAG = "LC_SPECPROBE_KILL_TRIAL"
# A shell that runs tests in the background has them ignore what its Ctrl-C sends; a victim must not.
PLAIN_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
# The supervisor's grace of 10 s, a kill, and a loaded machine.
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to go: ``how`` at ``step``, after ``delay_s`` seconds more."""

    step: str
    how: str
    delay_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.how} at {self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was seen: ``left`` names everything that outlived the run; empty is good."""

    row: Row
    exit_code: int
    seconds: float
    left: tuple[str, ...]


SIGNALS = {
    "SIGINT": (signal.SIGINT,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
    "SIGKILL": (signal.SIGKILL,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
    "SIGQUIT": (signal.SIGQUIT,),
}
STEPS = ("stage", "boot", "probe", "teardown")
# What a run does to itself, or nothing: it comes to its end alone, after a whole boot.
ALONE = ("nothing", "os._exit in a test", "exception in teardown", "pytest-timeout, signal", "pytest-timeout, thread")
ALONE_S = 240.0
# Faults that are not a signal to pytest, and the steps at which each can happen.
OTHERS = {
    "pytest-timeout, signal": ("boot", "probe"),
    "pytest-timeout, thread": ("boot", "probe"),
    "os._exit in a test": ("probe",),
    "exception in teardown": ("teardown",),
    "SIGKILL of the supervisor": ("boot", "probe", "teardown"),
    "SIGKILL of the server": ("boot", "probe", "teardown"),
    "SIGSTOP of the server, SIGKILL": ("boot", "probe", "teardown"),
    "SIGKILL of supervisor and pytest": ("boot", "probe", "teardown"),
    "nothing": ("probe",),
}
ROWS = (
    *(Row(step=step, how=how) for how in SIGNALS for step in STEPS),
    *(Row(step=step, how=how) for how, steps in OTHERS.items() for step in steps),
)


def run(row: Row, root: Path, *, spec: dict[str, Any] | None = None) -> Outcome:
    """Run one victim in ``root`` (an empty directory), do what ``row`` says, and look what is left.

    ``spec`` holds fields of a ServerSpec for a real server; the default is the stand-in.
    """
    tag = f"{root.name}-{random.getrandbits(64):016x}"
    spec = spec or _fake_spec(root, row)
    if not (root / "drafter").exists():
        _drafter(root / "drafter")
    # Away from tests/, whose conftest would take part.
    shutil.copy(VICTIM, root)
    for name in ("tmp", "state"):
        (root / name).mkdir()
    started = time.monotonic()
    process = _start(row, root, tag, spec)
    try:
        _strike(row, process, root, tag)
        try:
            code = process.wait(timeout=ALONE_S if row.how in ALONE else DEADLINE_S)
            left = []
        except subprocess.TimeoutExpired:
            # pytest's faulthandler then writes where every thread is
            process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            code, left = -999, [f"pytest itself: {(root / 'pytest.log').read_text()[-3000:]}"]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    left += _left(root, tag)
    return Outcome(row=row, exit_code=code, seconds=time.monotonic() - started, left=tuple(left))


def _start(row: Row, root: Path, tag: str, spec: dict[str, Any]) -> "subprocess.Popen[bytes]":
    lingers = row.step in {"probe", "teardown"} and row.how not in {"nothing", "exception in teardown"}
    given = {
        "events": str(root / "events"),
        "root": str(root),
        "spec": spec,
        "linger": row.step if lingers else None,
        "fault": {"os._exit in a test": "os-exit", "exception in teardown": "teardown-error"}.get(row.how),
    }
    words = [sys.executable, "-I", "-S", "-c", PLAIN_SIGNALS]
    words += [sys.executable, "-m", "pytest", "-q", "-p", "no:specprobe", "-p", "no:cacheprovider", "victim.py"]
    words += ["--rootdir", str(root), "-c", os.devnull, "-W", "error"]
    if "timeout" in row.how:
        # A boot that never ends, or a probe that does not, is cut by pytest-timeout.
        words += [f"--timeout={8 if 'model' in spec and spec.get('device') == 'cpu' else 3}"]
        words += ["--timeout-method", row.how.rpartition(" ")[2]]
    env = {**os.environ, "VICTIM": json.dumps(given), TAG: tag, "TMPDIR": str(root / "tmp")}
    env |= {"SPECPROBE_STATE_DIR": str(root / "state"), "PYTHONPATH": str(REPOSITORY)}
    with (root / "pytest.log").open("wb") as log:
        return subprocess.Popen(
            words, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=root
        )


def _strike(row: Row, process: "subprocess.Popen[bytes]", root: Path, tag: str) -> None:
    """Wait for the step, then do the deed."""
    if row.how in ALONE:
        return
    wanted = "boot:" if row.step == "boot" else row.step
    deadline = time.monotonic() + 240
    while not any(event.startswith(wanted) for event in _events(root)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{row}: never came there: {(root / 'pytest.log').read_text()[-3000:]}")
        time.sleep(0.005)
    time.sleep(row.delay_s)
    for number in SIGNALS.get(row.how, ()):
        process.send_signal(number)
        time.sleep(0.1 if row.how == "SIGINT twice" else 0)
    if "server" in row.how or "supervisor" in row.how:
        found = {kind: p for kind, p in _family(tag, process.pid) if kind in {"supervisor", "server"}}
        if "supervisor" in row.how and "supervisor" in found:
            supervisor.send(found["supervisor"], signal.SIGKILL)
        if "of the server" in row.how and "server" in found:
            supervisor.send(found["server"], signal.SIGSTOP if "SIGSTOP" in row.how else signal.SIGKILL)
        # A server that died or hangs is pytest's to notice; the run itself still has to be ended.
        if "pytest" in row.how or "SIGSTOP" in row.how:
            process.kill()
        else:
            time.sleep(1)
            process.terminate()


def _events(root: Path) -> list[str]:
    try:
        return (root / "events").read_text().splitlines()
    except OSError:
        return []


def _family(tag: str, pytest_pid: int) -> Iterator[tuple[str, supervisor.Process]]:
    """Yield what carries this trial's tag: the supervisor, its keeper, the server, and the rest."""
    tagged = [p for p in _tagged(tag) if p.pid != pytest_pid]
    supervisors = {p.pid for p in tagged if p.parent == pytest_pid}
    for process in tagged:
        if process.pid in supervisors:
            yield "supervisor", process
        elif process.parent not in supervisors:
            yield "other", process
        else:
            marked = b"SPECPROBE_BOOT=" in Path(f"/proc/{process.pid}/environ").read_bytes()
            yield "server" if marked else "keeper", process


def _tagged(tag: str) -> list[supervisor.Process]:
    wanted = f"{TAG}={tag}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                process = supervisor.read_process(int(path.parent.name))
                if process is not None and not process.zombie:
                    found.append(process)
    return found


def _left(root: Path, tag: str) -> list[str]:
    deadline = time.monotonic() + DEADLINE_S
    while (alive := _tagged(tag)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [f"process {p.pid}" for p in alive]
    for process in alive:
        supervisor.send(process, signal.SIGKILL)
    # A dying process loses its environment, by which it was known, a moment before its sockets.
    ports = [int(event.rpartition(":")[2]) for event in _events(root) if event.startswith("up:")]
    while (open_ports := [p for p in ports if _listens(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left + [f"port {p}" for p in open_ports] + _left_on_disk(root)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _left_on_disk(root: Path) -> list[str]:
    left = []
    for lock in (root / "cache").glob(".*.lock"):
        try:
            FileLock(lock).acquire(timeout=0).lock.release()
        except TimeoutError:
            left.append(f"lock {lock.name}")
    # Records outlive a killed run on purpose; a later look clears those of which nothing lives, not even dying.
    look = "from pytest_specprobe.server.process import ownership; print(ownership.servers())"
    env = {**os.environ, "SPECPROBE_STATE_DIR": str(root / "state"), "PYTHONPATH": str(REPOSITORY)}
    deadline = time.monotonic() + DEADLINE_S
    while True:
        subprocess.run([sys.executable, "-c", look], env=env, check=True, capture_output=True)
        records = [f"record {p.name}" for p in (root / "state" / "servers").glob("*")]
        records += [f"temporary file {p.name}" for p in (root / "tmp").glob("specprobe-*")]
        if not records or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    left += records
    # Whatever was interrupted, the next run must find or make the same whole directory.
    staged = stage(root / "drafter", cache=root / "cache", target_positions=4096, blind=True)
    names = {p.name for p in (root / "cache").iterdir() if not p.name.endswith(".lock")}
    if names != {staged.path.name} or not (staged.path / "specprobe-staged.json").exists():
        left.append(f"half-made {names}")
    return left


def _fake_spec(root: Path, row: Row) -> dict[str, Any]:
    python = root / "fake-python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{FAKE}" "$@"\n')
    python.chmod(0o755)
    plan = {"never": row.step == "boot", "log": "Load weight begin\n"}
    return {"model": "m", "python": str(python), "env": [["FAKE_SGLANG", json.dumps(plan)]]}


def _drafter(path: Path) -> None:
    path.mkdir()
    (path / "config.json").write_text('{"max_position_embeddings": 1024}')
    # Large enough for a kill to hit the copying.
    tensors = {"fc.weight": np.ones((1024, 3072), np.float32), "rest": np.ones(4 << 20, np.float32)}
    save_file(tensors, path / "model.safetensors")


def main() -> int:
    """Run randomised trials and print one JSON line for each that left something, then the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", nargs=2, metavar=("TARGET", "DRAFTER"))
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311 - trials, not secrets
    bad = 0
    for number in range(options.trials):
        row = chance.choice([r for r in ROWS if not (options.real and "timeout" in r.how)])
        spread = 15.0 if options.real and row.step == "boot" else 0.6
        row = dataclasses.replace(row, delay_s=chance.uniform(0, spread))
        with tempfile.TemporaryDirectory(prefix="kill-trial-") as folder:
            root = Path(folder)
            spec = None
            if options.real:
                shutil.copytree(options.real[1], root / "drafter")
                spec = {"model": str(Path(options.real[0]).absolute()), "device": "cpu"}
            outcome = run(row, root, spec=spec)
        if row.how == "nothing" and outcome.exit_code != 0:
            raise RuntimeError(f"a run to which nothing was done ended with {outcome.exit_code}: no trial at all")
        bad += bool(outcome.left)
        sys.stdout.write(f"{number} {outcome.row} +{row.delay_s:.2f}s rc={outcome.exit_code} {outcome.seconds:.1f}s ")
        sys.stdout.write(f"LEFT {outcome.left}\n" if outcome.left else "clean\n")
        sys.stdout.flush()
    sys.stdout.write(f"{options.trials} trials, {bad} left something\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
