"""What a server's log says: how far the boot is, and what is wrong with it. Pure functions on text."""

import re
from typing import Literal, get_args

from pytest_specprobe.foreign import LINE, cut, uncoloured

Phase = Literal["launch", "init", "weights", "draft-weights", "kv-cache", "graphs", "warm-up", "ready"]
PHASES: tuple[Phase, ...] = get_args(Phase)

# SGLang tries every model file at start; healthy logs are full of these.
_HARMLESS = "Ignore import error when loading"
_OTHER_RANK = re.compile(r"^\[[^\]]* (?:TP|PP|DP|EP)[1-9]\d*")
# Once for the target, then for its drafter; the mark of the drafter below is written for dense targets alone.
_LOAD = "Load weight begin"
_MARKS: tuple[tuple[re.Pattern[str], Phase], ...] = (
    (re.compile(r"The server is fired up and ready to roll"), "ready"),
    (re.compile(r"Uvicorn running on|Application startup complete"), "warm-up"),
    (re.compile(r"Capture .{0,200}?graph begin|Capturing (?:batches|num tokens)"), "graphs"),
    (re.compile(r"KV Cache is allocated|Memory pool end"), "kv-cache"),
    (re.compile(r"SPECULATIVE_MOE_RUNNER_BACKEND is not initialized"), "draft-weights"),
    (re.compile(r"Load weight begin|Multi-thread loading shards|Loading safetensors checkpoint shards"), "weights"),
    (re.compile(r"server_args=|Init torch distributed|Init parallel"), "init"),
)
_FAULT = re.compile(
    r"Traceback \(most recent call last\)|\bhit an exception\b|Segmentation fault"
    r"|^(?:\[[^\]]*\]\s*)?(?:ERROR|CRITICAL)\b"
)


def plain_lines(text: str) -> list[str]:
    """Return the lines of a log as a reader sees them: no colours, a progress bar in its newest state only."""
    return [cut(line.rstrip().rpartition("\r")[2], LINE) for line in uncoloured(text).split("\n")]


def advance(phase: Phase, line: str) -> Phase:
    """Return the phase after one more log line; it never goes back, and only rank 0 counts."""
    line = line[:LINE]
    if _HARMLESS in line or _OTHER_RANK.match(line):
        return phase
    if phase == "weights" and _LOAD in line:
        return "draft-weights"
    for pattern, reached in _MARKS:
        if pattern.search(line):
            return max(phase, reached, key=PHASES.index)
    return phase


def tail(text: str, lines: int) -> str:
    """Return the last lines of a log that say something."""
    said = [line for line in plain_lines(text) if line.strip() and _HARMLESS not in line]
    return "\n".join(said[-lines:])


def faults(text: str) -> tuple[str, ...]:
    """Return the lines that no healthy server writes: tracebacks, exceptions of a process, ERROR records."""
    return tuple(line.strip()[:300] for line in plain_lines(text) if _FAULT.search(line) and _HARMLESS not in line)
