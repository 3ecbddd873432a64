"""Code that a drafter brings along: ``auto_map`` of its ``config.json`` names it, and its Python files hold it.

SGLang reads a drafter's config with ``trust_remote_code`` of the *target*, so a target that needs its own code would
let the drafter's run too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, judged
from pytest_specprobe.checkpoint.engine.accounting import names
from pytest_specprobe.checkpoint.files.header import shown

AUTO_MAP = "auto_map"


def auto_maps(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every ``auto_map`` of a config, however deep: its key (``text_config.auto_map``) and its value."""
    for key, value in config.items():
        if key == AUTO_MAP:
            yield prefix + key, value
        elif isinstance(value, Mapping):
            yield from auto_maps(value, f"{prefix}{key}.")


@check(
    "file.own-code",
    severity="warning",
    culprit="drafter-config",
    asks="the drafter is numbers alone: no auto_map in config.json, no Python file",
    why="SGLang follows a drafter's auto_map where the target's profile says trust_remote_code, and code runs that "
    "was never trusted. Staging leaves the files out, and auto_map out of its copy.",
    fix="remove both: where SGLang knows the model_type they are of no use; where it does not, it cannot serve the "
    "drafter",
)
def own_code(s: Subject) -> Outcome:
    """Look for auto_map at any depth, and for Python files."""
    mapped = [f"{key} {shown(value)}" for key, value in auto_maps(s.config)]
    files = [name for name in s.listing if name.endswith(".py")]
    return judged(names([*mapped, *files]), expected="no code", good="none")


CHECKS: tuple[Check, ...] = (own_code,)
