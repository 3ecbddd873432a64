"""What a probe needs before anything runs: files, a device, SGLang. All that is missing is said at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_specprobe.errors import ProbeImpossible
from pytest_specprobe.probe.plan.device import Engine, NoDevice, choose, engine
from pytest_specprobe.probe.plan.locate import Missing, locate
from pytest_specprobe.probe.plan.needs import Problem, boot_problems
from pytest_specprobe.profiles import Profile
from pytest_specprobe.server.gpu.nvidia_smi import Gpu, gpus
from pytest_specprobe.server.gpu.selection import ranks_here
from pytest_specprobe.settings import Settings

Owned = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an owned server of this probe runs."""

    device: Owned
    engine: Engine
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found for one profile. ``problems`` are complete sentences, each with what to type."""

    drafter: Path | None
    target: Path | None
    place: Place | None
    problems: tuple[Problem, ...]

    def require(self, name: str) -> None:
        """Raise one error with everything that is missing.

        :raises ProbeImpossible: if there is any problem.
        """
        if not self.problems:
            return
        listed = "; ".join(f"[{culprit}] {text}" for culprit, text in self.problems)
        raise ProbeImpossible(
            f"{name} cannot be probed here: {listed}",
            culprit=self.problems[0][0],
            fix=f"do the above, then run again; `pytest --specprobe-drafter={name} --specprobe-plan` shows the plan",
        )


def preflight(profile: Profile, settings: Settings, *, found_gpus: Sequence[Gpu] | None = None) -> Preflight:
    """Look for the files of a profile, and for a device and an SGLang to serve them, unless a server is attached."""
    drafter = locate(profile.drafter.source, role="drafter", root=settings.root)
    target = locate(profile.target.model, role="target", root=settings.root)
    missing = [place for place in (drafter, target) if isinstance(place, Missing)]
    problems: list[Problem] = [(place.culprit, f"{place}: {place.fix}") for place in missing]
    places = [None if isinstance(place, Missing) else place for place in (drafter, target)]
    owned = None
    if settings.server is None and not settings.static:
        problems += boot_problems(profile, drafter=places[0], target=places[1])
        owned = _place(profile, settings, tuple(gpus() if found_gpus is None else found_gpus), problems)
    return Preflight(
        drafter=places[0],
        target=places[1],
        place=owned,
        problems=tuple(problems),
    )


def _place(profile: Profile, settings: Settings, found: tuple[Gpu, ...], problems: list[Problem]) -> Place | None:
    target = profile.target
    needed = ranks_here(target.tp, target.server_args)
    device = choose(settings.device, allowed=target.devices, tp=needed, found=found)
    if isinstance(device, NoDevice):
        hint = "run where the GPUs are, or attach to a server there with --specprobe-server=URL"
        problems.append(("machine", f"no device for {profile.target_name}: {device.reason}; {hint}"))
    holder = engine(settings.python)
    complaint = holder.problem(target.devices[0] if isinstance(device, NoDevice) else device)
    if complaint:
        problems.append(("machine", complaint))
    return None if isinstance(device, NoDevice) or complaint else Place(device, holder, found)
