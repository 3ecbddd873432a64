"""What this tool started: a record per server in the user's state directory, so that leftovers can be ended later.

A process is ours only if this user owns it and its environment carries the random marker of a recorded boot; the
recorded one must have its pid *and* start time *and* marker. A name or a port never makes it ours.

A record counts only if no other user can have written it, and if it is of the form that this tool gives it: whoever
may write records says which processes are ended and which folder is removed.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_state_path
from pydantic import TypeAdapter

from pytest_specprobe import private
from pytest_specprobe.reading import Bounds, parse_json
from pytest_specprobe.server.process.supervisor import Process, end_all, marked, read_process

logger = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RECORD_BOUNDS = Bounds(size=4 << 20, depth=8)
_SCRATCH = "specprobe-"
_TMP = Path("/tmp")  # noqa: S108 - names in it are random, and mkdir is exclusive
_MARKER = re.compile(r"[0-9a-f]{32}")
_LATEST = 1e11  # seconds after the epoch
_EXITING = 0x4  # the kernel's PF_EXITING
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


_RECORD = TypeAdapter(Owned)


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
    parent = usual if len(str(usual)) <= _DEEPEST else _TMP
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
        private.folder(path.parent)
        private.write(path, json.dumps(asdict(owned)).encode())
    except OSError as error:
        # Only a convenience for after a crash: the supervisor ends the server with or without it.
        logger.warning("could not record the server in %s: %s", path, error)
        return None
    return path


def forget(marker: str) -> None:
    """Remove the record of a server that is gone, and its temporary directory should that be left."""
    path = records_dir() / f"{marker}.json"
    owned = _read(path)
    if owned is None:
        return
    _remove_scratch(Path(owned.scratch))
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
    """Return the living processes of a recorded server: those of this user that carry its marker.

    The recorded one counts without, once it is exiting: its environment went with its memory, and no signal harms it.
    """
    found = {p.pid: p for p in marked(owned.marker)}
    server = read_process(owned.pid)
    if server is not None and not server.zombie and server.start_time == owned.start_time and _exiting(owned.pid):
        found[server.pid] = server
    return [process for process in found.values() if _of_this_user(process.pid)]


def variables_of(owned: Owned) -> tuple[str, ...]:
    """Return the names of all variables that the living processes of a server were started with, sorted."""
    names: set[str] = set()
    for process in processes_of(owned):
        with contextlib.suppress(OSError):
            pairs = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            names |= {pair.partition(b"=")[0].decode(errors="replace") for pair in pairs if pair}
    return tuple(sorted(names))


def _read(path: Path) -> Owned | None:
    """Return what a record says; None unless it counts."""
    try:
        private.require_folder(path.parent)
        data = private.read(path, limit=_RECORD_BOUNDS.size)
        parse_json(data, _RECORD_BOUNDS)
        owned = _RECORD.validate_json(data, strict=True)
    except (OSError, ValueError):
        return None
    scratch = Path(owned.scratch)
    of_its_marker = (
        scratch.name == scratch_dir(owned.marker).name and scratch.is_absolute() and ".." not in scratch.parts
    )
    known = _MARKER.fullmatch(owned.marker) and owned.marker == path.stem and 0 <= owned.created < _LATEST
    return owned if known and of_its_marker else None


def _remove_scratch(path: Path) -> None:
    """Remove a boot's temporary directory, if it is where this tool makes them and as it makes them."""
    if path.parent not in {Path(tempfile.gettempdir()), _TMP}:
        return
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o777 == 0o700:
            shutil.rmtree(path, ignore_errors=True)


def _exiting(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return bool(int(fields[6]) & _EXITING)


def _of_this_user(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return False


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
