"""Hostile runs: whole runs of the product, each with one thing that a stranger could do to it.

Every row ends within its deadline with the exit code it should have, and nothing of what the stranger wanted has
happened: no code ran, no key was seen, no process ended, no line of the output is a command of a CI system.
``SPECPROBE_HOSTILE_TABLE=FILE`` keeps the table (docs/faults.md shows one).
"""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proofs.faults import Fault, Run, Seen, table
from tests.support.forging import NOBODY

AT_ONCE = 2
BOOT = ("specprobe/test_boot.py",)
STATIC = ("--specprobe-static",)
# A line of output that GitHub, Azure or TeamCity would obey.
COMMAND = re.compile(r"^\s*::[a-z-]+|##vso\[|##\[|##teamcity\[", re.MULTILINE)


def code_ran(run: Run) -> str:
    return "code of a stranger ran" if (run.folder / "ran").exists() else ""


def commands(run: Run) -> str:
    return "a line is a command" if COMMAND.search(run.output) else ""


def victim_died(run: Run) -> str:
    alive = Path(f"/proc/{(run.folder / 'victim').read_text()}").exists()
    kept = (run.folder / "outside" / "file").exists()
    return "" if alive and kept else "a process ended or a file went that was not this tool's"


def key_shown(run: Run) -> str:
    key = (run.folder / "key").read_text()
    texts = [run.output, *(path.read_text(errors="replace") for path in run.folder.glob(".specprobe/**/*.*"))]
    return "the key is shown" if any(key in text for text in texts) else ""


def written_through(run: Run) -> str:
    return "" if (run.folder / "mine").read_text() == "mine" else "a file was written through a link"


