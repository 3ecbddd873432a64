"""The profiles of the named drafters, and everything about them that would only show after a boot."""

from pathlib import Path

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.profiles import Profile, Profiles
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.settings import Settings


def named_profiles(profiles: Profiles, settings: Settings) -> dict[str, Profile]:
    """Return the profiles of the drafters that the settings name, in that order.

    :raises ProfileError: with every problem at once: a name that no profile has, ``server_args`` or ``env_pass``
        that may not be given, a workload that cannot be read (files alone are checked without one).
    """
    found: dict[str, Profile] = {}
    errors: list[ProfileError] = []
    for name in settings.drafters:
        try:
            found[name] = profiles.get(name)
        except ProfileError as error:
            errors.append(error)
    for target in {profile.target_name: profile.target for profile in found.values()}.values():
        try:
            ServerSpec(model=target.model, server_args=target.server_args, trust_remote_code=target.trust_remote_code)
        except ProfileError as error:
            errors.append(error)
    workloads = [] if settings.static else [settings.workload or profile.workload for profile in found.values()]
    for workload in dict.fromkeys(workloads):
        errors.extend(_unusable(workload, root=settings.root))
    if errors:
        fixes = dict.fromkeys(error.fix for error in errors)
        raise ProfileError(tuple(problem for error in errors for problem in error.problems), fix="; ".join(fixes))
    return found


def _unusable(workload: str, *, root: Path) -> tuple[ProfileError, ...]:
    try:
        load_workload(workload, root=root)
    except ProfileError as error:
        return (error,)
    return ()
