"""The fault matrix: whole runs of the product with one fault each, most of them on real SGLang.

Every row ends within its deadline with the expected exit code, names its culprit, leaves no process and no
half-written file, and gives no verdict. ``SPECPROBE_FAULT_TABLE=FILE`` keeps the table (docs/faults.md shows one).
"""

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from proofs.faults import Fault, Run, Seen, table
from pytest_specprobe.errors import Culprit
from tests.support.held import Serve

AT_ONCE = 2
# Patience for an answer, made short: the deadlines of the table are then those of seconds, not of minutes.
HURRY = """
from pytest_specprobe.server.http.client import Client
Client.__init__.__kwdefaults__.update(request_timeout_s=8.0, silence_s=5.0)
"""
# The forger poses as the servers of this row alone; two rows run at a time.
FORGED = f"""
import atexit, sys
sys.path.append({str(Path(__file__).parents[1])!r})
from tests.support.forging import forging
POSING = forging(HERE / "forger", only=str(HERE))
FORGER = POSING.__enter__()

@atexit.register
def ended():
    POSING.__exit__(None, None, None)
    print("THE KEY was heard" if b"authorization" in FORGER.heard.lower() else "no key was heard")
"""
DRAFTER = r"boot .* drafter: "
PROBING = r"probe +\d.* acceptance, drafter"


def kill(*numbers: signal.Signals) -> Callable[[Run], None]:
    """Send signals to pytest, a moment into the step."""

    def strike(run: Run) -> None:
        time.sleep(0.3)
        for number in numbers:
            run.process.send_signal(number)
            time.sleep(0.1)

    return strike


def hit_server(number: signal.Signals, *, who: str = "") -> Callable[[Run], None]:
    """Send a signal to the server of the run, or to the one of its processes that has this name."""

    def strike(run: Run) -> None:
        pid = run.served["drafter"]["pid"] if run.served else run.server()["pid"]
        server = psutil.Process(pid)
        for process in [p for p in (server, *server.children(recursive=True)) if who in " ".join(p.cmdline())]:
            process.send_signal(number)

    return strike


def kill_supervisor(run: Run) -> None:
    psutil.Process(run.server()["pid"]).parent().kill()  # type: ignore[union-attr]  # the supervisor is its parent


BOOT = ("specprobe/test_boot.py",)


def full_disk(module: str, function: str) -> str:
    """Code that lets no file grow beyond 200 bytes while a function runs, as a quota would."""
    return f"""
import resource
from {module.rpartition(".")[0]} import {module.rpartition(".")[2]} as place
REAL = place.{function}

def crowded(*args, **kwargs):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        return REAL(*args, **kwargs)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

place.{function} = crowded
"""


