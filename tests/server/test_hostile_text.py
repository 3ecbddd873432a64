"""What others write costs time in proportion to its length, whatever it is; and a boot ends at its deadline."""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specprobe.errors import BootError, ServerError
from pytest_specprobe.foreign import LINE, cut, cut_lines, printable
from pytest_specprobe.measure.checks.foreign_traffic import check_traffic
from pytest_specprobe.report.render.markdown import escape
from pytest_specprobe.report.render.text import kept_together
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.log.boot_log import PHASES, advance, faults, tail
from pytest_specprobe.server.log.diagnosis import diagnose, root_exception
from pytest_specprobe.server.log.file import read_ends, read_log
from pytest_specprobe.server.log.growing import _BEHIND, _PIECE, GrowingLog
from pytest_specprobe.server.redaction import redact_command, redact_text, redact_value
from pytest_specprobe.server.secret_forms import is_secret_name
from pytest_specprobe.server.spec import ServerSpec

KEY = Secret("0123456789abcdef0123456789abcdef")
# One unit of each is repeated; most are the beginning of something that a pattern looks for and never finds.
UNITS = (
    "a", "A", "a.", "A.a.", "A_", "1", "1.", "1, ", "[1, ", "a-", "-", "--", "--a", "=", ":", " ", "\t", "'",
    '"', "\\", '\\"', "(", "[", "[ ", "[[", "{'", "<", "a@", "@", "a://", "://", "://a:", "://a@", "Bearer ",
    "bearer", "Basic ", "basic aA", "Authorization:", "authorization: Bearer", "cookie", "api_key", "api_key=",
    "api_key='", "token", "tokens ", "token:", "password", "secret", "--token", "--a-token ", "--api-key', ",
    "['--api-key',", "-u a", "-u a:", "login ", "login a password", "eyJ", "eyJa.", "eyJ-", "sk-", "sk_",
    "hf_", "ghp_a", "AKIA", "xoxb-", "-----BEGIN PRIVATE KEY", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ",
    "\u001b[", "\u001b[0", "\u001b[1m", "\u0000", "\r", "Capture ", "Capture a graph",
    "Traceback (most recent call last):", "Error", "AError", "Error.", "OutOfMemory", "error ", "Port ",
    "port 1", "model type 'a", "does not have", "does not have a", "no accelerator ", "Quantization method ",
    "Model architectures a", "index 1", "Cannot find any model weights with `", "argument --a",
    "Attempted to load weight (torch.Size([1, ", "Decode batch", "Decode batch #running-req: 1",
    "#running-req: ", "a: 1 [", "a: 1", "\u00fc", "\ud7ff", "\u200b",
)  # fmt: skip
EVERYTHING = "".join(UNITS)


def _advance(text: str) -> object:
    phase = PHASES[0]
    for line in text.split("\n"):
        phase = advance(phase, line)
    return phase


READERS: dict[str, Callable[[str], object]] = {
    "redact_text": lambda text: redact_text(text, secrets=(KEY,)),
    "redact_value": lambda text: redact_value({"a": [text], text: 1}, secrets=(KEY,)),
    "redact_command": lambda text: redact_command(("a", text, f"--{text}", f"--a={text}")),
    "is_secret_name": is_secret_name,
    "hide": KEY.hide,
    "printable": printable,
    "cut_lines": cut_lines,
    "faults": faults,
    "tail": lambda text: tail(text, 15),
    "advance": _advance,
    "root_exception": root_exception,
    "diagnose": diagnose,
    "traffic": lambda text: check_traffic(text, concurrency=1),
    "kept_together": kept_together,
    "escape": escape,
}


