"""What this tool started: a record per server in the user's state directory, so that leftovers can be ended later."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """One server this tool started. ``start_time`` (seconds since the epoch) makes the pid an identity."""

    pid: int
    start_time: float
    port: int
    label: str
    log_path: Path
    marker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a port or GPU memory; named in messages, never touched."""

    pid: int
    command: str
    user: str
    what: str


def leftovers() -> tuple[Owned, ...]:
    """Return recorded servers that still run though the process that started them is gone."""
    raise NotImplementedError


def reap() -> tuple[Owned, ...]:
    """End every leftover and return them; processes that are not provably ours are never touched."""
    raise NotImplementedError


def port_holders(port: int) -> tuple[Holder, ...]:
    """Return who listens on a local TCP port."""
    raise NotImplementedError


def gpu_holders() -> tuple[Holder, ...]:
    """Return who holds GPU memory, by nvidia-smi; empty where there is none."""
    raise NotImplementedError