_BOOT_FAULTS = (
    Fault(name="unknown flag in server_args", phase="boot: launch", on="SGLang", exit_code=11, culprit="launch-flags",
          toml='server_args = ["--no-such-flag"]', says="SGLang refused the command line: .*?no-such-flag"),
    Fault(name="--context-length beyond the target's", phase="boot: launch", on="SGLang", exit_code=11,
          culprit="launch-flags", toml='server_args = ["--context-length", "999999"]',
          says="--context-length 999999 exceeds the target's own 2048 tokens"),
    Fault(name="model class unknown to SGLang", phase="boot: init", on="SGLang", exit_code=11, culprit="engine",
          hook="path = HERE / 'target/config.json'\n"
               "path.write_text(path.read_text().replace('LlamaForCausalLM', 'NoSuchForCausalLM'))",
          says="NoSuchForCausalLM"),
    Fault(name="target's weights deleted after the static checks", phase="boot: weights", on="SGLang", exit_code=11,
          culprit="target", hook="[path.unlink() for path in (HERE / 'target').glob('*.safetensors')]",
          says="there are no weights in"),
    Fault(name="target's weights cut short after the static checks", phase="boot: weights", on="SGLang", exit_code=11,
          culprit="target",
          hook="for path in (HERE / 'target').glob('*.safetensors'):\n"
               "    os.truncate(path, path.stat().st_size // 2)",
          says="a weights file is not readable safetensors"),
    Fault(name="drafter's context shorter than the target's", phase="boot: init", on="SGLang", exit_code=11,
          culprit="drafter-config",
          hook="config = json.loads((staged / 'config.json').read_text())\n"
               "(staged / 'config.json').write_text(json.dumps(config | {'max_position_embeddings': 512}))",
          says=r"the drafter's context \(512 tokens\) is shorter than the target's \(2048\)"),
    Fault(name="drafter's weights of another shape", phase="boot: draft-weights", on="SGLang", exit_code=11,
          culprit="drafter-file",
          hook="weights = staged / 'model.safetensors'\n"
               "data = weights.read_bytes()\n"
               "assert data.count(b'[128,384]') == 1  # fc.weight\n"
               "weights.unlink()\n"
               "weights.write_bytes(data.replace(b'[128,384]', b'[192,256]'))",
          says="a weight has shape"),
    Fault(name="no memory for the KV cache", phase="boot: draft-weights", on="SGLang", exit_code=11,
          culprit="launch-flags", toml='server_args = ["--mem-fraction-static=-0.5"]',
          says="out of GPU memory while allocating the KV cache"),
    Fault(name="port taken by another process", phase="boot: launch", on="SGLang", exit_code=11, culprit="machine",
          early="import socket\nfrom pytest_specprobe.server import boot\nTAKEN = socket.socket()\n"
                "TAKEN.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\nTAKE = boot.HeldPort.take\n\n"
                "def taken():\n    held = TAKE()\n    TAKEN.bind(('127.0.0.1', held.number))\n    TAKEN.listen()\n"
                "    return held\n\nboot.HeldPort.take = taken\nboot._PORT_ATTEMPTS = 1",
          says="another process listens on the server's port"),
    Fault(name="another user's program on the port, yes to any key", phase="boot: launch", on="SGLang", exit_code=11,
          culprit="machine",
          early=FORGED, says="another process listens on the server's port: .*?forger.py.*no key was heard"),
    Fault(name="server killed (SIGKILL)", phase="boot: launch", on="SGLang", exit_code=11, culprit="machine",
          at=DRAFTER + "launch", strike=hit_server(signal.SIGKILL), says="was killed from outside"),
    Fault(name="server stopped (SIGSTOP), patience 6 s", phase="boot: launch", on="SGLang", exit_code=11,
          culprit="engine", at=DRAFTER + "launch", strike=hit_server(signal.SIGSTOP),
          early="import functools\nfrom pytest_specprobe.probe import boots\n"
                "from pytest_specprobe.server import boot_watch\nboot_watch._STALL_EVERY_S = 1.0\n"
                "boots.boot = functools.partial(boots.boot, stall_patience_s=6.0)",
          says="is stuck: no log line, no CPU time and no I/O"),
    Fault(name="boot longer than its patience of 2 s", phase="boot: launch", on="SGLang", exit_code=11,
          culprit="machine", args=("--specprobe-boot-timeout=2", *BOOT), says="was not ready after 2 s"),
    Fault(name="supervisor killed (SIGKILL)", phase="boot: launch", on="SGLang", exit_code=11, culprit="machine",
          at=DRAFTER + "launch", strike=kill_supervisor, says="its supervisor was killed from outside"),
    Fault(name="pytest gets SIGKILL", phase="boot: launch", on="SGLang", exit_code=-9, culprit="harness", named=False,
          at=DRAFTER + "launch", strike=kill(signal.SIGKILL)),
    Fault(name="pytest gets SIGTERM", phase="boot: launch", on="SGLang", exit_code=-15, culprit="harness",
          named=False, at=DRAFTER + "launch", strike=kill(signal.SIGTERM)),
    Fault(name="pytest gets SIGHUP", phase="boot: launch", on="SGLang", exit_code=-1, culprit="harness",
          named=False, at=DRAFTER + "launch", strike=kill(signal.SIGHUP)),
    Fault(name="Ctrl-C", phase="boot: launch", on="SGLang", exit_code=2, culprit="harness", named=False,
          at=DRAFTER + "launch", strike=kill(signal.SIGINT), says="KeyboardInterrupt"),
    Fault(name="pytest-timeout, signal", phase="boot: launch", on="SGLang", exit_code=1, culprit="harness",
          named=False, args=("--timeout=4", "--timeout-method=signal", *BOOT), says="Timeout"),
    Fault(name="pytest-timeout, thread", phase="boot: launch", on="SGLang", exit_code=1, culprit="harness",
          named=False, args=("--timeout=4", "--timeout-method=thread", *BOOT), says="Timeout"),
)  # fmt: skip
BOOT_FAULTS = tuple(fault if fault.args else dataclasses.replace(fault, args=BOOT) for fault in _BOOT_FAULTS)

