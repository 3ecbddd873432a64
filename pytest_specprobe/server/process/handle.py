"""The pytest side of the supervisor: start it, hear what it says, and have it end the server."""

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from pytest_specprobe.errors import BootError, ServerError
from pytest_specprobe.reading import Bounds, Unreadable, parse_json
from pytest_specprobe.secret import Secret, Variables
from pytest_specprobe.server.process import supervisor
from pytest_specprobe.server.process.supervisor import MARKER_VARIABLE, descendants, marked

logger = logging.getLogger(__name__)

GRACE_S = 10.0
_EVENT_BOUNDS = Bounds(size=1 << 20, depth=4)
_START_PATIENCE_S = 20.0
# The supervisor's own escalation (grace, then SIGKILL), and a little for a loaded machine.
_STOP_PATIENCE_S = GRACE_S + 40.0


class Supervised:
    """A server process behind its supervisor.

    ``marker`` is in the environment of every process of this server. ``exit_code`` and ``exit_signal`` are set once
    it has ended; both stay None if it ended unseen, because the supervisor itself was killed.
    """

    def __init__(self, process: subprocess.Popen[bytes], marker: str) -> None:
        self._process = process
        self._heard = b""
        self.marker = marker
        self.pid: int | None = None
        self.start_time = 0
        self.exit_code: int | None = None
        self.exit_signal: int | None = None
        self.ended = False
        self._failed: str | None = None
        self._left: list[int] = []

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log_path: Path,
        marker: str,
        scratch: tuple[Path, str, Secret] | None = None,
    ) -> Self:
        """Start a command behind a new supervisor, its output in a private log file.

        :param marker: random text that the environment of every process of this server will carry.
        :param scratch: a directory for this server alone, and the name and text of a file in it; removed with the
            server, whatever it left there.
        :raises BootError: if the command cannot be started.
        :raises ServerError: if the log file cannot be written.
        """
        # SPT_NOENV keeps setproctitle from overwriting the environment that carries the marker.
        child_env = Variables({**env, MARKER_VARIABLE: marker, "SPT_NOENV": "1"})
        file_text = f"the text of {marker}"
        request = {
            "marker": marker,
            "argv": list(argv),
            "env": child_env,
            "log": str(log_path.absolute()),
            "grace_s": GRACE_S,
            "scratch": [str(scratch[0]), scratch[1], file_text] if scratch else None,
        }
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ServerError(
                f"the server's log {log_path} cannot be written: {error.strerror}",
                culprit="machine",
                fix="make the report directory writable, or name another with --specprobe-report",
            ) from error
        try:
            os.fchmod(log, 0o600)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Out of the terminal's reach: Ctrl-C is pytest's, which then closes the pipe when it is done.
                start_new_session=True,
            )
        finally:
            os.close(log)
        self = cls(process, marker)
        try:
            assert process.stdin is not None  # noqa: S101 - asked for above
            # The text of the file, which holds a key, is in this expression alone.
            line = json.dumps(request)
            process.stdin.write(
                (line.replace(f'"{file_text}"', scratch[2].json()) if scratch else line).encode() + b"\n"
            )
            process.stdin.flush()
            self._await_start(argv[0])
        except BaseException:
            self.stop()
            raise
        return self

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Hear what the supervisor says, waiting up to ``timeout_s`` seconds; return whether the server runs."""
        stdout = self._process.stdout
        if self.ended or stdout is None or stdout.closed:
            return False
        deadline = time.monotonic() + timeout_s
        while not self.ended:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            piece = os.read(stdout.fileno(), 65536)
            if not piece:
                self.ended = True
            self._hear(piece)
        return not self.ended

    def tree(self) -> tuple[int, ...]:
        """Return the pids of the server's living processes: all that are below its supervisor."""
        return tuple(process.pid for process in descendants(self._process.pid))

    def stop(self) -> None:
        """End the server and wait until nothing of it is left; does nothing the second time.

        :raises ServerError: if a process would not go (in an uninterruptible wait, for instance).
        """
        process = self._process
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        deadline = time.monotonic() + _STOP_PATIENCE_S
        while self.poll(timeout_s=1.0) and time.monotonic() < deadline:
            pass
        if process.stdout is not None:
            process.stdout.close()
        self.ended = True
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # Empty unless the supervisor itself was killed.
        left = supervisor.end_all(lambda: marked(self.marker), grace_s=1.0)
        if left or self._left:
            raise ServerError(
                f"processes {sorted({*left, *self._left})} of the server would not end",
                culprit="machine",
                fix="they wait in the kernel, usually for a GPU driver: look at nvidia-smi and dmesg",
            )

    def _await_start(self, program: str) -> None:
        deadline = time.monotonic() + _START_PATIENCE_S
        while self.pid is None and self._failed is None:
            running = self.poll(timeout_s=0.2)
            if self.pid is None and (not running or time.monotonic() > deadline):
                self._failed = self._failed or "its supervisor did not start"
        if self._failed is not None:
            raise BootError(
                f"the server command could not be started: {self._failed}",
                culprit="machine",
                fix=f"check that {program} exists and runs, or name another interpreter with --specprobe-python",
            )

    def _hear(self, piece: bytes) -> None:
        self._heard += piece
        *lines, self._heard = self._heard.split(b"\n")
        self._heard = self._heard[-_EVENT_BOUNDS.size :]
        for line in lines:
            try:
                event = parse_json(line, _EVENT_BOUNDS)
            except Unreadable as error:
                logger.warning("a message of the server's supervisor %s", error)
                continue
            match event.pop("event"):
                case "started":
                    self.pid, self.start_time = event["pid"], event["start_time"]
                case "failed":
                    self._failed = event["error"]
                case "exited":
                    self.exit_code, self.exit_signal = event["code"], event["signal"]
                case "gone":
                    self._left = event["left"]
                    self.ended = True
