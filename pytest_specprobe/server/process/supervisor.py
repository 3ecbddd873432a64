"""A process of its own between pytest and a server: when pytest is gone, for whatever reason, so is the server.

Run by path with nothing but the standard library. It reads one JSON line on stdin and then waits for the end of
that pipe, which the kernel closes however pytest dies; it writes JSON lines on stdout::

    in   {"argv": [...], "env": {...}, "log": "FILE", "marker": "RANDOM", "grace_s": 10,
          "scratch": ["DIR", "NAME", "text"]}
    out  {"event": "started", "pid": 1, "start_time": 123}      start_time: clock ticks after the machine's boot
    out  {"event": "failed", "error": "..."}                    the command could not be started
    out  {"event": "exited", "code": 1, "signal": null}         the server ended (by itself or by us)
    out  {"event": "gone", "left": []}                          every descendant is gone, or these pids would not go

DIR is for the server alone, with one file in it (an API key); the server runs there, and it goes with the server.
As a subreaper it inherits every orphan among its descendants, so a daemonised grandchild cannot leave the tree.
Processes are known by pid and start time and signalled through a pidfd, never by name.

If this process itself is killed, the kernel kills the server (``PR_SET_PDEATHSIG``), but not what the server has
started: SGLang's schedulers tie themselves to their parent only after importing for many seconds. So this process
has a keeper, a fork that does nothing but outlive it: it then ends whatever carries this boot's marker.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

MARKER_VARIABLE = "SPECPROBE_BOOT"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.1
_KILL_PATIENCE_S = 30.0
_KEEPER_QUIET_TICKS = 20
_LIBC = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """A process that cannot be mistaken for another: ``start_time`` in clock ticks after the machine's boot."""

    pid: int
    parent: int
    start_time: int
    zombie: bool


def read_process(pid: int) -> Process | None:
    """Return a process of this machine, or None if there is none of that pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name in parentheses may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return Process(pid, int(fields[1]), int(fields[19]), fields[0] in "ZX")


def descendants(root: int) -> list[Process]:
    """Return the living processes below ``root``, parents before children; zombies are not living."""
    processes = [p for p in map(read_process, _pids()) if p is not None]
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += (p for p in below if not p.zombie)
        waiting += (p.pid for p in below)
    return found


def marked(marker: str) -> list[Process]:
    """Return the living processes whose environment carries a boot's marker (those this user may look at)."""
    wanted = f"{MARKER_VARIABLE}={marker}".encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                process = read_process(pid)
                if process is not None and not process.zombie:
                    found.append(process)
    return found


