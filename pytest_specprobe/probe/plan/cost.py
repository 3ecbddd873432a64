"""What a probe costs: boots, minutes, GPU-minutes and disk, from recorded runs where there are any.

Invariant: what no run has shown yet is said to be unknown, never guessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.checkpoint.files.shards import weight_files
from pytest_specprobe.errors import CheckpointError, ProfileError
from pytest_specprobe.report.read import read_report
from pytest_specprobe.report.render.text import seconds

_BOOT = "boot"


@dataclass(frozen=True, slots=True)
class Boot:
    """One server to boot, and the seconds that its last boot on this machine took; None if there was none.

    ``unsure``: the run may spare it.
    """

    what: str
    usual_s: float | None
    unsure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A probe's price.

    ``rest_s`` are the seconds of everything but boots in the last recorded run of this drafter (None: no such run),
    ``gpus`` how many GPUs its servers hold together from the first boot to the end (0 on a CPU), ``copied`` the bytes
    that staging copies.
    """

    boots: tuple[Boot, ...]
    rest_s: float | None
    gpus: int
    copied: int

    @property
    def total_s(self) -> float | None:
        """Return the seconds of the whole probe, if all parts were seen before."""
        known = [boot.usual_s for boot in self.boots]
        if self.rest_s is None or any(s is None for s in known):
            return None
        return self.rest_s + sum(s for s in known if s is not None)

    def lines(self, *, source: Path) -> Iterator[str]:
        """Yield the lines of the plan; ``source`` is where recorded runs are."""
        shown = ", ".join(f"{b.what} ({'if needed, ' * b.unsure}{_last(b.usual_s)})" for b in self.boots)
        yield f"  boots         {len(self.boots)}{f': {shown}' if shown else ''}"
        if self.rest_s is None:
            yield f"  time          unknown: no run of this drafter is recorded in {source}"
        elif self.total_s is None:
            yield f"  time          {seconds(self.rest_s)} beside the boots, in the last run recorded in {source}"
        else:
            yield f"  time          about {seconds(self.total_s)}, as in the last run recorded in {source}"
        if self.gpus:
            held = "unknown" if self.total_s is None else f"about {self.gpus * self.total_s / 60:.0f}"
            yield f"  GPU-minutes   {held}: {self.gpus} GPU(s), held from the first boot to the end"
        yield f"  disk          {_size(self.copied)} copied for staging; cloned where the file system can"


def rest_of_last_run(folder: Path, *, drafter: str) -> float | None:
    """Return the seconds of all phases but boots in the last report in ``folder``, if it has a finished probe."""
    try:
        entries = read_report(folder)["drafters"]
    except ProfileError:
        return None
    for entry in entries:
        if entry["name"] == drafter and entry["throughput"]:
            return float(sum(phase["seconds"] for phase in entry["phases"] if phase["name"] != _BOOT))
    return None


def copied_bytes(drafter: Path | None, *, blind: bool) -> int:
    """Return the bytes of a drafter's weights, twice with a blind control; 0 where they cannot be read."""
    if drafter is None:
        return 0
    try:
        size = sum((drafter / name).stat().st_size for name in weight_files(drafter))
    except (CheckpointError, OSError):
        return 0
    return 2 * size if blind else size


def _last(usual_s: float | None) -> str:
    return "not booted here yet" if usual_s is None else f"last time {seconds(usual_s)}"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count else "nothing"
