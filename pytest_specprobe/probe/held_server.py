"""A proved drafter server, and if asked the same target's plain one, held so that many probes share the boots."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_specprobe.probe.context import ProbeContext, SessionContext
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.run import ProbeRun
from pytest_specprobe.profiles import Profile
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.attach import API_KEY_VARIABLE
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is held: the drafter's server, proved, and the plain server of its target or None.

    ``key_file`` holds the key of both, readable by this user only; None where the caller's environment already
    has it in ``SPECPROBE_API_KEY``. Nothing that is printed holds the key.
    """

    profile: Profile
    profiles: Path | None
    drafter: Server
    baseline: Server | None
    key_file: Path | None

    @property
    def command(self) -> str:
        """The line that probes this server from any shell of this user on this machine."""
        words = ["pytest", f"--specprobe-drafter={self.profile.name}"]
        # A value in a word of its own would be taken for a test path where pytest looks for its rootdir.
        words += [f"--specprobe-profiles={self.profiles}"] if self.profiles else []
        words += [f"--specprobe-server={self.drafter.url}"]
        words += [f"--specprobe-baseline={self.baseline.url}"] if self.baseline else []
        # The shell of the probe reads the key; it is in no command line, no log and no history.
        key = "" if self.key_file is None else f'{API_KEY_VARIABLE}="$(cat {shlex.quote(str(self.key_file))})" '
        return key + shlex.join(words)

    @property
    def dead(self) -> Server | None:
        """A server that has ended by itself; None while all run."""
        return next((s for s in (self.drafter, self.baseline) if s is not None and not s.alive()), None)

    def to_json(self) -> dict[str, Any]:
        """Return what a script needs to probe it."""
        return {
            "schema": 1,
            "profile": self.profile.name,
            "target": self.profile.target_name,
            "drafter": _server(self.drafter),
            "baseline": None if self.baseline is None else _server(self.baseline),
            "key_variable": API_KEY_VARIABLE,
            "key_file": None if self.key_file is None else str(self.key_file),
            "command": self.command,
        }


@contextmanager
def serving(
    profile: Profile, *, settings: Settings, baseline: bool, api_key: Secret | None, say: Callable[[str], None]
) -> Iterator[Serving]:
    """Stage, patch, boot and prove; leaving the block ends the servers, however it is left.

    :param settings: where to look and to boot; logs go below ``settings.report``.
    :param baseline: boot the target's plain server too.
    :param api_key: the key of the servers; None makes a random one and a file that holds it.
    :raises SpecprobeError: as a probe would, up to the proof.
    """
    session = SessionContext.open(settings, api_key=api_key or Secret.random())
    run = ProbeRun(ProbeContext(profile, PhaseLog(profile.name, say=say), session))
    try:
        if baseline:
            # Before the first boot, not after minutes of it.
            run.servers.booter().require_memory(servers=2)
        drafter = run.servers.server()
        plain = run.servers.baseline().server if baseline else None
        if not isinstance(drafter, OwnedServer):
            raise AssertionError("without a URL in the settings a server is booted")
        key_file = None if api_key else drafter.key_file()
        yield Serving(profile=profile, profiles=settings.profiles, drafter=drafter, baseline=plain, key_file=key_file)
    finally:
        session.close([run.close])


def _server(server: Server) -> dict[str, Any]:
    return {"url": server.url, "pid": server.pid, "boot_s": server.boot_s, "log": str(server.log_path)}
