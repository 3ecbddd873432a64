"""Everything about a drafter that can be known without a GPU, as findings; nothing is written, nothing is loaded."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject
from pytest_specprobe.checkpoint.checks import (
    aux_layers,
    compat,
    configs,
    contents,
    files,
    fusion,
    head,
    lineage,
    own_code,
    rope,
    vocab_marks,
    vocab_offsets,
)
from pytest_specprobe.checkpoint.engine import accounting
from pytest_specprobe.checkpoint.files.folder import CONFIG, Config, list_files, read_config, require_directory
from pytest_specprobe.checkpoint.files.read import TargetFiles, Weights, load_target, read_weights
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.findings import Finding

if TYPE_CHECKING:
    from pytest_specprobe.profiles import Speculation

_ROOMS = (
    files, own_code, configs, compat, accounting, head, fusion, aux_layers, rope, vocab_offsets, vocab_marks, lineage,
    contents,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(check for room in _ROOMS for check in room.CHECKS)


def inspect(
    drafter: Path,
    *,
    target: Path | TargetFiles | None = None,
    speculation: "Speculation | None" = None,
    serving_context: int | None = None,
    algorithm: str = "EAGLE3",
    engine_version: str | None = None,
    sample_ids: Sequence[int] | None = None,
    parent: Path | None = None,
) -> tuple[Finding, ...]:
    """Return every check of a drafter directory, passing ones too, in the order of ``CHECKS``.

    A failure that only follows from another one is folded into it: its status is then ``skip``. Unreadable drafter
    files are findings (``file.*``); a missing drafter directory, or an unusable target or parent, raises
    :class:`CheckpointError`.
    """
    for folder in (drafter, parent) if parent else (drafter,):
        require_directory(folder, culprit="drafter-file")
    return run_checks(
        replace(
            survey(drafter),
            target=load_target(target) if isinstance(target, Path) else target,
            speculation=speculation,
            serving_context=serving_context,
            algorithm=algorithm,
            engine_version=engine_version,
            sample_ids=sample_ids,
            parent=read_weights(parent) if parent else None,
        )
    )


def survey(drafter: Path) -> Subject:
    """Read what can be read of a drafter; what cannot is in ``faults``."""
    faults: list[CheckpointError] = []
    config: Config = {}
    weights: Weights | None = None
    try:
        config = read_config(drafter / CONFIG, culprit="drafter-config")
    except CheckpointError as fault:
        faults.append(fault)
    try:
        weights = read_weights(drafter)
    except CheckpointError as fault:
        faults.append(fault)
    return Subject(path=drafter, config=config, weights=weights, listing=list_files(drafter), faults=tuple(faults))


def run_checks(subject: Subject, *, checks: Iterable[Check] = CHECKS) -> tuple[Finding, ...]:
    """Run checks on one subject and fold consequences into their causes."""
    outcomes = [(check, check.run(subject)) for check in checks]
    causes = {check.id for check, outcome in outcomes if outcome.status == "fail"}
    return tuple(check.finding(_folded(check, outcome, causes)) for check, outcome in outcomes)


def _folded(check: Check, outcome: Outcome, causes: set[str]) -> Outcome:
    cause = next((id_ for id_ in check.follows if id_ in causes), None)
    if outcome.status != "fail" or cause is None:
        return outcome
    return Outcome("skip", f"{outcome.seen} (follows from {cause})", outcome.expected)


__all__ = ["CHECKS", "TargetFiles", "inspect", "run_checks", "survey"]
