"""How much of the machine others used while a pass ran: what makes tok/s on a shared CPU wide or wrong."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import psutil

from pytest_specprobe.findings import Finding

# Below the second, drafter and baseline lose alike, and speedups stay what they are; above it they were seen to be
# off by a third (eight processes on two cores), which no interval over prompts holds.
_BUSY_SHARE, _CROWDED_SHARE = 0.10, 0.40
BUSY_MACHINE, CROWDED_MACHINE, CROWDED_SWEEP = (
    "measure.busy-machine",
    "measure.crowded-machine",
    "measure.crowded-sweep",
)
"""The findings that others go by; those of the machine say that the pass that decides was not alone."""
Part = Literal["machine", "level", "sweep"]
"""What was measured meanwhile: what the verdict rests on (the whole machine is then too busy for it), or more."""
_PARTS: Mapping[Part, str] = {
    "machine": "the throughput pass",
    "level": "a throughput pass of more streams",
    "sweep": "the sweep",
}
_BUSY: Mapping[Part, str] = {
    "machine": BUSY_MACHINE,
    "level": "measure.busy-level",
    "sweep": "measure.busy-sweep",
}
_CROWDED: Mapping[Part, str] = {
    "machine": CROWDED_MACHINE,
    "level": "measure.crowded-level",
    "sweep": CROWDED_SWEEP,
}


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU seconds at one moment: of the whole machine, of our own processes, and the clock.

    ``machine_s`` counts user and system time of all cores, ``own_s`` that of this process, the servers, and all their
    descendants.
    """

    machine_s: float
    own_s: float
    clock_s: float

    @classmethod
    def now(cls, servers: Iterable[int]) -> "CpuTime":
        """Read the counters; ``servers`` are pids of the processes that our servers were started as."""
        times = psutil.cpu_times()
        own = sum(_tree_s(pid) for pid in servers) + time.process_time()
        return cls(times.user + times.nice + times.system, own, time.monotonic())


def check_load(*turns: tuple[CpuTime, CpuTime], part: Part = "machine") -> Finding:
    """Check that other processes used little of the machine during these turns, each from one moment to another.

    The share is of all cores: on a machine of two, one busy neighbour is 50 %.
    """
    seconds = sum(after.clock_s - before.clock_s for before, after in turns)
    machine = sum(after.machine_s - before.machine_s for before, after in turns)
    own = sum(after.own_s - before.own_s for before, after in turns)
    others = max(machine - own, 0.0) / (max(seconds, 1e-9) * (psutil.cpu_count() or 1))
    crowded = others > _CROWDED_SHARE
    return Finding(
        id=(_CROWDED if crowded else _BUSY)[part],
        severity="warning",
        status="fail" if others > _BUSY_SHARE else "pass",
        culprit="machine",
        seen=f"other processes used {others:.0%} of the CPU during {_PARTS[part]}",
        expected=f"at most {_BUSY_SHARE:.0%}",
        why="They slow one server more than the other, so that even the speedup may be off by more than its interval."
        if crowded
        else "They slow one server more than the other from one second to the next: intervals grow, speedups drift.",
        fix="measure on a quiet machine",
    )


def _tree_s(pid: int) -> float:
    """Return the CPU seconds of a process and its living descendants; 0 for what is gone."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0.0
    return sum(_own_s(process) for process in family)


def _own_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