def line(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def lines(unit: str, size: int, *, length: int) -> str:
    return (line(unit, length) + "\n") * (size // length)


def growth(read: Callable[[str], object], smaller: str, larger: str, *, enough: float) -> float:
    """Return how many times the CPU time of one text another takes: the least of five looks, or the first below."""
    least = float("inf")
    for _ in range(5):
        spent = []
        for text in (smaller, larger):
            start = time.process_time()
            read(text)
            spent.append(max(time.process_time() - start, 2e-4))  # below that it is the clock that is measured
        least = min(least, spent[1] / spent[0])
        if least <= enough:
            break
    return least


MOST = 25.0  # ten times as much takes ten times as long; squared, it would be a hundred times


def slow(read: Callable[[str], object]) -> list[str]:
    return [unit for unit in UNITS if growth(read, line(unit, 1_000), line(unit, 10_000), enough=MOST) > MOST]


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_no_beginning_of_a_form_is_slow_when_repeated(read: Callable[[str], object]) -> None:
    assert slow(read) == []


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_megabyte_takes_about_ten_times_as_long_as_a_tenth(read: Callable[[str], object]) -> None:
    assert growth(read, line(EVERYTHING, 100_000), line(EVERYTHING, 1_000_000), enough=MOST) < MOST
    small, large = (lines(EVERYTHING, size, length=LINE - 1) for size in (100_000, 1_000_000))
    assert growth(read, small, large, enough=MOST) < MOST


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_the_length_of_lines_costs_nothing(read: Callable[[str], object]) -> None:
    """Lines are cut, which would hide a square within them: as much in lines ten times as long takes as long."""
    texts = {u: (lines(u, 12_000, length=400), lines(u, 12_000, length=4000)) for u in UNITS}
    assert [u for u, (short, long) in texts.items() if growth(read, short, long, enough=6.0) > 6] == []


def test_the_measure_knows_a_square() -> None:
    was = re.compile(r"([a-z][a-z0-9+.-]*://)()[^\s/@:'\"]+:[^\s/@'\"]+(?=@)", re.IGNORECASE)
    assert growth(lambda text: was.sub("", text), line("a", 1_000), line("a", 10_000), enough=MOST) > MOST


def test_a_key_that_a_cut_goes_through_is_hidden(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("x" * (LINE - 10) + KEY.reveal() + "y" * 100)
    text = read_log(log, secrets=(KEY,))
    assert text.startswith("x" * (LINE - 10) + "***yyy")
    assert not any(KEY.reveal()[at : at + 8] in text for at in range(24))


def test_what_is_cut_says_so() -> None:
    assert cut("x" * 5000, 10) == "xxxxxxxxxx... (4,990 more characters)"
    assert cut("short") == "short"


def test_the_ends_of_a_log_are_all_that_a_boot_looks_at(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("first\n" + "x\n" * 5000 + "last\n")
    assert read_ends(log) == read_log(log)
    text = read_ends(log, size=100)
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "bytes left out" in text
    assert len(text) < 300


def test_one_look_at_a_growing_log_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = GrowingLog(path)
    path.write_bytes(b"x" * (3 * _PIECE))
    assert [len(line) for line in log.new_lines(1.0)] == [LINE]
    path.write_bytes(b"y\n" * (2 * _BEHIND))
    assert 0 < len(log.new_lines(2.0)) <= 10_000
    with path.open("ab") as file:
        file.write(b"the end\n")
    for _ in range(3):
        log.new_lines(3.0)
    assert log.last_line == "the end"


FLOOD = """
import os, sys
unit = b"Traceback (most recent call last): A.a://token=Capture Bearer sk-eyJ [1, does not have "
line = (unit * 40000)[:3000000]
while True:
    os.write(1, line + b"\\n" + unit * 4 + b"\\n" * 1000)
"""


def test_a_boot_whose_log_is_a_flood_ends_at_its_deadline(tmp_path: Path) -> None:
    script = tmp_path / "flood"
    script.write_text(f"#!{sys.executable}\n{FLOOD}")
    script.chmod(0o755)
    spec = ServerSpec(model="m", device="cpu", python=str(script))
    patience_s = 3.0
    start_s = time.monotonic()
    with pytest.raises((BootError, ServerError), match="not ready after 3 s"):
        boot(spec, log_path=tmp_path / "server.log", timeout_s=patience_s)
    assert time.monotonic() - start_s < 10 * patience_s
