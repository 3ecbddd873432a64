"""What the steps of a probe share: the session's resources, and one drafter's context, passed whole."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pytest_specprobe.probe.clock import TokenClock
from pytest_specprobe.probe.logs import RunLogs
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.profiles import Profile
from pytest_specprobe.report import folder
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.closing import close_all
from pytest_specprobe.server.gpu.hold import GpuHold
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.settings import Settings
from pytest_specprobe.staging.cache import staged_cache


@dataclass(slots=True)
class BaselinePool:
    """Baseline servers of a session: a baseline belongs to target and flags, so two drafters share one."""

    servers: dict[ServerSpec, Server] = field(default_factory=dict)

    def close(self) -> None:
        """Stop them all.

        :raises ServerError: if a process of one would not end; the others were stopped all the same.
        """
        close_all(self.servers.popitem()[1].close for _ in range(len(self.servers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """What the probes of one session have in common; to be closed.

    ``server_args`` gives the extra flags of a profile's servers. ``cache`` holds staged drafters, ``logs`` what the
    servers print, ``hold`` the GPUs that the session took for itself; ``api_key`` is what its servers insist on
    (None: each on a random one).
    """

    settings: Settings
    server_args: Callable[[Profile], tuple[str, ...]]
    logs: RunLogs
    cache: Path
    clock: TokenClock = field(default_factory=TokenClock)
    baselines: BaselinePool = field(default_factory=BaselinePool)
    hold: GpuHold = field(default_factory=GpuHold)
    api_key: Secret | None = None

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        server_args: Callable[[Profile], tuple[str, ...]] = lambda _: (),
        api_key: Secret | None = None,
    ) -> Self:
        """Return the resources of a new session; nothing is made on disk before it is needed.

        :raises ProfileError: if what is to be written in the report folder would go through a link.
        """
        folder.require_no_links(settings.report, roots=(settings.root, Path.cwd()))
        return cls(
            settings=settings,
            server_args=server_args,
            logs=RunLogs(settings.report / folder.LOGS),
            cache=staged_cache(),
            api_key=api_key,
        )

    def close(self, runs: Iterable[Callable[[], None]]) -> None:
        """Close the session's runs, then its shared servers, GPUs and logs; safe to call twice.

        :raises ServerError: if a process of a server would not end; the others were stopped all the same.
        """
        close_all((*runs, self.baselines.close, self.hold.release, self.logs.close))


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """One drafter's probe within a session: its profile, its phases, and what it shares."""

    profile: Profile
    phases: PhaseLog
    session: SessionContext

    @property
    def settings(self) -> Settings:
        """What the user asked for."""
        return self.session.settings
