"""The drafter's vocab mapping: what ``d2t`` and ``t2d`` must satisfy before anything is booted."""

from pytest_specprobe.checkpoint.inspect import Inspection
from pytest_specprobe.suite.checks import require


def test_vocab_mapping(specprobe_checkpoint: Inspection) -> None:
    """Every ``vocab.*`` finding passes: a wrong mapping boots, answers correctly, and accepts nothing."""
    require(f for f in specprobe_checkpoint.findings if f.id.startswith("vocab."))
