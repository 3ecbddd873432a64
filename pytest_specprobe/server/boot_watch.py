"""One boot being watched until it is ready, or until it has died, is stuck or is out of time."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from pytest_specprobe.errors import BootError, Culprit, PortTaken
from pytest_specprobe.server import boot_times
from pytest_specprobe.server.gpu.selection import ranks_here
from pytest_specprobe.server.log.boot_log import Phase, advance, tail
from pytest_specprobe.server.log.diagnosis import diagnose, says_port_taken
from pytest_specprobe.server.log.growing import GrowingLog
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.process.quiet import Compilation, Wait, compilation, wait_of
from pytest_specprobe.server.process.stall import StallWatch
from pytest_specprobe.server.spec import ServerSpec

STALL_PATIENCE_S = 300.0
_TICK_S = 0.25
_HEALTH_EVERY_S = 1.0
_TREE_EVERY_S = 2.0
_STALL_EVERY_S = 5.0
_DETAIL_LINES = 15
_RECENT_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BootProgress:
    """One look at a booting server: its phase, seconds since the launch, and what the log last said.

    ``quiet_s`` is how long the log has not grown; ``usual_s`` how long the last boot of the same model took on
    this machine, if one is known. ``waits`` is what it waits for, "" where nothing tells.
    """

    phase: Phase
    elapsed_s: float
    quiet_s: float
    line: str
    usual_s: float | None = None
    waits: str = ""


class PortLost(BootError):
    """Another process took the port between our choosing it and the server's listening on it."""


