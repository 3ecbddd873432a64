"""What this tool started: a record per server in the user's state directory, so that leftovers can be ended later.

A process is ours only by recorded identity: its pid *and* start time, or the random marker of its boot in its
environment. A name or a port never makes it ours.
"""

import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from platformdirs import user_state_path

from pytest_specprobe.reading import Bounds, Unreadable, read_json
from pytest_specprobe.server.redaction import redact_command
from pytest_specprobe.server.supervisor import Process, end_all, marked, read_process

logger = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NVIDIA_SMI_PATIENCE_S = 20
_RECORD_BOUNDS = Bounds(size=4 << 20, depth=8)
_SCRATCH = "specprobe-"
_DEEPEST = 48  # bytes; leaves room for the directory, a socket's name and SGLang's suffixes


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """One server this tool started.

    ``marker`` is the random value of ``SPECPROBE_BOOT`` in the environment of all its processes. Start times are
    clock ticks after the machine's boot, ``boot_id`` names that boot, ``created`` is seconds since the epoch.
    ``owner_pid`` is the pytest (or ``specprobe serve``) that started it; pids mean something in ``pid_namespace``
    only (0: unknown). ``gpus`` are the driver's uuids. ``command`` holds no secret; ``scrubbed`` names the variables
    that were kept from the server; ``environment`` has those of its own that change its speed (None: not recorded).
    """

    marker: str
    pid: int
    start_time: int
    owner_pid: int
    owner_start_time: int
    host: str
    boot_id: str
    port: int
    label: str
    log_path: str
    scratch: str
    created: float
    pid_namespace: int = 0
    device: str = ""
    gpus: tuple[str, ...] = ()
    drafter: str | None = None
    command: tuple[str, ...] = ()
    scrubbed: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None

    @property
    def owner_lives(self) -> bool:
        """Whether the process that started this server still runs."""
        return _is(self.owner_pid, self.owner_start_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a port or GPU memory; named in messages, never touched.

    ``what`` says what it holds (``port 30000``, ``2048 MiB of GPU-...``). Command and user are "?" where this user
    may not see them.
    """

    pid: int | None
    command: str
    user: str
    what: str

    def __str__(self) -> str:
        return f"{self.what}: pid {self.pid or '?'} ({self.user}) {self.command}"


def state_dir() -> Path:
    """Return where this tool keeps what it must remember; ``SPECPROBE_STATE_DIR`` overrides the user's directory."""
    root = os.environ.get("SPECPROBE_STATE_DIR")
    return Path(root) if root else user_state_path("specprobe")


def records_dir() -> Path:
    """Return the directory of the records of servers."""
    return state_dir() / "servers"


def scratch_dir(marker: str) -> Path:
    """Return the path of a boot's own temporary directory: its key file, its sockets, whatever it leaves.

    A path of ``/tmp`` where the usual place is too deep for the name of a Unix socket (108 bytes).
    """
    usual = Path(tempfile.gettempdir())
    parent = usual if len(str(usual)) <= _DEEPEST else Path("/tmp")  # noqa: S108 - the name is random, mkdir exclusive
    return parent / f"{_SCRATCH}{marker[:16]}"


def record(
    *,
    marker: str,
    pid: int,
    start_time: int,
    port: int,
    label: str,
    log_path: Path,
    scratch: Path,
    device: str = "",
    gpus: Iterable[str] = (),
    drafter: Path | None = None,
    command: Iterable[str] = (),
    scrubbed: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Path | None:
    """Write down a server that this process started; return the record's path, None if it could not be written."""
    me = read_process(os.getpid())
    owned = Owned(
        marker=marker,
        pid=pid,
        start_time=start_time,
        owner_pid=os.getpid(),
        owner_start_time=me.start_time if me else 0,
        host=socket.gethostname(),
        boot_id=_boot_id(),
        port=port,
        label=label,
        log_path=str(log_path),
        scratch=str(scratch),
        created=time.time(),
        pid_namespace=_pid_namespace(),
        device=device,
        gpus=tuple(gpus),
        drafter=None if drafter is None else str(drafter),
        command=tuple(command),
        scrubbed=tuple(scrubbed),
        environment=environment,
    )
    path = records_dir() / f"{marker}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(owned)), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        # Only a convenience for after a crash: the supervisor ends the server with or without it.
        logger.warning("could not record the server in %s: %s", path, error)
        return None
    return path


def forget(marker: str) -> None:
    """Remove the record of a server that is gone, and its temporary directory should that be left."""
    path = records_dir() / f"{marker}.json"
    owned = _read(path)
    if owned is not None and Path(owned.scratch).name == scratch_dir(marker).name:
        shutil.rmtree(owned.scratch, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def servers() -> tuple[Owned, ...]:
    """Return the recorded servers that still run on this machine; clear the records of those that do not."""
    alive = []
    for path in sorted(records_dir().glob("*.json")):
        owned = _read(path)
        # In another container's namespace pids are other processes, and what lives there cannot be seen from here.
        if owned is None or owned.host != socket.gethostname() or owned.pid_namespace not in {0, _pid_namespace()}:
            continue
        if owned.boot_id == _boot_id() and processes_of(owned):
            alive.append(owned)
        elif not owned.owner_lives or owned.boot_id != _boot_id():
            forget(owned.marker)
    return tuple(alive)


def leftovers() -> tuple[Owned, ...]:
    """Return recorded servers that still run though the process that started them is gone."""
    return tuple(owned for owned in servers() if not owned.owner_lives)


@dataclass(frozen=True, slots=True)
class Reaped:
    """A leftover that was asked to end; ``left`` are pids that would not (in the kernel, for a driver, usually)."""

    owned: Owned
    left: tuple[int, ...]


def reap(*, grace_s: float = 10.0) -> tuple[Reaped, ...]:
    """End every leftover and return them; what is not provably ours is never touched."""
    ended = []
    for owned in leftovers():
        left = end_all(lambda owned=owned: processes_of(owned), grace_s=grace_s)
        if left:
            logger.warning("processes %s of a server started earlier would not end", left)
        else:
            forget(owned.marker)
        ended.append(Reaped(owned, tuple(left)))
    return tuple(ended)


def processes_of(owned: Owned) -> list[Process]:
    """Return the living processes of a recorded server: the recorded one, and all that carry its marker."""
    found = {p.pid: p for p in marked(owned.marker)}
    server = read_process(owned.pid)
    if server is not None and not server.zombie and server.start_time == owned.start_time:
        found[server.pid] = server
    return list(found.values())


def variables_of(owned: Owned) -> tuple[str, ...]:
    """Return the names of all variables that the living processes of a server were started with, sorted."""
    names: set[str] = set()
    for process in processes_of(owned):
        with contextlib.suppress(OSError):
            pairs = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            names |= {pair.partition(b"=")[0].decode(errors="replace") for pair in pairs if pair}
    return tuple(sorted(names))


def port_holders(port: int) -> tuple[Holder, ...]:
    """Return who listens on a local TCP port; the pid is None where this user may not see it."""
    try:
        listening = [c for c in psutil.net_connections(kind="tcp") if c.status == psutil.CONN_LISTEN]
    except (psutil.Error, OSError):
        return ()
    return tuple(_holder(c.pid, f"port {port}") for c in listening if tuple(c.laddr)[1:] == (port,))


def gpu_holders() -> tuple[Holder, ...]:
    """Return who holds GPU memory, by nvidia-smi; empty where there is none or it does not answer."""
    rows = _nvidia_smi("--query-compute-apps=pid,used_memory,gpu_uuid")
    apps = [row for row in rows if len(row) == 3 and row[0].isdigit()]
    return tuple(_holder(int(pid), f"{memory} MiB of {gpu}") for pid, memory, gpu in apps)


def gpu_memory_mib() -> dict[str, int]:
    """Return the memory in use per GPU (uuid -> MiB), by nvidia-smi; empty where there is none."""
    rows = _nvidia_smi("--query-gpu=uuid,memory.used")
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def gpu_indices() -> dict[int, str]:
    """Return the uuid of each GPU by the driver's index, by nvidia-smi; empty where there is none."""
    rows = _nvidia_smi("--query-gpu=index,uuid")
    return {int(row[0]): row[1] for row in rows if len(row) == 2 and row[0].isdigit()}


def _nvidia_smi(query: str) -> list[list[str]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]


def _holder(pid: int | None, what: str) -> Holder:
    command, user = "?", "?"
    if pid is not None:
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            user = process.username()
            command = " ".join(redact_command(process.cmdline()))[:200] or process.name()
    return Holder(pid=pid, command=command, user=user, what=what)


def _read(path: Path) -> Owned | None:
    try:
        found = read_json(path, _RECORD_BOUNDS)
        known = {field.name for field in fields(Owned)} & set(found)
        return Owned(**{name: _frozen(found[name]) for name in known})
    except (Unreadable, TypeError):
        return None


def _frozen(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is(pid: int, start_time: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.zombie and process.start_time == start_time


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
