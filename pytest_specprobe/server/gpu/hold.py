"""Two runs on one machine: each takes its GPUs for itself, and the second waits for the first, saying for whom.

One file per GPU in the user's state directory, locked as long as its run lives; the kernel lets go however a run
ends. Only runs of the same user know of each other this way; anybody else's are named by what holds the memory.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from pytest_specprobe import private
from pytest_specprobe.errors import ServerError
from pytest_specprobe.reading import Bounds, parse_json
from pytest_specprobe.server.process.ownership import state_dir

_POLL_S = 0.5
_SAY_EVERY_S = 10.0
_BOUNDS = Bounds(size=65536, depth=4)


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Who holds a GPU: pid, since when (seconds since the epoch), and what it said it is."""

    pid: int
    since: float
    what: str

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since).astimezone().isoformat(sep=" ", timespec="seconds")
        return f"run PID {self.pid} ({self.what}), which holds it since {since}"


class GpuHold:
    """The GPUs that this run has taken for itself; ``release`` gives them back."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def held(self, gpus: Collection[str]) -> bool:
        """Tell whether all of these are taken already."""
        return set(gpus) <= set(self._files)

    def take(self, gpus: Collection[str], *, what: str, patience_s: float, say: Callable[[str], None]) -> None:
        """Take these GPUs (uuids), waiting for the runs that hold them; what is held already stays so.

        Taken in one order by everybody, so that two runs never wait for each other.

        :param what: what this run is, for those who wait for it.
        :param say: told every ten seconds for whom it waits.
        :raises ServerError: if another run still holds one after ``patience_s`` seconds; this run then holds no more
            than it did before.
        """
        wanted = sorted(set(gpus) - set(self._files))
        started_s, taken = time.monotonic(), list[str]()
        try:
            for gpu in wanted:
                self._files[gpu] = _lock(gpu, what=what, until_s=started_s + patience_s, say=say)
                taken.append(gpu)
        except BaseException:
            for gpu in taken:
                os.close(self._files.pop(gpu))
            raise

    def release(self) -> None:
        """Give all back; safe to call twice."""
        while self._files:
            _, descriptor = self._files.popitem()
            os.close(descriptor)


def _lock(gpu: str, *, what: str, until_s: float, say: Callable[[str], None]) -> int:
    path = state_dir() / "gpus" / re.sub(r"[^A-Za-z0-9-]", "_", gpu)
    descriptor = None
    try:
        private.folder(path.parent)
        descriptor = private.open_lock(path)
        _await(descriptor, gpu, until_s=until_s, say=say)
        note = json.dumps({"pid": os.getpid(), "since": time.time(), "what": what}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note, 0)
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        raise ServerError(
            f"GPU {gpu} cannot be taken through {path}: {error.filename or path} {error.strerror}",
            culprit="machine",
            fix="make the state directory writable for you alone, or name another with SPECPROBE_STATE_DIR",
        ) from error
    except BaseException:
        if descriptor is not None:
            os.close(descriptor)
        raise
    return descriptor


def _await(descriptor: int, gpu: str, *, until_s: float, say: Callable[[str], None]) -> None:
    said_s = -_SAY_EVERY_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now_s, holder = time.monotonic(), _holder(descriptor)
            if now_s > until_s:
                raise ServerError(
                    f"GPU {gpu} is still held by {holder}",
                    culprit="machine",
                    fix="end that run (specprobe servers shows its servers), leave it its GPUs with "
                    "CUDA_VISIBLE_DEVICES, or wait longer with --specprobe-boot-timeout",
                ) from None
            if now_s - said_s >= _SAY_EVERY_S:
                said_s = now_s
                say(f"waiting for GPU {gpu}: {holder}")
            time.sleep(_POLL_S)
        else:
            return


def _holder(descriptor: int) -> HeldBy:
    try:
        found = parse_json(os.pread(descriptor, _BOUNDS.size, 0), _BOUNDS)
        return HeldBy(int(found["pid"]), float(found["since"]), str(found["what"]))
    except (OSError, ValueError, KeyError, TypeError):
        # It has the lock and has not said who it is yet.
        return HeldBy(0, time.time(), "unknown")
