"""The drafter's vocab mapping: what ``d2t`` and ``t2d`` must satisfy before anything is booted."""

from pytest_specprobe.findings import require
from pytest_specprobe.probe.files import Checked


def test_vocab_mapping(specprobe_checkpoint: Checked) -> None:
    """Every ``vocab.*`` finding passes: a wrong mapping boots, answers correctly, and accepts nothing."""
    mapping = [f for f in specprobe_checkpoint.findings if f.id.startswith("vocab.")]
    require(mapping)
    if all(f.status == "skip" for f in mapping):
        # an unreadable file leaves nothing to look at, which is not a pass
        require(specprobe_checkpoint.findings)
