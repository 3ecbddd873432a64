"""Can this machine run a probe, and if not, what exactly is missing? Nothing is started, written or fetched."""

import platform
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import psutil
from packaging.version import InvalidVersion, Version

from pytest_specprobe.engines.cpu import SGLANG_VERSION
from pytest_specprobe.findings import Finding, Severity
from pytest_specprobe.probe.plan.device import OLDEST_CUDA, engine
from pytest_specprobe.server.gpu.holders import Holder
from pytest_specprobe.server.gpu.nvidia_smi import Gpu

ROOM_GIB = 2.0
MEMORY_GIB = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is; read by ``look``, or made up by a test.

    ``sglang`` and ``torch`` are versions in the interpreter that serves, None where it has none; ``python`` is None
    where that interpreter cannot be run. ``memory_gib`` is what is available now, ``room_gib`` what the disk of the
    staging cache has free.
    """

    python: Path | None
    sglang: str | None
    torch: str | None
    plots: str | None
    gpus: tuple[Gpu, ...]
    holders: tuple[Holder, ...]
    memory_gib: float
    cores: int
    room_gib: float
    cache: Path
    loopback: str | None
    system: str


def look(*, python: Path | None, cache: Path, gpus: Sequence[Gpu], holders: Sequence[Holder]) -> Machine:
    """Return what this machine has; ``python`` names the interpreter that holds SGLang (default: this one)."""
    holder = engine(python)
    return Machine(
        python=holder.python if holder.fault is None else None,
        sglang=holder.version,
        torch=holder.torch,
        plots=_installed("matplotlib"),
        gpus=tuple(gpus),
        holders=tuple(holders),
        memory_gib=psutil.virtual_memory().available / 2**30,
        cores=psutil.cpu_count() or 1,
        room_gib=shutil.disk_usage(_nearest(cache)).free / 2**30,
        cache=cache,
        loopback=_loopback(),
        system=platform.system(),
    )


def examine(machine: Machine) -> tuple[Finding, ...]:
    """Return every check, passing ones too. An error is what no probe can do without."""
    return (*_system(machine), *_sglang(machine), *_devices(machine), *_room(machine))


def runs(machine: Machine) -> Mapping[Literal["cpu", "cuda"], bool]:
    """Tell for each device whether a server could be booted there."""
    able = machine.system == "Linux" and machine.loopback is None and machine.torch is not None
    found = _version(machine.sglang)
    return {
        "cpu": able and found is not None and found.public == SGLANG_VERSION,
        "cuda": able and found is not None and found >= OLDEST_CUDA and bool(machine.gpus),
    }


def _check(
    name: str, severity: Severity, *, holds: bool | None, asks: tuple[str, str], why: str, fix: str
) -> Finding:
    """Return one check; ``asks`` is what was seen and what is wanted, ``holds`` None where it cannot be asked yet."""
    seen, expected = asks
    return Finding(
        id=f"machine.{name}",
        severity=severity,
        status="skip" if holds is None else "pass" if holds else "fail",
        culprit="machine",
        seen=seen,
        expected=expected,
        why=why,
        fix=fix,
    )


def _system(m: Machine) -> Iterator[Finding]:
    yield _check(
        "linux",
        "error",
        holds=m.system == "Linux",
        asks=(m.system, "Linux"),
        why="Servers are supervised through Linux process facts.",
        fix="run on Linux, or attach to a server there",
    )
    yield _check(
        "loopback",
        "error",
        holds=m.loopback is None,
        asks=(m.loopback or "a free port on 127.0.0.1", "a free port on 127.0.0.1"),
        why="Owned servers listen on the loopback interface only.",
        fix="bring the loopback interface up (`ip link set lo up`)",
    )


def _sglang(m: Machine) -> Iterator[Finding]:
    where = m.python or "the named interpreter"
    install = f"{where} -m pip install 'sglang=={SGLANG_VERSION}'"
    yield _check(
        "python",
        "error",
        holds=m.python is not None,
        asks=(str(where) if m.python else "it cannot be run", "an interpreter that holds SGLang"),
        why="SGLang runs as a command of this interpreter.",
        fix="name one with --python here, and with --specprobe-python for a probe",
    )
    found = _version(m.sglang)
    yield _check(
        "sglang",
        "error",
        holds=None if m.python is None else found is not None and found >= OLDEST_CUDA,
        asks=(f"SGLang {m.sglang}" if m.sglang else f"no SGLang in {where}", f"SGLang {OLDEST_CUDA} or newer"),
        why="There is nothing to boot.",
        fix=install,
    )
    yield _check(
        "torch",
        "error",
        holds=None if found is None else m.torch is not None,
        asks=(f"torch {m.torch}" if m.torch else f"no torch in {where}", "torch, which comes with SGLang"),
        why="SGLang does not start without it.",
        fix=install,
    )


def _devices(m: Machine) -> Iterator[Finding]:
    cards = ", ".join(f"{g.name} ({g.memory_mib / 1024:.0f} GiB, driver {g.driver})" for g in m.gpus)
    held = "; ".join(str(holder) for holder in m.holders)
    found = _version(m.sglang)
    yield _check(
        "gpu",
        "warning",
        holds=bool(m.gpus),
        asks=(cards or "none (nvidia-smi)", "as many as a target's tp"),
        why="Only targets whose profile lists cpu under devices can be served here.",
        fix="run where the GPUs are, or attach to a server there with --specprobe-server=URL",
    )
    yield _check(
        "gpu-free",
        "warning",
        holds=not held if m.gpus else None,
        asks=(held or "held by nobody", "held by nobody"),
        why="Others' GPU memory is left alone, and a boot runs out of what remains.",
        fix="stop them yourself, or wait",
    )
    yield _check(
        "cpu-engine",
        "warning",
        holds=None if found is None else found.public == SGLANG_VERSION,
        asks=(f"SGLang {m.sglang or 'missing'}, {m.cores} cores", f"SGLang {SGLANG_VERSION} exactly"),
        why="The CPU engine is written against the internals of that version; only GPUs can serve without it.",
        fix=f"{m.python or 'python'} -m pip install 'sglang=={SGLANG_VERSION}'",
    )


def _room(m: Machine) -> Iterator[Finding]:
    yield _check(
        "memory",
        "warning",
        holds=m.memory_gib >= MEMORY_GIB,
        asks=(f"{m.memory_gib:.1f} GiB available", f"{MEMORY_GIB:g} GiB or more"),
        why="One SGLang takes about 1.5 GiB before any weights, and drafter and baseline are up together.",
        fix="close something, or give a baseline in tok/s: --specprobe-baseline=NUMBER",
    )
    yield _check(
        "disk",
        "warning",
        holds=m.room_gib >= ROOM_GIB,
        asks=(f"{m.room_gib:.1f} GiB free at {m.cache}", f"{ROOM_GIB:g} GiB or more"),
        why="Staged drafters are links where they can be, and copies across file systems.",
        fix="free some, or set XDG_CACHE_HOME to a larger disk",
    )
    yield _check(
        "plots",
        "info",
        holds=m.plots is not None,
        asks=(m.plots or "no matplotlib", "matplotlib"),
        why="The HTML page has no plots without it; nothing else needs it.",
        fix="pip install 'pytest-specprobe[report]'",
    )


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None


def _installed(package: str) -> str | None:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None


def _nearest(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def _loopback() -> str | None:
    """Bind a free port; return why that is impossible, or None."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        return str(error)
    return None
