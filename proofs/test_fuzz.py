"""A fuzz of everything that comes from others: no traceback, no internal error, nothing that waits for ever.

Some thousand hostile inputs go through the functions that read them, and some more through the commands that a user
types, with FIFOs, folders and devices in the place of files. ``SPECPROBE_FUZZ_TABLE=FILE`` keeps the counts, as
docs/evidence.md shows them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import checkpoint_builder as build
from tests.support.reading_edges import CHATS, EDGES, PROFILE, Edge, outcome
from tests.support.reading_mutations import LONG

INPUTS = 180
SLOWEST_S = 20.0  # of the processor, however busy the machine is
DEADLINE_S = 120.0
AT_ONCE = 2
HEAD = """\
| what is read | inputs | accepted | refused by name | tracebacks | too slow |
| --- | --- | --- | --- | --- | --- |
"""


@pytest.fixture(scope="module")
def counts() -> Iterator[dict[str, Counter[str]]]:
    """What became of the inputs of each kind; written down at the end."""
    kept: dict[str, Counter[str]] = {}
    yield kept
    if "SPECPROBE_FUZZ_TABLE" in os.environ:
        every = {**kept, "all": sum(kept.values(), Counter())}
        Path(os.environ["SPECPROBE_FUZZ_TABLE"]).write_text(HEAD + "".join(row(*item) for item in every.items()))


def row(name: str, count: Counter[str]) -> str:
    cells = (count[key] for key in ("accepted", "refused", "traceback", "slow"))
    return f"| {name} | {count.total() - count['slow']:,} | {' | '.join(f'{cell:,}' for cell in cells)} |\n"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)
def test_hostile_inputs(edge: Edge, tmp_path: Path, counts: dict[str, Counter[str]]) -> None:
    """Every input is accepted or refused by a named error, soon."""
    count, wrong = counts.setdefault(edge.name, Counter()), []
    for at in range(INPUTS):
        start_s = time.process_time()
        try:
            count[outcome(edge, f"proof {at}", tmp_path)[0]] += 1
        except Exception as error:  # noqa: BLE001 - what is looked for
            count["traceback"] += 1
            wrong.append((at, repr(error)[:200]))
        if time.process_time() - start_s > SLOWEST_S:
            count["slow"] += 1
            wrong.append((at, "too slow"))
    assert wrong == []


@dataclass(frozen=True, slots=True)
class Spoil:
    """What is put in the place of a file."""

    name: str
    put: Callable[[Path], object]


def _writes(body: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(body)


HALF_DEEP = b'{"a":' * 900 + b"1" + b"}" * 900
NO_FILES = (
    Spoil("a FIFO", os.mkfifo),
    Spoil("a folder", Path.mkdir),
    Spoil("a device", lambda path: path.symlink_to("/dev/zero")),
    Spoil("a link to itself", lambda path: path.symlink_to(path)),
)
JSON = (
    *NO_FILES,
    Spoil("nothing", _writes(b"")),
    Spoil("deep lists", _writes(b"[" * 100_000)),
    Spoil("deep objects", _writes(HALF_DEEP)),
    Spoil("a lone surrogate", _writes(b'{"id": "\\ud800", "prompt": "\\ud800", "model_type": "\\ud800"}')),
    Spoil("400 digits", _writes(f'{{"schema": {LONG}, "prompt": {LONG}, "hidden_size": {LONG}}}'.encode())),
    Spoil(
        "NaN", _writes(b'{"schema": NaN, "prompt": NaN, "hidden_size": NaN, "rope_scaling": {"factor": -Infinity}}')
    ),
    Spoil("no UTF-8", _writes(b"\xff\xfe\x00[")),
)
TOML = (
    *NO_FILES,
    Spoil("a dotted key", _writes(b"a" + b".a" * 100_000 + b" = 1")),
    Spoil("deep arrays", _writes(b"a = " + b"[" * 100_000)),
    Spoil("deep tables", _writes(b"a = " + b"{a=" * 50_000)),
    Spoil("digits", _writes(b"a = " + b"1" * 100_000)),
    Spoil("no numbers", _writes((PROFILE.replace("82.0", "nan").replace("900.0", "inf")).encode())),
    Spoil("no UTF-8", _writes(b"a = '\xff'")),
    Spoil("2 MiB", _writes(b"# " + b"x" * (2 << 20))),
)


class Command(NamedTuple):
    """A command that a user types, and the file of its folder that is spoiled."""

    words: Sequence[str]
    file: str
    spoils: Sequence[Spoil]

    def __str__(self) -> str:
        return f"{self.name}: {self.file}"

    @property
    def name(self) -> str:
        """What the user types, without the names of files."""
        return f"pytest {self.words[-1]}" if self.words[0] == "pytest" else " ".join(self.words[:2])


INSPECT = ("specprobe", "inspect", "drafter", "--target", "target")
STATIC = ("pytest", "--specprobe-drafter=mine", "--specprobe-static")
PLAN = ("pytest", "--specprobe-drafter=mine", "--specprobe-plan")
COMMANDS = (
    *(Command(INSPECT, f"drafter/{name}", JSON) for name in ("config.json", "model.safetensors.index.json")),
    Command(INSPECT, "drafter/model.safetensors", JSON),
    *(Command(INSPECT, f"target/{name}", JSON) for name in ("config.json", "tokenizer.json", "chat_template.jinja")),
    Command(("specprobe", "report"), ".specprobe/report.json", JSON),
    Command(("specprobe", "history"), ".specprobe/history.jsonl", JSON),
    Command(("specprobe", "compare", "01234567", "89abcdef"), ".specprobe/history.jsonl", JSON),
    Command(("specprobe", "servers"), f"state/servers/{'0' * 32}.json", JSON),
    Command(STATIC, "specprobe.toml", TOML),
    # pytest reads pyproject.toml too, before any plugin is there: what it makes of one is its own.
    Command(("specprobe", "inspect", "drafter", "--target", "small"), "pyproject.toml", TOML),
    Command(PLAN, "specprobe.toml", TOML),
    Command(PLAN, "w.jsonl", JSON),
    Command(STATIC, "drafter/config.json", JSON),
    Command(STATIC, "target/config.json", JSON),
)
SMALL = """
[targets.small]
model = "target"
devices = ["cpu"]
workload = "w.jsonl"
[drafters.mine]
source = "drafter"
target = "small"
speculation = { num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }
"""


def prepare(folder: Path) -> None:
    """Put a good project there: a pair, a profile, a workload; and no report or history yet."""
    for name in (".specprobe", "state/servers"):
        (folder / name).mkdir(parents=True, mode=0o700)
    (folder / "state").chmod(0o700)
    build.llama().save(folder / "drafter")
    build.target().save(folder / "target")
    (folder / "specprobe.toml").write_text(SMALL)
    (folder / "w.jsonl").write_text("\n".join(map(json.dumps, CHATS)))


def run(words: Sequence[str | bytes], folder: Path) -> tuple[str, str]:
    """Run a command; return what became of it (as counted) and its output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"SPECPROBE_STATE_DIR": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    # As in any locale of UTF-8 but C: a lone surrogate cannot be printed.
    env |= {"PYTHONIOENCODING": "utf-8:strict"}
    program, *rest = words
    module = ["-m", "pytest", "-p", "no:cacheprovider"] if program == "pytest" else ["-c", CLI]
    try:
        done = subprocess.run(
            [sys.executable, *module, *rest],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return "slow", (error.output or b"").decode(errors="replace")
    text = done.stdout.decode(errors="replace")
    if done.returncode < 0 or re.search(r"Traceback|INTERNALERROR|pytest_specprobe/\S+\.py", text):
        return "traceback", text
    named = "culprit: " in text or "[drafter-" in text or "[target]" in text
    if done.returncode and not named:
        return "unnamed", text
    return ("refused" if done.returncode else "accepted"), text


CLI = "import sys; from pytest_specprobe.cli import main; sys.exit(main())"


def run_all(tasks: Mapping[str, Callable[[], tuple[str, str]]], count: Counter[str]) -> dict[str, str]:
    """Run all, two at a time; return the outputs of those that went wrong."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ended = dict(zip(tasks, pool.map(lambda task: task(), tasks.values()), strict=True))
    count.update(what for what, _ in ended.values())
    return {name: text[-3000:] for name, (what, text) in ended.items() if what not in {"accepted", "refused"}}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_with_a_hostile_file(command: Command, tmp_path: Path, counts: dict[str, Counter[str]]) -> None:
    """FIFOs and devices in the place of files, deep and absurd content: one named error, and none that waits."""

    def task(spoil: Spoil, folder: Path) -> tuple[str, str]:
        prepare(folder)
        (folder / command.file).unlink(missing_ok=True)
        spoil.put(folder / command.file)
        ended = run(command.words, folder)
        shutil.rmtree(folder)
        return ended

    tasks = {
        spoil.name: lambda spoil=spoil, at=at: task(spoil, tmp_path / f"{at}")
        for at, spoil in enumerate(command.spoils)
    }
    assert run_all(tasks, counts.setdefault(f"`{command.name}`", Counter())) == {}


ODD_WORDS: tuple[tuple[str | bytes, ...], ...] = (
    ("specprobe", "inspect", b"\xff"),
    ("specprobe", "inspect", "drafter", "--target", b"t\xed\xa0\x80"),
    ("specprobe", "diff", b"\xff", b"\x1b[2J"),
    ("specprobe", "report", b"\xff"),
    ("specprobe", "history", b"\xff"),
    ("specprobe", "history", "--drafter", b"\xff"),
    ("specprobe", "compare", b"\xff", b"\xfe"),
    ("specprobe", "init", b"\xff", b"\xfe"),
    ("specprobe", "init", "drafter", "target", "--name", b"\xff"),
    ("specprobe", "init", "drafter", "target", "--output", b"a\xff"),
    ("specprobe", "doctor", b"\xff"),
    ("pytest", b"--specprobe-drafter=\xff"),
    ("pytest", "--specprobe-drafter=mine", "--specprobe-static", b"--specprobe-workload=\xff.jsonl"),
    ("pytest", "--specprobe-drafter=mine", "--specprobe-plan", b"--specprobe-report=\xff"),
    ("pytest", "--specprobe-drafter=mine", "--specprobe-static", b"--specprobe-report=r\xff"),
    ("pytest", "--specprobe-drafter=mine", "--specprobe-plan", b"--specprobe-profiles=\xff"),
    ("pytest", "--specprobe-drafter=mine", "--specprobe-plan", b"--specprobe-python=\xff"),
    ("pytest", "--specprobe-drafter=mine", "--specprobe-plan", b"--specprobe-server=http://\xff"),
)


@pytest.mark.timeout(900)
def test_words_that_are_no_text(tmp_path: Path, counts: dict[str, Counter[str]]) -> None:
    """Bytes that are no UTF-8 reach Python as lone surrogates; printing them must not fail."""

    def task(at: int) -> tuple[str, str]:
        prepare(tmp_path / f"{at}")
        what, text = run(ODD_WORDS[at], tmp_path / f"{at}")
        # argparse and pytest name a wrong option themselves, without a culprit
        return ("refused" if what == "unnamed" and "error" in text.lower() else what), text

    tasks = {repr(words): lambda at=at: task(at) for at, words in enumerate(ODD_WORDS)}
    assert run_all(tasks, counts.setdefault("words of a command line", Counter())) == {}
