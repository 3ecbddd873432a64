"""A fault, where it is planted, and what a whole run of the product made of it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_specprobe.errors import Culprit
from pytest_specprobe.server.process import supervisor
from tests.support.held import stand_in
from tests.support.kills import PLAIN_SIGNALS

FIXTURES = Path(__file__).parents[1] / "fixtures"
# LC_*: one of the names that pass to a server, so that its processes are found by it too.
TAG = "LC_SPECPROBE_FAULT"
Where = Literal["SGLang", "SGLang, served", "stand-in", "no server"]
PROFILE = """
[targets.target]
model = "target"
devices = ["cpu"]
workload = "few.jsonl"
{more}
[drafters.probed]
source = "drafter"
target = "target"
speculation = {{ num_steps = {steps}, eagle_topk = 1, num_draft_tokens = {tokens} }}
blind = false
"""
QUIET_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row: what goes wrong in which phase, and what must be seen of it.

    ``or_exit_code`` will do as well as ``exit_code``.

    ``says`` is a pattern of the output, ``verdict`` the only one that may be given beside ``broken``. ``named`` is
    False where the run itself was ended, so that it could not name anybody; the culprit is then whoever ended it.
    ``never`` looks at what the run left and said, and returns what must not have happened ("" if it did not).
    ``hook`` is code that runs after staging and before the boot, ``early`` code of the run's conftest.py; ``strike``
    is done from outside when the output shows ``at``.
    """

    name: str
    phase: str
    on: Where
    exit_code: int
    culprit: Culprit
    or_exit_code: int | None = None
    says: str = ""
    named: bool = True
    verdict: str | None = None
    deadline_s: float = 300.0
    toml: str = ""
    steps: int = 2
    hook: str = ""
    early: str = ""
    test: str = ""
    args: tuple[str, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    strike: "Callable[[Run], None] | None" = None
    never: "Callable[[Run], str]" = lambda _: ""

    def __str__(self) -> str:
        return f"{self.name}, {self.phase}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run did: its exit code (-N: died of signal N), its output, its seconds, and what was wrong about it."""

    fault: Fault
    folder: Path
    exit_code: int
    output: str
    seconds: float
    wrong: tuple[str, ...]


class Run:
    """A run of the product in a folder of its own, with one fault."""

    def __init__(self, fault: Fault, folder: Path, *, served: Mapping[str, Any] | None, state: Path) -> None:
        self.fault, self.folder, self.served = fault, folder, served
        self.state = state if served else folder / "state"
        self.tag = f"{folder.name}-{os.urandom(8).hex()}"
        folder.mkdir(parents=True)
        _files(fault, folder)
        # -P: as the command pytest, which has no folder of its own on the path.
        words = [sys.executable, "-I", "-S", "-c", PLAIN_SIGNALS, sys.executable, "-P", "-m", "pytest"]
        words += ["-p", "no:cacheprovider", "--specprobe-drafter=probed", *self._where()]
        words += fault.args or ("specprobe/test_acceptance.py::test_acceptance",)
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        env |= {TAG: self.tag, "SPECPROBE_STATE_DIR": str(self.state), "XDG_CACHE_HOME": str(folder / "cache")}
        env |= {"FAKE_SGLANG": json.dumps({"pair": True, **fault.plan})} if fault.on == "stand-in" else {}
        env |= {"SPECPROBE_API_KEY": served["key"]} if served else {}
        with (folder / "output").open("wb") as out:
            self.started_s = time.monotonic()
            self.process = subprocess.Popen(
                words, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _where(self) -> list[str]:
        if self.served:
            return [f"--specprobe-server={self.served['drafter']['url']}", "--specprobe-baseline=none"]
        if self.fault.on == "stand-in":
            python = stand_in(self.folder / "python")
            return ["--specprobe-device=cpu", "--specprobe-baseline=none", f"--specprobe-python={python}"]
        return ["--specprobe-device=cpu", "--specprobe-baseline=none"]

    @staticmethod
    def prepare(folder: Path) -> None:
        """Put the files and the profile of a run without a fault into a folder, for who serves it."""
        _files(Fault(name="", phase="", on="no server", exit_code=0, culprit="harness"), folder)

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def server(self) -> dict[str, Any]:
        """Return the record of the server of this run."""
        (path,) = self.state.glob("servers/*.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def finish(self) -> Seen:
        """Strike when it is time, wait for the end, and look what was left."""
        fault, wrong = self.fault, []
        deadline_s = self.started_s + fault.deadline_s
        try:
            if fault.strike is not None:
                while not re.search(fault.at, self.output):
                    if self.process.poll() is not None or time.monotonic() > deadline_s:
                        wrong.append(f"never came to {fault.at!r}")
                        break
                    time.sleep(0.02)
                else:
                    fault.strike(self)
            self.process.wait(max(deadline_s - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            wrong.append("did not end in time")
            self.process.kill()
        code, seconds = self.process.wait(), time.monotonic() - self.started_s
        return Seen(
            fault=fault,
            folder=self.folder,
            exit_code=code,
            output=self.output,
            seconds=seconds,
            wrong=(*wrong, *self._wrong(code)),
        )

    def _wrong(self, code: int) -> list[str]:
        fault, output, wrong = self.fault, self.output, []
        if code not in {fault.exit_code, fault.or_exit_code}:
            wrong.append(f"exit code {code}, not {fault.exit_code}")
        if fault.named and f"culprit: {fault.culprit}" not in output:
            wrong.append(f"culprit {fault.culprit} is not named")
        if fault.says and not re.search(fault.says, " ".join(output.split()), re.IGNORECASE):
            wrong.append(f"does not say {fault.says!r}")
        for path in self.folder.glob(".specprobe/*.json"):
            try:
                report = json.loads(path.read_text())
                wrong += [
                    f"verdict {e['verdict']}"
                    for e in report["drafters"]
                    if e["verdict"] not in {None, "broken", fault.verdict}
                ]
            except ValueError:
                wrong.append(f"half-written {path.name}")
        wrong += [f"left {path.name}" for path in self.folder.glob(".specprobe/.report-*")]
        happened = fault.never(self)
        return [*wrong, *([happened] if happened else []), *self._left()]

    def _left(self) -> list[str]:
        """Name the processes that outlived the run; they get the supervisor's grace."""
        deadline_s = time.monotonic() + QUIET_S
        while (alive := _tagged(self.tag)) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        for process in alive:
            supervisor.send(process, signal.SIGKILL)
        return [f"process {process.pid} is left" for process in alive]


def _files(fault: Fault, folder: Path) -> None:
    # Copies: some faults damage them.
    shutil.copytree(FIXTURES / "mini_llama", folder / "target")
    shutil.copytree(FIXTURES / "dense_mini", folder / "drafter")
    profile = PROFILE.format(more=fault.toml, steps=fault.steps, tokens=fault.steps + 1)
    (folder / "specprobe.toml").write_text(profile)
    rows = [{"id": f"q{i}", "messages": [{"role": "user", "content": f"Explain function {i}."}]} for i in range(4)]
    (folder / "few.jsonl").write_text("\n".join(map(json.dumps, rows)))
    hook = "".join(f"    {line}\n" for line in fault.hook.strip().splitlines())
    (folder / "conftest.py").write_text(
        "import json, os, shutil, time\nfrom pathlib import Path\n\nimport pytest\n\nHERE = Path(__file__).parent\n"
        f"{fault.early}\n"
        "def pytest_specprobe_server_args(profile):\n"
        f"    (staged,) = HERE.glob('cache/specprobe/staged/[!.]*')\n{hook}    return None\n"
    )
    if fault.test:
        (folder / "test_user.py").write_text(fault.test)


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


def table(seen: list[Seen], *, head: bool) -> str:
    """Return rows of the table of the docs, with its head if asked."""
    titles = [
        "| fault | phase | on | seen | culprit | exit code | deadline, s | took, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines = titles if head else []
    for one in seen:
        fault = one.fault
        said = "; ".join(one.wrong) or told(one)
        code = str(one.exit_code) if one.exit_code >= 0 else f"died of {signal.Signals(-one.exit_code).name}"
        cells = (fault.name, fault.phase, fault.on, said, fault.culprit, code, f"{fault.deadline_s:.0f}")
        lines.append(f"| {' | '.join(cells)} | {one.seconds:.0f} |")
    return "\n".join(lines) + "\n"


def told(one: Seen) -> str:
    """Return what the run said of the fault, short and without what is of one machine."""
    match = re.search(one.fault.says, " ".join(one.output.split()), re.IGNORECASE) if one.fault.says else None
    text = match.group()[:140] if match else "the run ended at once"
    return f"{text}; nothing left".replace("|", "/").strip()
