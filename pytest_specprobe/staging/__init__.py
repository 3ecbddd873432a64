"""A staged checkpoint: a new directory with clones of the weights and an edited ``config.json``.

The source is never written.
"""

from pytest_specprobe.staging.positions import context_length
from pytest_specprobe.staging.stage import Staged, stage

__all__ = ["Staged", "context_length", "stage"]