class BootWatch:
    """One boot being watched: exit code, log growth, health, signs of life, what its processes do.

    Time in which kernels are compiled does not count as stuck, and counts against ``timeout_s`` only once it is as
    long again: a boot that is given up there would begin anew with the same kernels.
    """

    def __init__(
        self, server: OwnedServer, spec: ServerSpec, *, started_s: float, timeout_s: float, stall_patience_s: float
    ) -> None:
        self._server = server
        self._started_s = started_s
        self._timeout_s = timeout_s
        self._usual_s = boot_times.usual_s(spec)
        self._server_args = spec.server_args
        self._gpus = ranks_here(spec.tp, spec.server_args) if spec.device == "cuda" else 0
        self._compiles = Compilation()
        self._compiled_s = 0.0
        self._compilers_seen_s = started_s
        self._recent: deque[str] = deque(maxlen=_RECENT_LINES)
        self._log = GrowingLog(server.log_path, secrets=(server.api_key,))
        self._stall = StallWatch(server.pid or 0, patience_s=stall_patience_s)
        self._phase: Phase = "launch"
        self._told_s = self._next_tree_s = self._next_stall_s = 0.0

    def until_ready(self, progress: Callable[[BootProgress], None]) -> None:
        """Return when the server is ready; ``progress`` is called about once a second, and at each change of phase.

        :raises BootError: if it exits, is stuck or is not ready in time.
        :raises PortLost: if another process listens on its port.
        """
        next_health_s = 0.0
        while True:
            running = self._server.wait(_TICK_S)
            now_s = time.monotonic()
            before = self._phase
            lines = self._log.new_lines(now_s)
            self._recent += lines
            for line in lines:
                self._phase = advance(self._phase, line)
            if not running or any(map(says_port_taken, lines)):
                raise self._died()
            if now_s >= self._next_tree_s:
                self._see_compilers()
            if self._phase != before or now_s - self._told_s >= 1.0:
                progress(self._look(now_s))
                self._told_s = now_s
            if now_s >= next_health_s:
                if self._answered() and self._server.client.healthy():
                    self._require_key()
                    self._phase = "ready"
                    progress(self._look(time.monotonic()))
                    return
                next_health_s = time.monotonic() + _HEALTH_EVERY_S
            self._require_life(now_s)

    def _require_life(self, now_s: float) -> None:
        beside_s = min(self._compiled_s, self._timeout_s)
        if now_s - self._started_s > self._timeout_s + beside_s:
            self._see_compilers()
            beside = f" beside {beside_s:.0f} s of compiling kernels" if beside_s else ""
            raise self._late(f"was not ready after {self._timeout_s:.0f} s{beside}", culprit="machine")
        if now_s >= self._next_stall_s:
            quiet_s = self._log.quiet_s(now_s)
            if self._stall.stalled(now_s=now_s, quiet_s=quiet_s, compiling=self._compiles.running):
                raise self._late("is stuck: no log line, no CPU time and no I/O", culprit="engine")
            self._next_stall_s = now_s + _STALL_EVERY_S

    def _see_compilers(self) -> None:
        """Look at the process tree, and count the time since the last look if something compiled then."""
        now_s = time.monotonic()
        if self._compiles.running:
            self._compiled_s += now_s - self._compilers_seen_s
        self._compiles, self._compilers_seen_s = compilation(self._server.tree()), now_s
        self._next_tree_s = now_s + _TREE_EVERY_S

    def _wait(self, quiet_s: float) -> Wait | None:
        return wait_of(
            self._compiles, lines=self._recent, gpus=self._gpus, quiet_s=quiet_s, server_args=self._server_args
        )

    def _look(self, now_s: float) -> BootProgress:
        wait = self._wait(self._log.quiet_s(now_s))
        return BootProgress(
            phase=self._phase,
            elapsed_s=now_s - self._started_s,
            quiet_s=self._log.quiet_s(now_s),
            line=self._log.last_line,
            usual_s=self._usual_s,
            waits=wait.said if wait else "",
        )

    def _died(self) -> BootError:
        text = self._server.log_ends()
        code, number = self._server.exit
        found = diagnose(text, phase=self._phase, exit_code=code, exit_signal=number)
        kind = PortLost if found.port_taken else BootError
        elapsed_s = time.monotonic() - self._started_s
        return kind(
            f"the server died in phase {self._phase} after {elapsed_s:.0f} s: {found.what}",
            culprit=found.culprit,
            fix=found.fix,
            detail=self._detail(text),
        )

    def _late(self, what: str, *, culprit: Culprit) -> BootError:
        text = self._server.log_ends()
        quiet_s = self._log.quiet_s(time.monotonic())
        usual = f"; last time it took {self._usual_s:.0f} s" if self._usual_s else ""
        running = f", still compiling kernels: {', '.join(self._compiles.programs)}" if self._compiles.running else ""
        wait = self._wait(quiet_s)
        return BootError(
            f"the server {what}, in phase {self._phase}, its log quiet for {quiet_s:.0f} s{running}{usual}",
            culprit="machine" if wait else culprit,
            fix=wait.fix
            if wait
            else "raise --specprobe-boot-timeout if it is only slow; else the log says what it waits for",
            detail=self._detail(text),
        )

    def _detail(self, text: str) -> str:
        return f"last lines of {self._server.log_path}:\n{tail(text, _DETAIL_LINES)}"

    def _answered(self) -> bool:
        """Tell whether the server listens; nothing is sent before it does, and nothing to another process."""
        try:
            return self._server.port.answered()
        except PortTaken as taken:
            detail = self._detail(self._server.log_ends())
            raise PortLost(taken.what, culprit=taken.culprit, fix=taken.fix, detail=detail) from taken

    def _require_key(self) -> None:
        """Make sure that the server takes our key and insists on it: anyone on this machine could use it else."""
        self._server.client.server_info()
        try:
            status = httpx.get(f"{self._server.url}/server_info", timeout=30, trust_env=False).status_code
        except httpx.HTTPError:
            status = None
        if status == 200:
            raise BootError(
                f"the server answers on {self._server.url} without its key",
                culprit="engine",
                fix="use an SGLang version that reads api-key from its --config file",
                detail=self._detail(self._server.log_ends()),
            )