USERS = "def test_user(specprobe_client):\n    assert specprobe_client.version()\n    "
FIXTURE = (
    "import pytest\n\n@pytest.fixture\ndef broken(specprobe_client):\n    yield\n    raise RuntimeError('teardown')\n"
)
SERVED_FAULTS = (
    *(
        Fault(name=name, phase="probe", on="SGLang, served", exit_code=code, culprit="harness", named=False,
              at=PROBING, strike=kill(*numbers), says=says,
              # The second Ctrl-C may find pytest itself at the words for the first one; Python then dies of it.
              or_exit_code=-signal.SIGINT if len(numbers) > 1 else None)
        for name, numbers, code, says in (
            ("pytest gets SIGKILL", (signal.SIGKILL,), -9, ""),
            ("pytest gets SIGTERM", (signal.SIGTERM,), -15, ""),
            ("pytest gets SIGHUP", (signal.SIGHUP,), -1, ""),
            ("pytest gets SIGQUIT", (signal.SIGQUIT,), -3, ""),
            ("Ctrl-C", (signal.SIGINT,), 2, "KeyboardInterrupt"),
            ("Ctrl-C twice", (signal.SIGINT, signal.SIGINT), 2, "KeyboardInterrupt"),
        )
    ),
    Fault(name="os._exit in a test", phase="probe", on="SGLang, served", exit_code=3, culprit="harness", named=False,
          test="import os\n" + USERS + "os._exit(3)\n", args=("test_user.py",)),
    Fault(name="exception in teardown", phase="teardown", on="SGLang, served", exit_code=1, culprit="harness",
          named=False, test=FIXTURE + "\ndef test_user(broken):\n    pass\n", args=("test_user.py",),
          says="RuntimeError: teardown"),
    Fault(name="pytest-timeout, signal", phase="probe", on="SGLang, served", exit_code=1, culprit="harness",
          named=False, test="import time\n" + USERS + "time.sleep(60)\n", says="Timeout",
          args=("test_user.py", "--timeout=6", "--timeout-method=signal")),
    Fault(name="pytest-timeout, thread", phase="probe", on="SGLang, served", exit_code=1, culprit="harness",
          named=False, test="import time\n" + USERS + "time.sleep(60)\n", says="Timeout",
          args=("test_user.py", "--timeout=6", "--timeout-method=thread")),
    Fault(name="disk full (200 bytes)", phase="record", on="SGLang, served", exit_code=11, culprit="machine",
          early=full_disk("pytest_specprobe.report.file", "write"),
          args=BOOT, says="the report cannot be written"),
    Fault(name="report folder is a file", phase="record", on="SGLang, served", exit_code=11, culprit="machine",
          early="(HERE / '.specprobe').write_text('mine')", args=BOOT, says="the report cannot be written"),
    Fault(name="wrong API key", phase="boot: attach", on="SGLang, served", exit_code=11, culprit="harness",
          early="os.environ['SPECPROBE_API_KEY'] = 'wrong'", args=BOOT, says="the server refuses the API key"),
    Fault(name="another depth than the profile's", phase="prove", on="SGLang, served", exit_code=1,
          culprit="launch-flags", steps=3, args=BOOT, says="proof.settings: saw 2/1/3; expected 3/1/4"),
    Fault(name="drafter changed since it was served", phase="prove", on="SGLang, served", exit_code=1,
          culprit="launch-flags", args=BOOT, says="proof.draft-path: saw",
          early="with (HERE / 'drafter/config.json').open('a') as file:\n    file.write(' ')"),
    Fault(name="the clock jumps a day ahead and back", phase="probe", on="SGLang, served", exit_code=10,
          culprit="workload", named=False, verdict="undecided", says="4 prompts are too few for a verdict",
          early="REAL, COUNT = time.time, [0]\n\ndef jumping():\n"
          "    COUNT[0] += 1\n    return REAL() + (86400 if COUNT[0] % 2 else -86400)\n\ntime.time = jumping"),
    Fault(name="server stopped (SIGSTOP), patience 5 s", phase="probe", on="SGLang, served", exit_code=1,
          culprit="machine", early=HURRY, at=PROBING, strike=hit_server(signal.SIGSTOP), says="no answer in time"),
    # The last two end the server that the others share.
    Fault(name="scheduler killed (SIGKILL)", phase="probe", on="SGLang, served", exit_code=1, culprit="machine",
          early=HURRY, at=PROBING, strike=hit_server(signal.SIGKILL, who="sglang::scheduler"),
          says="/(generate|flush_cache): [^.]*(ended early|Error|no answer)"),
    Fault(name="server gone", phase="boot: attach", on="SGLang, served", exit_code=11, culprit="machine", args=BOOT,
          says="/server_info: [^.]*(Error|no answer)"),
)  # fmt: skip
SHARING = len(SERVED_FAULTS) - 3

