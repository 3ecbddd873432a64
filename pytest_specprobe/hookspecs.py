"""Hooks that a project's conftest.py may implement."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_specprobe.profiles import Profile


@pytest.hookspec
def pytest_specprobe_server_args(profile: "Profile") -> list[str] | None:
    """Return extra SGLang flags for the servers of this profile, drafter and baseline alike.

    Called once per drafter, before the first boot; the flags come after the profile's own ``server_args``::

        def pytest_specprobe_server_args(profile):
            return ["--kv-cache-dtype", "fp8_e4m3"] if profile.target_name == "kimi_k25" else None
    """


@pytest.hookspec
def pytest_specprobe_decided(profile: "Profile", entry: dict[str, Any]) -> None:
    """See a drafter's entry of report.json once it is final; for uploads and notifications.

    ::

        def pytest_specprobe_decided(profile, entry):
            print(profile.name, entry["verdict"], entry["gate"])
    """
