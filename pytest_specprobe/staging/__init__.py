"""A staged checkpoint: a new directory with linked weights and an edited ``config.json``; the source is never written."""

from pytest_specprobe.staging.stage import Staged, stage

__all__ = ["Staged", "stage"]