ANSWERS: Mapping[str, tuple[str, Culprit]] = {
    "500": ("HTTP 500", "engine"),
    "redirect": ("redirects elsewhere", "harness"),
    "cut": ("the answer ended early", "machine"),
    "truncated": ("the answer ended early", "machine"),
    "no-done": ("the answer ended early", "machine"),
    "garbage": ("did not answer with JSON", "engine"),
    "hang": ("no answer in time", "machine"),
    "drip": ("no answer in time", "machine"),
    "half-rounds": ("only a part of the speculation fields", "engine"),
    "count-lies": ("9 completion_tokens are reported", "engine"),
    "aborted": ("it was cut off: out of memory", "engine"),
    "error-chunk": ("the server reported", "engine"),
    "die": ("/generate: [^.]*(ended early|Error)", "machine"),
    "stop": ("no answer in time", "machine"),
}
STAND_IN_FAULTS: tuple[Fault, ...] = (
    *(
        Fault(name=f"answer: {answer}", phase="probe", on="stand-in", exit_code=1,
              culprit=culprit, early=HURRY, plan={"generate": ["good"] * 4 + [answer]}, says=says)
        for answer, (says, culprit) in ANSWERS.items()
    ),
    Fault(name="disk full (200 bytes)", phase="stage", on="no server", exit_code=11, culprit="machine",
          early=full_disk("pytest_specprobe.probe.files", "stage"), args=BOOT,
          says="could not stage"),
    Fault(name="read-only cache", phase="stage", on="no server", exit_code=11, culprit="machine", args=BOOT,
          early="os.environ['XDG_CACHE_HOME'] = '/sys/specprobe'", says="could not stage"),
    Fault(name="drafter without weights", phase="inspect", on="no server", exit_code=1, culprit="drafter-file",
          early="[path.unlink() for path in (HERE / 'drafter').glob('*.safetensors')]", args=BOOT, says="weights"),
    Fault(name="interpreter without SGLang", phase="free", on="no server", exit_code=11, culprit="machine",
          args=("--specprobe-python=/bin/true", *BOOT), says="SGLang is not installed"),
)  # fmt: skip
FAULTS = (*BOOT_FAULTS, *SERVED_FAULTS, *STAND_IN_FAULTS)


NOTHING = Fault(name="nothing", phase="probe", on="SGLang, served", exit_code=10, culprit="workload", named=False,
                verdict="undecided", says="4 prompts are too few for a verdict")  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


