"""A target named on the command line: where its files are."""

from pathlib import Path

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.probe.plan.locate import Missing, locate
from pytest_specprobe.profiles import load_profiles


def target_path(name: str) -> Path:
    """Return the directory of a profile's target.

    :raises ProfileError: if no profile has such a target, or its files are not here.
    """
    root = Path.cwd()
    known = load_profiles(root).targets
    if name not in known:
        raise ProfileError(
            (f"{name!r} is neither a path nor a target of a profile",),
            fix=f"give a directory, a config.json, or one of: {', '.join(sorted(known))}",
        )
    found = locate(known[name].model, role="target", root=root)
    if isinstance(found, Missing):
        raise ProfileError((f"the files of target {name!r} are not here: {found}",), fix=found.fix)
    return found