def send(process: Process, number: int) -> bool:
    """Send a signal to exactly this process; return whether it was still there."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The pidfd is open, so the pid cannot be reused between this look and the signal.
        now = read_process(process.pid)
        if now is None or now.zombie or now.start_time != process.start_time:
            return False
        signal.pidfd_send_signal(descriptor, signal.Signals(number))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_all(find: Any, *, grace_s: float, tick: Any = lambda: None) -> list[int]:
    """End every process that ``find()`` returns, at first politely; return the pids that would not go.

    ``find`` is asked again and again, since a process may start others while it is being ended.
    """
    started = time.monotonic()
    asked: set[Process] = set()
    while alive := find():
        tick()
        waited = time.monotonic() - started
        if waited > grace_s + _KILL_PATIENCE_S:
            return [p.pid for p in alive]
        for process in alive:
            if waited >= grace_s:
                send(process, signal.SIGKILL)
            elif (identity := process._replace(parent=0)) not in asked:
                asked.add(identity)
                send(process, signal.SIGTERM)
                # A stopped process takes SIGTERM only once it goes on.
                send(process, signal.SIGCONT)
        time.sleep(_TICK_S / 2)
    return []


def main() -> int:
    """Serve one request; return 0 when nothing is left, 1 otherwise."""
    parent = os.getppid()
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    stop_reader = _catch_signals()
    request = json.loads(_read_line())
    try:
        with _scratch(request.get("scratch")), _keeper(request) as keeper:
            return _serve(request, parent, stop_reader, keeper)
    except OSError as error:
        _tell(event="failed", error=f"{error.strerror}: {error.filename or request['argv'][0]}")
        return 1


def _serve(request: dict[str, Any], parent: int, stop_reader: int, keeper: int) -> int:
    server = _start(request)
    process = read_process(server)
    _tell(event="started", pid=server, start_time=process.start_time if process else 0)
    reaped: dict[int, int] = {}
    while server not in reaped and os.getppid() == parent and not _told_to_stop(stop_reader):
        reaped |= _reap()
    grace_s = float(request.get("grace_s", 10))
    left = end_all(
        lambda: [p for p in descendants(os.getpid()) if p.pid != keeper],
        grace_s=grace_s,
        tick=lambda: reaped.update(_reap()),
    )
    reaped |= _reap()
    if server in reaped:
        status = reaped[server]
        by_signal = os.WIFSIGNALED(status)
        _tell(
            event="exited",
            code=None if by_signal else os.waitstatus_to_exitcode(status),
            signal=os.WTERMSIG(status) if by_signal else None,
        )
    _tell(event="gone", left=left)
    return 1 if left else 0


def _catch_signals() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def stop(_number: int, _frame: object) -> None:
        with contextlib.suppress(OSError):
            os.write(writer, b"x")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return reader


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            raise SystemExit(0)
        line += piece
    return line


@contextlib.contextmanager
def _keeper(request: dict[str, Any]) -> Iterator[int]:
    """Have a fork wait for this process's end; yield its pid. Leaving the block dismisses it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(writer)
            _keep(reader, request)
        finally:
            os._exit(0)
    os.close(reader)
    try:
        yield pid
    finally:
        with contextlib.suppress(OSError):
            os.write(writer, b"dismissed")
        os.close(writer)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _keep(reader: int, request: dict[str, Any]) -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The pipes to pytest are not held: their end is how pytest learns that its supervisor is gone.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    if os.read(reader, 16):
        return
    quiet = 0
    while quiet < _KEEPER_QUIET_TICKS:
        # One look may miss a process that is just being started, or that has no environment yet.
        quiet = 0 if marked(request["marker"]) else quiet + 1
        end_all(lambda: marked(request["marker"]), grace_s=0.5)
        time.sleep(_TICK_S)
    if request.get("scratch"):
        shutil.rmtree(request["scratch"][0], ignore_errors=True)


@contextlib.contextmanager
def _scratch(wanted: tuple[str, str, str] | None) -> Iterator[None]:
    if wanted is None:
        yield
        return
    folder, name, text = wanted
    # Fails on anything that is there already: nothing of another's is written through, or removed.
    Path(folder).mkdir(mode=0o700)
    try:
        descriptor = os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(request: dict[str, Any]) -> int:
    """Start the command in a process group and folder of its own, tied to this process's life; return its pid."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(request["log"], flags, 0o600)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    failed_reader, failed_writer = os.pipe()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != me:
                os._exit(127)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(null, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(request["scratch"][0] if request.get("scratch") else ".")
            os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - no shell is the point
        except BaseException as error:  # noqa: BLE001 - the forked child must never return into this program
            os.write(failed_writer, json.dumps(str(error)).encode())
        finally:
            os._exit(127)
    for descriptor in (log, null, failed_writer):
        os.close(descriptor)
    message = os.read(failed_reader, 65536)
    os.close(failed_reader)
    if message:
        os.waitpid(pid, 0)
        raise OSError(0, json.loads(message))
    return pid


def _told_to_stop(stop_reader: int) -> bool:
    # Nothing but the end of the pipe is expected on stdin; any word on it means stop as well.
    return bool(select.select([0, stop_reader], [], [], _TICK_S)[0])


def _reap() -> dict[int, int]:
    reaped = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            reaped[pid] = status
    return reaped


def _tell(**event: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names only, hundreds of them


if __name__ == "__main__":
    sys.exit(main())
