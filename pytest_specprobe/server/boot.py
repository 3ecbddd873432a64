"""Boot a server that we own, watch it come up, and make sure that nothing of it is left if it does not."""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pytest_specprobe.engines import cpu
from pytest_specprobe.errors import PortTaken
from pytest_specprobe.secret import Secret, Variables
from pytest_specprobe.server import boot_times
from pytest_specprobe.server.absolute_paths import absolute_variables, absolute_words
from pytest_specprobe.server.boot_watch import STALL_PATIENCE_S, BootProgress, BootWatch, PortLost
from pytest_specprobe.server.child_environment import environment
from pytest_specprobe.server.code_cache import require_own
from pytest_specprobe.server.gpu.memory import GpuMemory
from pytest_specprobe.server.gpu.selection import gpus_of
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.pinned_steps import write_candidates
from pytest_specprobe.server.port import LOOPBACK, HeldPort, OwnPort
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.process.handle import Supervised
from pytest_specprobe.server.process.listeners import Listener
from pytest_specprobe.server.redaction import redact_command
from pytest_specprobe.server.spec import ServerSpec, command
from pytest_specprobe.server.variables import speed_variables

_CONFIG = "server.yaml"  # SGLang reads settings from files with a YAML suffix only
_PORT_ATTEMPTS = 3


class Server(Protocol):
    """A server that can be probed: owned (booted here) or attached (someone else's).

    ``vouched`` tells whether its command, environment and log are known: it was booted here, or by ``specprobe
    serve`` on this machine. ``device`` is "" where it is not, ``environment`` (the variables that change its speed)
    None where it is not known.
    """

    client: Client
    url: str
    owned: bool
    vouched: bool
    device: str
    pid: int | None
    command: tuple[str, ...] | None
    scrubbed: tuple[str, ...]
    environment: Mapping[str, str] | None
    boot_s: float | None
    log_path: Path | None

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of variables seen in the environment of a server that was not booted here, but is vouched for."""

    def alive(self) -> bool:
        """Tell whether the process runs (owned) or answers (attached)."""

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log, redacted; empty for a server that is not vouched for."""

    def log_text(self) -> str:
        """Return the whole log, redacted; empty for a server that is not vouched for."""

    def own_log_text(self) -> str:
        """Return the part of the log since this run has the server, redacted."""

    def sockets(self) -> tuple[Listener, ...] | None:
        """Return every TCP socket that its processes listen on; None for a server that is not vouched for."""

    def close(self) -> None:
        """Stop an owned server and wait until nothing of it is left; only disconnect from an attached one."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def boot(
    spec: ServerSpec,
    *,
    log_path: Path,
    timeout_s: float,
    progress: Callable[[BootProgress], None] = lambda _: None,
    label: str = "",
    api_key: Secret | None = None,
    stall_patience_s: float = STALL_PATIENCE_S,
    again: OwnedServer | None = None,
) -> OwnedServer:
    """Start a server and return when it is ready to serve.

    :param log_path: file for the server's stdout and stderr; made private (mode 0600).
    :param timeout_s: patience in seconds for the whole boot.
    :param progress: called about once a second, and at each change of phase.
    :param label: profile name for the ownership record.
    :param api_key: the key that the server insists on; None makes a random one.
    :param stall_patience_s: how long the server may show no sign of life at all (log, CPU, I/O).
    :param again: a suspended server, which comes back at its old address and is returned; None: a new one.
    :raises BootError: if the server exits, is stuck, or is not ready in time; nothing of it is left running.
    :raises PortTaken: if other processes took the port again and again.
    """
    started_s = time.monotonic()
    for _ in range(_PORT_ATTEMPTS):
        key = api_key or Secret.random()
        server = _launch(spec, log_path=log_path, label=label, key=key, again=again)
        try:
            watch = BootWatch(
                server, spec, started_s=started_s, timeout_s=timeout_s, stall_patience_s=stall_patience_s
            )
            watch.until_ready(progress)
        except PortLost as lost:
            server.close()
            failure = lost
            continue
        except BaseException:
            server.close()
            raise
        boot_s = time.monotonic() - started_s
        server.came_up(boot_s=boot_s)
        boot_times.remember(spec, boot_s)
        return server
    raise PortTaken(failure.what, culprit=failure.culprit, fix=failure.fix, detail=failure.detail)


def _launch(spec: ServerSpec, *, log_path: Path, label: str, key: Secret, again: OwnedServer | None) -> OwnedServer:
    if again is not None:
        supervised, about = _start(spec, again.port.number, log_path=log_path, label=label, key=again.api_key)
        again.resume(supervised, log_path=log_path, scratch=about.scratch, gpu_memory=about.gpu_memory)
        return again
    held = HeldPort.take()
    try:
        supervised, about = _start(spec, held.number, log_path=log_path, label=label, key=key)
    except BaseException:
        held.close()
        raise
    port = OwnPort(held.number, tree=supervised.tree)
    return OwnedServer(
        supervised,
        Client(f"http://{LOOPBACK}:{held.number}", api_key=key, connected=port.require),
        command=about.command,
        scrubbed=about.scrubbed,
        environment=about.environment,
        log_path=log_path,
        scratch=about.scratch,
        device=spec.device,
        api_key=key,
        gpu_memory=about.gpu_memory,
        held=held,
        port=port,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launched:
    """What a launch made of a spec: the command without its secrets, and what goes with the process."""

    command: tuple[str, ...]
    scrubbed: tuple[str, ...]
    environment: Mapping[str, str]
    scratch: Path
    gpu_memory: GpuMemory | None


def _start(spec: ServerSpec, port: int, *, log_path: Path, label: str, key: Secret) -> tuple[Supervised, _Launched]:
    """Start the command on this port and write down that it is ours."""
    env, scrubbed = environment(spec, Variables(os.environ))
    speed = speed_variables(env)
    env = absolute_variables(env, here=Path.cwd())
    require_own(env)
    words = absolute_words(command(spec, host=LOOPBACK, port=port), here=Path.cwd())
    if spec.candidates:
        words += ("--speculative-adaptive-config", str(write_candidates(spec, log_path)))
    marker = secrets.token_hex(16)
    scratch = ownership.scratch_dir(marker)
    launched = _Launched(
        command=redact_command(words),
        scrubbed=scrubbed,
        environment=speed,
        scratch=scratch,
        gpu_memory=GpuMemory() if spec.device == "cuda" else None,
    )
    if spec.device == "cpu":
        env |= cpu.private(scratch)
    supervised = Supervised.start(
        (*words, "--config", str(scratch / _CONFIG)),
        # SGLang leaves its sockets behind wherever temporary files go.
        env=env | {"TMPDIR": str(scratch)},
        log_path=log_path,
        marker=marker,
        scratch=(scratch, _CONFIG, Secret(f'api-key: "{key.reveal()}"\n')),
    )
    try:
        ownership.record(
            marker=marker,
            pid=supervised.pid or 0,
            start_time=supervised.start_time,
            port=port,
            label=label,
            log_path=log_path.absolute(),
            scratch=scratch,
            device=spec.device,
            gpus=gpus_of(spec, env),
            drafter=spec.drafter,
            command=launched.command,
            scrubbed=scrubbed,
            environment=launched.environment,
        )
    except BaseException:
        supervised.stop()
        ownership.forget(marker)
        raise
    return supervised, launched
