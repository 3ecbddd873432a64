"""Boots the servers of one probe, and tells the person who waits how far each is."""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.errors import ProbeImpossible
from pytest_specprobe.probe.context import ProbeContext
from pytest_specprobe.probe.plan.boots import fits
from pytest_specprobe.probe.plan.preflight import Place
from pytest_specprobe.profiles import Profile, Speculation
from pytest_specprobe.secret import Variables
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.boot_watch import BootProgress
from pytest_specprobe.server.gpu import share as memory
from pytest_specprobe.server.gpu.selection import gpus_of
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec

_SAY_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Booter:
    """What all servers of one probe have in common.

    ``target`` is the directory, ``mla`` its kind of attention; ``extra_args`` are the flags that the project adds.
    """

    context: ProbeContext
    target: Path
    place: Place
    mla: bool
    extra_args: tuple[str, ...]

    @property
    def timeout_s(self) -> float:
        """How long a boot, or a wait for GPUs, may take."""
        return self.context.settings.boot_timeout_s or self.context.profile.target.boot_timeout_s

    def spec(
        self, drafter: Path | None, *, setting: Speculation | None = None, candidates: tuple[int, ...] = ()
    ) -> ServerSpec:
        """Return the server that speculates with ``drafter``; without one, the baseline: same target, same flags.

        :param setting: how to speculate; None: as the profile says.
        :param candidates: step counts that it can be pinned to while it runs.
        """
        return server_spec(
            self.context.profile,
            target=str(self.target),
            drafter=drafter,
            setting=setting,
            place=self.place,
            mla=self.mla,
            extra_args=self.extra_args,
            candidates=candidates,
        )

    def boot(
        self,
        drafter: Path | None,
        *,
        what: str,
        setting: Speculation | None = None,
        candidates: tuple[int, ...] = (),
        again: OwnedServer | None = None,
    ) -> OwnedServer:
        """Boot one server as one phase, with a live line at each change and every ten seconds between.

        :param again: a suspended server that comes back; None: a new one.

        :raises BootError: if it does not become ready; nothing of it is left running.
        :raises ServerError: if another run of this user keeps a GPU that it needs.
        """
        spec = self.spec(drafter, setting=setting, candidates=candidates)
        self._take_gpus(spec)
        context, name = self.context, self.context.profile.name
        with context.phases.phase("boot", what) as say:
            return boot(
                spec,
                log_path=context.session.logs.file(f"{name}-{re.sub('[^a-z0-9]+', '-', what)}"),
                timeout_s=self.timeout_s,
                progress=narrator(what, say),
                label=name,
                api_key=context.session.api_key,
                again=again,
            )

    def _take_gpus(self, spec: ServerSpec) -> None:
        gpus = gpus_of(spec, Variables(os.environ) | dict(spec.env))
        hold = self.context.session.hold
        if not hold.held(gpus):
            with self.context.phases.phase("free", f"take {len(gpus)} GPU(s) for this run") as say:
                hold.take(gpus, what=self.context.profile.name, patience_s=self.timeout_s, say=say)

    def require_memory(self, *, servers: int) -> None:
        """Refuse resident servers that cannot fit: the last boot would die minutes later, out of memory.

        :raises ProbeImpossible: if the target's ``--mem-fraction-static`` leaves no room for so many.
        """
        spec = self.spec(None)
        if not fits(spec, servers=servers):
            share, most = memory.memory_share(spec.server_args), math.floor(100 * memory.MOST / servers) / 100
            raise ProbeImpossible(
                f"{servers} servers are to be up together, and each would take {share:.0%} of the GPU memory",
                culprit="launch-flags",
                fix=f"set {memory.FLAG} to {most:.2f} or less in the profile",
            )


def server_spec(
    profile: Profile,
    *,
    target: str,
    drafter: Path | None,
    place: Place,
    mla: bool,
    extra_args: tuple[str, ...],
    setting: Speculation | None = None,
    candidates: tuple[int, ...] = (),
) -> ServerSpec:
    """Return the server of a profile: what a boot starts, and what a plan prints.

    :param drafter: the staged drafter; None is the baseline, the same target with the same flags.
    :param setting: how to speculate; None: as the profile says.
    :param candidates: step counts that it can be pinned to while it runs.
    """
    return ServerSpec(
        model=target,
        drafter=drafter,
        speculation=(setting or profile.drafter.speculation) if drafter else None,
        device=place.device,
        tp=profile.target.tp,
        mla=mla,
        trust_remote_code=profile.target.trust_remote_code,
        server_args=(*profile.target.server_args, *extra_args),
        env_pass=profile.target.env_pass,
        python=str(place.engine.python),
        candidates=candidates,
    )


def narrator(what: str, say: Callable[[str], None]) -> Callable[[BootProgress], None]:
    """Return a progress callback for a boot: a line at each phase, at the first word of a wait, every ten seconds."""
    last: tuple[str, float] = ("", 0.0)
    told: set[str] = set()

    def narrate(progress: BootProgress) -> None:
        nonlocal last
        first = progress.waits not in told
        if progress.phase == last[0] and not first and progress.elapsed_s - last[1] < _SAY_EVERY_S:
            return
        last = (progress.phase, progress.elapsed_s)
        told.add(progress.waits)
        usual = f", last time {progress.usual_s:.0f} s" if progress.usual_s else ""
        waits = f", {progress.waits}" if progress.waits else ""
        quiet = f", log quiet for {progress.quiet_s:.0f} s" if progress.quiet_s >= _SAY_EVERY_S else ""
        say(f"{what}: {progress.phase}{waits}{usual}{quiet}")

    return narrate
