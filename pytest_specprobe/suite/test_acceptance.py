"""Does the target accept what the drafter proposes, and does the drafter read the target at all?"""

from pytest_specprobe.findings import require
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.probe.run import ProbeRun
from pytest_specprobe.suite.checks import require_gate


def test_acceptance(specprobe_run: ProbeRun, specprobe_acceptance: Acceptance) -> None:
    """The measurement is sound, and the strict accept length's lower bound is above the gate's minimum."""
    specprobe_run.sampled()
    require(specprobe_run.validity())
    for name in ("min_accept_length", "min_accept_length_by_workload"):
        require_gate(specprobe_run.decision(), name)


def test_reads_target(specprobe_run: ProbeRun, specprobe_acceptance: Acceptance) -> None:
    """First-position acceptance beats what a drafter reaches without seeing the target: blind control and floor."""
    require_gate(specprobe_run.decision(), "p1_margin")
