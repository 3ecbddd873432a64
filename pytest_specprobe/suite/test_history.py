"""Is it slower, or accepted less, than before? Only where the gate asks: ``max_regression``."""

import pytest

from pytest_specprobe.findings import require
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.probe.run import ProbeRun
from pytest_specprobe.profiles import Profile
from pytest_specprobe.report.store.past import Past
from pytest_specprobe.suite.checks import require_past


def test_history(
    specprobe_run: ProbeRun, specprobe_profile: Profile, specprobe_acceptance: Acceptance, specprobe_history: Past
) -> None:
    """Accept length and tok/s are not below the earlier runs of the same key by more than the gate allows."""
    limit = specprobe_profile.drafter.gate.max_regression
    if not limit:
        pytest.skip("the gate sets no max_regression")
    require(specprobe_run.validity())
    require_past(specprobe_history, limit=limit)