RAN = "open({str(HERE / 'ran')!r}, 'w').close()"
# Whoever may write into the folder where pytest runs: modules that a server imports, and a plug-in of SGLang.
PLANTED = f"""
for name in ("torch", "sitecustomize", "sglang_evil"):
    (HERE / f"{{name}}.py").write_text(f"{RAN}\\ndef run(): pass\\n")
about = HERE / "sglang_evil-1.0.dist-info"
about.mkdir()
(about / "METADATA").write_text("Metadata-Version: 2.1\\nName: sglang_evil\\nVersion: 1.0\\n")
(about / "entry_points.txt").write_text("[sglang.srt.plugins]\\nevil = sglang_evil:run\\n")
"""
OWN_CODE = f"""
path = HERE / "drafter" / "config.json"
config = json.loads(path.read_text()) | {{"auto_map": {{"AutoConfig": "configuration_evil.Evil"}}}}
path.write_text(json.dumps(config))
(HERE / "drafter" / "configuration_evil.py").write_text(
    f"from transformers import LlamaConfig\\n{RAN}\\nclass Evil(LlamaConfig):\\n    pass\\n")
"""
RECORD = """
import socket, subprocess, sys
victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, env={})
(HERE / "victim").write_text(str(victim.pid))
(HERE / "outside").mkdir()
(HERE / "outside" / "file").touch()
start = int(open(f"/proc/{victim.pid}/stat").read().rpartition(")")[2].split()[19])
servers = HERE / "state" / "servers"
servers.mkdir(parents=True)
for name, marker in (("planted", "../../outside"), ("a" * 32, "a" * 32), ("b" * 32, "/../outside")):
    (servers / f"{name}.json").write_text(json.dumps({
        "marker": marker, "pid": victim.pid, "start_time": start, "owner_pid": 2**22 + 7, "owner_start_time": 1,
        "host": socket.gethostname(), "boot_id": open("/proc/sys/kernel/random/boot_id").read().strip(), "port": 1,
        "label": "x", "log_path": "x", "scratch": str(HERE / "outside"), "created": 1.0}))
"""
# fc in a file of its own, under a name that staging once left out.
TWO_FILES = """
path = HERE / "drafter" / "model.safetensors"
data = path.read_bytes()
size = int.from_bytes(data[:8], "little")
entries = json.loads(data[8 : 8 + size])
entries.pop("__metadata__", None)

def write(name, names):
    header, body = {}, b""
    for tensor in names:
        begin, end = entries[tensor]["data_offsets"]
        part = data[8 + size + begin : 8 + size + end]
        header[tensor] = entries[tensor] | {"data_offsets": [len(body), len(body) + len(part)]}
        body += part
    text = json.dumps(header).encode()
    (HERE / "drafter" / name).write_bytes(len(text).to_bytes(8, "little") + text + body)

write("optimizer_fc.safetensors", ["fc.weight"])
write("model.safetensors", [name for name in entries if name != "fc.weight"])
"""
SHOW_KEY = """
from pathlib import Path

def test_user(specprobe_server, specprobe_client):
    Path("key").write_text(specprobe_server.api_key.reveal())
    specprobe_client.version()
    raise AssertionError
"""
SECRETS = """
from pathlib import Path

def test_user(specprobe_server):
    environ = Path(f"/proc/{specprobe_server.pid}/environ").read_bytes()
    assert b"PATH=" in environ
    assert b"s3cr3t" not in environ
"""
SHOUT = "::error::owned\\n##vso[task.setvariable variable=x]y\\n::set-output name=a::b"
SHOUTED = SHOUT.replace("\\n", "\n")
ROWS: tuple[Fault, ...] = (
    Fault(name="modules and a plug-in in the folder where pytest runs", phase="boot", on="SGLang", exit_code=0,
          culprit="machine", named=False, early=PLANTED, args=BOOT, says="1 passed", never=code_ran),
    Fault(name="a drafter's own code under a target that is trusted", phase="boot", on="SGLang", exit_code=0,
          culprit="drafter-config", named=False, early=OWN_CODE, toml="trust_remote_code = true", args=BOOT,
          says="1 passed", never=code_ran),
    Fault(name="a compile cache that another user owns", phase="boot", on="SGLang", exit_code=11, culprit="machine",
          early=f"(HERE / 'inductor').mkdir()\nos.chown(HERE / 'inductor', {NOBODY}, {NOBODY})\n"
                "os.environ['TORCHINDUCTOR_CACHE_DIR'] = str(HERE / 'inductor')",
          args=BOOT, says="belongs to user"),
    Fault(name="secrets of the job around pytest", phase="boot", on="SGLang", exit_code=0, culprit="harness",
          named=False, early="os.environ |= {'DEPLOY_TOKEN': 's3cr3t', 'DATABASE_URL': 'pg://u:s3cr3t@h/d'}",
          test=SECRETS, args=("test_user.py",), says="1 passed"),
    Fault(name="server_args in abbreviations", phase="free", on="no server", exit_code=4, culprit="harness",
          toml='server_args = ["--trust-rem", "--hos", "0.0.0.0"]', args=BOOT,
          says="short for --trust-remote-code.*short for --host"),
    Fault(name="server_args that load code", phase="free", on="no server", exit_code=4, culprit="harness",
          toml='server_args = ["--custom-weight-loader", "a.b", "--forward-hooks=[]"]', args=BOOT,
          says="--custom-weight-loader, which imports.*--forward-hooks"),
    Fault(name="planted records of servers", phase="free", on="no server", exit_code=0, culprit="machine",
          named=False, early=RECORD, args=STATIC, says="passed", never=victim_died),
    Fault(name="a cache that others may write", phase="stage", on="no server", exit_code=11, culprit="machine",
          early="(HERE / 'cache/specprobe/staged').mkdir(parents=True)\n"
                "(HERE / 'cache/specprobe/staged').chmod(0o777)",
          args=BOOT, says="can be written by other users"),
    Fault(name="a committed history that is a link", phase="free", on="no server", exit_code=4, culprit="harness",
          early="(HERE / 'mine').write_text('mine')\n(HERE / '.specprobe').mkdir()\n"
                "(HERE / '.specprobe/history.jsonl').symlink_to(HERE / 'mine')",
          says="symbolic link", never=written_through),
    Fault(name="a committed report that is a link", phase="record", on="stand-in", exit_code=0, culprit="harness",
          named=False,
          early="(HERE / 'mine').write_text('mine')\n(HERE / '.specprobe').mkdir()\n"
                "(HERE / '.specprobe/report.json').symlink_to(HERE / 'mine')",
          args=BOOT, says="1 passed", never=written_through),
    Fault(name="a FIFO as the workload", phase="free", on="no server", exit_code=4, culprit="harness",
          early="(HERE / 'few.jsonl').unlink()\nos.mkfifo(HERE / 'few.jsonl')", args=BOOT,
          says="is a FIFO, not a file"),
    Fault(name="a lone surrogate in the workload", phase="free", on="no server", exit_code=4, culprit="harness",
          early=r"""(HERE / 'few.jsonl').write_text('{"id": "a", "prompt": "\\ud800"}')""", args=BOOT,
          says="surrogate"),
    Fault(name="a profile with a key of 100,000 parts", phase="free", on="no server", exit_code=4, culprit="harness",
          early="(HERE / 'deep.toml').write_text('a' + '.a' * 100_000 + ' = 1')",
          args=("--specprobe-profiles=deep.toml", *BOOT), says="a key of more than 32 parts"),
    Fault(name="records of boots nested 100,000 deep", phase="boot", on="stand-in", exit_code=0, culprit="machine",
          named=False, early="(HERE / 'state').mkdir(mode=0o700)\n"
                             "(HERE / 'state/boot-times.json').write_text('[' * 100_000)", args=BOOT,
          says="1 passed"),
    Fault(name="counts of 400 digits in /server_info", phase="prove", on="stand-in", exit_code=1, culprit="engine",
          plan={"info": {"speculative_accept_threshold_single": int("9" * 400)}}, args=BOOT,
          says="not what SGLang sends"),
    Fault(name="an answer nested 100,000 deep", phase="probe", on="stand-in", exit_code=1, culprit="engine",
          plan={"generate": ["good"] * 4 + ["deep"]}, says="nested too deeply|did not answer with JSON"),
    Fault(name="a log of 20 MB without a line end", phase="boot", on="stand-in", exit_code=11, culprit="machine",
          plan={"never": True, "flood": 20}, args=("--specprobe-boot-timeout=5", *BOOT), deadline_s=60,
          says="was not ready after 5 s"),
    Fault(name="commands for CI in the drafter's config", phase="inspect", on="no server", exit_code=1,
          culprit="drafter-config",
          early="path = HERE / 'drafter/config.json'\n"
                f"path.write_text(json.dumps(json.loads(path.read_text()) | {{'architectures': ['{SHOUT}']}}))",
          args=STATIC, says="config.class", never=commands),
    Fault(name="commands for CI in a finish message", phase="probe", on="stand-in", exit_code=1, culprit="engine",
          plan={"generate": ["good"] * 4 + ["aborted"], "message": SHOUTED}, says="it was cut off",
          never=commands),
    Fault(name="commands for CI in the server's log", phase="boot", on="stand-in", exit_code=11, culprit="engine",
          plan={"log": f"{SHOUTED}\nTraceback (most recent call last):\n  x\nValueError: {SHOUTED}\n", "exit": 3},
          args=BOOT, says="ValueError", never=commands),
    Fault(name="a failing test under pytest -l --full-trace", phase="probe", on="stand-in", exit_code=1,
          culprit="harness", named=False, test=SHOW_KEY, args=("test_user.py", "-l", "--full-trace"),
          says="AssertionError", never=key_shown),
    Fault(name="fc in a file that was not staged", phase="stage", on="stand-in", exit_code=0, culprit="drafter-file",
          named=False,
          early=TWO_FILES, args=BOOT, says="1 passed",
          never=lambda run: "" if [*run.folder.glob("cache/specprobe/staged/[!.]*/optimizer_fc.safetensors")]
          else "what was checked is not what is served"),
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    selected = [item.callspec.params["fault"] for item in request.session.items if hasattr(item, "callspec")]
    rows = [row for row in ROWS if row in selected]
    root = tmp_path_factory.mktemp("hostile")

    def one(fault: Fault) -> Seen:
        return Run(fault, root / f"{ROWS.index(fault):02d}", served=None, state=root).finish()

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            seen = list(pool.map(one, rows))
    finally:
        for path in root.glob("*/victim"):
            subprocess.run(["kill", path.read_text()], check=False)
    if "SPECPROBE_HOSTILE_TABLE" in os.environ:
        Path(os.environ["SPECPROBE_HOSTILE_TABLE"]).write_text(table(seen, head=True))
    return {str(run.fault): run for run in seen}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ROWS, ids=str)
def test_a_stranger_gets_nothing(runs: dict[str, Seen], fault: Fault) -> None:
    seen = runs[str(fault)]
    assert seen.wrong == (), seen.output[-4000:]
