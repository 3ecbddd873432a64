"""The pytest plugin: options, session fixtures, and the switch that turns the rest on.

Imported at every pytest start. Without a named drafter it registers options and fixtures and does nothing else,
so everything that costs time is imported inside the functions that need it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_specprobe import options

if TYPE_CHECKING:
    from pytest_specprobe.active import ActivePlugin
    from pytest_specprobe.measure.acceptance import Acceptance
    from pytest_specprobe.measure.throughput import Throughput
    from pytest_specprobe.probe.files import Checked
    from pytest_specprobe.probe.run import ProbeRun
    from pytest_specprobe.probe.servers.baselines import Baseline
    from pytest_specprobe.probe.session import ProbeSession
    from pytest_specprobe.profiles import Profile
    from pytest_specprobe.report.store.past import Past
    from pytest_specprobe.server.boot import Server
    from pytest_specprobe.server.http.client import Client
    from pytest_specprobe.staging import Staged

ACTIVE = "specprobe-active"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ``--specprobe-*`` options."""
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks that a user's conftest.py may implement."""
    from pytest_specprobe import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Answer ``--specprobe-plan`` without collecting or booting anything; keep a probe in one process."""
    if not options.wants_plan(config):
        if options.drafters(config) and options.attaches(config):
            options.leave_workers_out(config)
        return None
    from pytest_specprobe.active import print_plan

    return print_plan(config)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the active half when a drafter is named."""
    if not options.drafters(config):
        return
    from pytest_specprobe.active import ActivePlugin

    config.pluginmanager.register(ActivePlugin(config, options.read_settings(config)), ACTIVE)


@pytest.fixture(scope="session")
def specprobe_profile(request: pytest.FixtureRequest) -> "Profile":
    """Give the profile of the drafter being probed: source, target, speculation and gate."""
    return _session(request).profile(request.param)


@pytest.fixture(scope="session")
def specprobe_run(request: pytest.FixtureRequest, specprobe_profile: "Profile") -> "ProbeRun":
    """Give the probe itself; every phase runs when first asked for, once."""
    return _session(request).run(specprobe_profile.name)


@pytest.fixture(scope="session")
def specprobe_checkpoint(specprobe_run: "ProbeRun") -> "Checked":
    """Give the static checks of the drafter's files against its target: every finding, passing ones too."""
    return specprobe_run.files.checkpoint()


@pytest.fixture(scope="session")
def specprobe_staged(specprobe_run: "ProbeRun") -> "Staged":
    """Give the staged copy of the drafter: its own weights, edited config.json; the source is never written."""
    return specprobe_run.files.staged()


@pytest.fixture(scope="session")
def specprobe_server(request: pytest.FixtureRequest, specprobe_run: "ProbeRun") -> Iterator["Server"]:
    """Give a running SGLang EAGLE-3 server of the drafter, proved to speculate; booted once per session."""
    yield specprobe_run.servers.server()
    # In a shuffled session another drafter's test may come between two of this one's.
    if not _active(request).awaits(specprobe_run.profile.name):
        specprobe_run.close()


@pytest.fixture(scope="session")
def specprobe_baseline(specprobe_run: "ProbeRun") -> "Baseline":
    """Give the speed without speculation: a running server of the same target and flags, or a number."""
    return specprobe_run.servers.baseline()


@pytest.fixture(scope="session")
def specprobe_client(specprobe_server: "Server") -> "Client":
    """Give the HTTP client of the drafter's server: generate, flush, server_info, tokenize_chat."""
    return specprobe_server.client


@pytest.fixture(scope="session")
def specprobe_acceptance(specprobe_run: "ProbeRun", specprobe_server: "Server") -> "Acceptance":
    """Give the acceptance pass: strict accept length, acceptance by position, floor and blind control."""
    return specprobe_run.acceptance()


@pytest.fixture(scope="session")
def specprobe_throughput(specprobe_run: "ProbeRun", specprobe_acceptance: "Acceptance") -> "Throughput":
    """Give the throughput pass, interleaved with the baseline: tok/s, speedup and round time.

    Its lengths are those of the acceptance pass, without which nothing can be decided on a speed either.
    """
    return specprobe_run.throughput()


@pytest.fixture(scope="session")
def specprobe_history(
    request: pytest.FixtureRequest, specprobe_profile: "Profile", specprobe_throughput: "Throughput"
) -> "Past":
    """Give this run beside the earlier runs of the same key, and how it compares with their median."""
    return _session(request).past(specprobe_profile.name)


def _session(request: pytest.FixtureRequest) -> "ProbeSession":
    return _active(request).session


def _active(request: pytest.FixtureRequest) -> "ActivePlugin":
    active: ActivePlugin | None = request.config.pluginmanager.get_plugin(ACTIVE)
    if active is None:
        raise pytest.UsageError("this test needs a drafter: pytest --specprobe-drafter=NAME")
    return active