def run_all(faults: Sequence[Fault], root: Path, **served: Any) -> dict[str, Seen]:
    """Run rows, two at a time: they share nothing but the processor, and a served server."""

    def one(fault: Fault) -> Seen:
        return Run(fault, root / f"{FAULTS.index(fault):02d}", **{"served": None, "state": root, **served}).finish()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(one, faults))
    if "SPECPROBE_FAULT_TABLE" in os.environ:
        path = Path(os.environ["SPECPROBE_FAULT_TABLE"])
        with path.open("a") as file:
            file.write(table(found, head=not path.stat().st_size))
    return {str(seen.fault): seen for seen in found}


@pytest.fixture(scope="module")
def booted(root: Path) -> dict[str, Seen]:
    return run_all(BOOT_FAULTS, root)


@pytest.fixture(scope="module")
def stood_in(root: Path) -> dict[str, Seen]:
    return run_all(STAND_IN_FAULTS, root)


class Served(NamedTuple):
    """What every row did, by its name, and two runs without a fault: one before and one after the interrupted."""

    rows: dict[str, Seen]
    plain: tuple[Seen, Seen]


@pytest.fixture(scope="module")
def served(root: Path, _own_state_dir: Path) -> Served:
    """One server, held by ``specprobe serve`` and probed by all; the last faults end it."""
    folder = root / "served"
    folder.mkdir()
    Run.prepare(folder)
    held = Serve(folder, ["serve", "probed", "--device", "cpu", "--json"], plan={})
    try:
        said = held.ready(400)
        said["key"] = Path(said["key_file"]).read_text().strip()
        where: dict[str, Any] = {"served": said, "state": _own_state_dir}
        before = Run(NOTHING, root / "before", **where).finish()
        rows = run_all(SERVED_FAULTS[:SHARING], root, **where)
        after = Run(NOTHING, root / "after", **where).finish()
        server = psutil.Process(said["drafter"]["pid"])
        for fault in SERVED_FAULTS[SHARING:]:
            rows |= run_all([fault], root, **where)
            for process in (server, *server.children(recursive=True)) if server.is_running() else ():
                process.send_signal(signal.SIGCONT)
    finally:
        held.process.terminate()
        held.process.wait(60)
    return Served(rows, (before, after))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", STAND_IN_FAULTS, ids=str)
def test_a_fault_of_an_answer_or_a_file(stood_in: dict[str, Seen], fault: Fault) -> None:
    seen = stood_in[str(fault)]
    assert seen.wrong == (), seen.output[-4000:]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", BOOT_FAULTS, ids=str)
def test_a_fault_while_sglang_boots(booted: dict[str, Seen], fault: Fault) -> None:
    seen = booted[str(fault)]
    assert seen.wrong == (), seen.output[-4000:]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", SERVED_FAULTS, ids=str)
def test_a_fault_while_sglang_is_probed(served: Served, fault: Fault) -> None:
    seen = served.rows[str(fault)]
    assert seen.wrong == (), seen.output[-4000:]


@pytest.mark.timeout(1800)
def test_probes_share_a_served_boot_and_know_what_runs(served: Served) -> None:
    """One probe before all others were interrupted, and one after."""
    histograms = []
    for run in served.plain:
        assert run.wrong == (), run.output[-4000:]
        report = json.loads((run.folder / ".specprobe" / "report.json").read_text())
        (entry,) = report["drafters"]
        checks = {check["id"]: check for check in entry["checks"] if check["id"].startswith("proof.")}
        assert {name: check["status"] for name, check in checks.items() if check["status"] != "pass"} == {}
        assert checks["proof.simulated-acceptance"]["seen"].startswith("none")
        assert checks["proof.log-errors"]["seen"] == "none"
        assert "--speculative-draft-model-path" in entry["server"]["command"]
        assert next(phase["what"] for phase in entry["phases"] if phase["name"] == "boot").startswith("attach to")
        histograms.append(entry["acceptance"]["histogram"])
    assert histograms[0] == histograms[1]


def test_most_rows_are_on_real_sglang() -> None:
    real = [fault for fault in FAULTS if fault.on.startswith("SGLang")]
    assert len(FAULTS) >= 40
    assert 2 * len(real) >= len(FAULTS)
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)
