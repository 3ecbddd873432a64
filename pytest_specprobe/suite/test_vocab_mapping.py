"""The drafter's vocab mapping: what ``d2t`` and ``t2d`` must satisfy before anything is booted."""

from pytest_specprobe.findings import require
from pytest_specprobe.probe.files import Checked


def test_vocab_mapping(specprobe_checkpoint: Checked) -> None:
    """Every ``vocab.*`` finding passes: a wrong mapping boots, answers correctly, and accepts nothing."""
    require(f for f in specprobe_checkpoint.findings if f.id.startswith("vocab."))
