"""A drafter and its target, as directories."""

from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    target: Path
    drafter: Path
