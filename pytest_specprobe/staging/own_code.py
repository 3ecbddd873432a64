"""A drafter's own code stays where it is: no Python file is staged, and no staged config names one."""

import copy
from collections.abc import Mapping
from typing import Any

from pytest_specprobe.checkpoint.checks.own_code import AUTO_MAP, auto_maps
from pytest_specprobe.staging.positions import Edits


def without_code(config: Mapping[str, Any]) -> tuple[dict[str, Any], Edits]:
    """Return a copy of ``config`` without ``auto_map`` at any depth, and every edit (its new value is None)."""
    edits: Edits = {key: (value, None) for key, value in auto_maps(config)}
    plain: dict[str, Any] = copy.deepcopy(dict(config))
    _drop(plain)
    return plain, edits


def _drop(table: dict[str, Any]) -> None:
    table.pop(AUTO_MAP, None)
    for value in table.values():
        if isinstance(value, dict):
            _drop(value)
