"""The files of one probe: found, checked, staged."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.checkpoint.checks import contents
from pytest_specprobe.checkpoint.files.digest import digest
from pytest_specprobe.checkpoint.files.read import TargetFiles, load_target
from pytest_specprobe.checkpoint.inspect import inspect
from pytest_specprobe.errors import CheckFailed, CheckpointError
from pytest_specprobe.findings import Finding, failed
from pytest_specprobe.probe.cleanup import clear
from pytest_specprobe.probe.context import ProbeContext
from pytest_specprobe.probe.once import Once
from pytest_specprobe.probe.plan.preflight import Preflight, preflight
from pytest_specprobe.staging import Staged, context_length, stage

# What a zeroed fc fails by design.
_BLINDED = {contents.constant.id, contents.untrained.id}


@dataclass(frozen=True, slots=True)
class Checked:
    """The drafter's directory, the target's files, and every static finding, passing ones too.

    The digests identify both checkpoints in records; None where the files cannot be read (a finding says why).
    """

    drafter: Path
    target: TargetFiles
    findings: tuple[Finding, ...]
    drafter_digest: str | None
    target_digest: str | None


class ProbeFiles:
    """Finds, checks and stages the files of one profile; each step runs once."""

    def __init__(self, context: ProbeContext, once: Once) -> None:
        self._context = context
        self._profile = context.profile
        self._phases = context.phases
        self._once = once

    def preflight(self) -> Preflight:
        """Find the files, the device and SGLang."""
        return self._once.get("preflight", self._preflight)

    def _preflight(self) -> Preflight:
        settings = self._context.settings
        if settings.server is None and not settings.static:
            with self._phases.phase("free", "leftovers of this tool; who holds GPUs and ports") as say:
                for line in clear(self._profile, device=settings.device, cache=self._context.session.cache):
                    say(line)
        return preflight(self._profile, settings)

    def checkpoint(self) -> Checked:
        """Run the static checks.

        :raises ProbeImpossible: if files, a device or SGLang are missing: all of it in one error.
        """
        return self._once.get("checkpoint", self._checkpoint)

    def _checkpoint(self) -> Checked:
        found = self.preflight()
        found.require(self._profile.name)
        if found.drafter is None or found.target is None:
            raise AssertionError("preflight.require raises when a directory is missing")
        with self._phases.phase("inspect", "files of drafter and target"):
            target = load_target(found.target)
            return Checked(
                found.drafter,
                target,
                self._inspect(found.drafter, target),
                drafter_digest=digest_of(found.drafter),
                target_digest=digest_of(found.target),
            )

    def _inspect(self, drafter: Path, target: TargetFiles) -> tuple[Finding, ...]:
        place = self.preflight().place
        return inspect(
            drafter,
            target=target,
            speculation=self._profile.drafter.speculation,
            engine_version=place.engine.version if place else None,
        )

    def peek_checkpoint(self) -> Checked | None:
        """Return the static checks if they ran."""
        checked: Checked | None = self._once.peek("checkpoint")
        return checked

    def staged(self) -> Staged:
        """Stage the drafter beside its source, positions patched, and check once more what will be served.

        :raises CheckFailed: if a static check failed: a server would boot, answer, and accept nothing.
        """
        return self._once.get("staged", lambda: self._stage(blind=False))

    def peek_staged(self) -> Staged | None:
        """Return the staged drafter if there is one yet."""
        staged: Staged | None = self._once.peek("staged")
        return staged

    def staged_blind(self) -> Staged:
        """Stage the blind control: the same checkpoint with ``fc`` zeroed."""
        return self._once.get("staged blind", lambda: self._stage(blind=True))

    def _stage(self, *, blind: bool) -> Staged:
        checked = self.checkpoint()
        wrong = failed(checked.findings)
        if wrong:
            raise CheckFailed(f"not booted, because {wrong[0].id} failed", culprit=wrong[0].culprit, fix=wrong[0].fix)
        with self._phases.phase("stage", "blind control" if blind else "drafter"):
            made = stage(
                checked.drafter,
                cache=self._context.session.cache,
                target_positions=context_length(checked.target.wrapper),
                blind=blind,
            )
            _require_same(checked, made, self._inspect(made.path, checked.target))
        with self._phases.phase("patch", _edits(made)):
            return made


def _require_same(checked: Checked, made: Staged, again: Iterable[Finding]) -> None:
    """Hold the findings of the staged directory against those of its source.

    :raises CheckFailed: if a check fails that did not fail on the source; its file is named.
    """
    before = {finding.id for finding in checked.findings if finding.status == "fail"}
    expected = before | (_BLINDED if made.blind else set())
    worse = [finding for finding in again if finding.status == "fail" and finding.id not in expected]
    if worse:
        raise CheckFailed(
            f"not booted, because what was staged at {made.path} is not what was checked at {checked.drafter}: "
            f"{worse[0].id}, saw {worse[0].seen}",
            culprit="harness",
            fix="probe again, in case the drafter changed meanwhile; if this stays, report it as a bug of "
            "pytest-specprobe",
            detail="\n".join(f"{finding.id}: saw {finding.seen}" for finding in worse[1:]),
        )


def digest_of(path: Path | None) -> str | None:
    """Return the digest of a checkpoint directory; None if there is none, or it cannot be read."""
    try:
        return None if path is None else digest(path)
    except CheckpointError:
        return None


def _edits(made: Staged) -> str:
    if not made.patched:
        return "nothing to patch"
    return ", ".join(
        f"{key} left out" if new is None else f"{key} {old} -> {new}" for key, (old, new) in made.patched.items()
    )
