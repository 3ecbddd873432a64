"""The server that runs is the one that was asked for, and it really speculates."""

from pytest_specprobe.findings import require
from pytest_specprobe.probe.run import ProbeRun
from pytest_specprobe.server.boot import Server


def test_boot(specprobe_run: ProbeRun, specprobe_server: Server) -> None:
    """The server is up, and ``/server_info``, its log and a canary request prove what it runs."""
    assert specprobe_server.alive(), specprobe_server.log_tail()
    require(specprobe_run.servers.proofs.all())
