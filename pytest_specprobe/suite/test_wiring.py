"""Tensors, shapes and config of the drafter against its target."""

from pytest_specprobe.findings import require
from pytest_specprobe.probe.files import Checked


def test_wiring(specprobe_checkpoint: Checked) -> None:
    """Every other static finding passes: SGLang ignores unknown tensors and leaves missing ones random."""
    require(f for f in specprobe_checkpoint.findings if not f.id.startswith("vocab."))
