"""What the user asked for, as one frozen value."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pytest_specprobe.profiles import Speculation

Device: TypeAlias = Literal["auto", "cuda", "cpu"]
Baseline: TypeAlias = Literal["stored", "boot", "alternating", "none"] | float | str
"""A mode, a declared tok/s, or the URL of a running server without speculation."""
Across: TypeAlias = Literal["drafter", "engine", "flags"]
"""A part of a run's key that a person may let differ from the earlier runs it is held against."""
ACROSS: tuple[Across, ...] = ("drafter", "engine", "flags")
BOOTED = ("boot", "alternating", "stored")
"""The modes that boot a server (stored: where none of the question is kept)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked for, with defaults filled in. Paths are absolute, times are seconds.

    ``baseline``, ``workload``, ``blind`` and ``boot_timeout_s`` are None where the profile decides; ``across`` are
    the parts that may differ from earlier runs for ``max_regression``, each once, in the order given.
    """

    drafters: tuple[str, ...]
    root: Path
    profiles: Path | None
    report: Path
    server: str | None
    baseline: Baseline | None
    blind: bool | None
    workload: str | None
    concurrency: tuple[int, ...]
    temperature: float | None
    sweep: "tuple[Speculation, ...]"
    static: bool
    device: Device
    python: Path | None
    boot_timeout_s: float | None
    across: tuple[Across, ...] = ()
