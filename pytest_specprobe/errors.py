"""Every error this project raises on purpose.

::

    SpecprobeError
    |-- ProfileError        a profile, option or catalog entry is unusable       (exit 4)
    |-- ProbeImpossible     nothing could be measured                            (exit 11)
    |   |-- CheckpointError files are missing, unreadable or hostile
    |   |-- StagingError    the staged directory could not be made
    |   `-- ServerError     the server did not boot, died, or could not be reached
    |       |-- BootError
    |       `-- PortTaken
    |-- CheckFailed         a named check did not pass: file, wiring or proof    (exit 1, broken)
    |-- MeasurementError    a number cannot be trusted; the measurement is invalid
    |-- GateFailed          measured, and not good enough                        (exit 1)
    `-- Inconclusive        measured, and the intervals cannot tell              (exit 10)

An error names what happened, who is at fault (``culprit``) and what to do next (``fix``).
"""

from typing import Literal, Self, get_args

from pytest_specprobe.foreign import LINE, one_line, printable

Culprit = Literal[
    "drafter-file", "drafter-config", "launch-flags", "engine", "target", "workload", "machine", "harness"
]
CULPRITS: tuple[Culprit, ...] = get_args(Culprit)


class SpecprobeError(Exception):
    """Base of all our errors: what happened, the culprit, and the next step.

    ``str()`` is a complete message, safe for a terminal: one sentence of cause, then ``culprit`` and ``fix``, then
    ``detail`` (for instance the last lines of a server's log) if there is any.
    """

    def __init__(self, what: str, *, culprit: Culprit, fix: str, detail: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.culprit: Culprit = culprit
        self.fix = fix
        self.detail = detail

    def __str__(self) -> str:
        text = f"{one_line(self.what, LINE)}\n  culprit: {self.culprit}\n  next: {one_line(self.fix, LINE)}"
        # The lines of a log or of another error never begin a line of ours.
        return printable("\n".join([text, *(f"  | {line}" for line in self.detail.split("\n") if self.detail)]))


class ProfileError(SpecprobeError):
    """A profile, an option or a catalog entry is unusable; ``problems`` holds all of them at once."""

    def __init__(self, problems: tuple[str, ...], *, fix: str, culprit: Culprit = "harness") -> None:
        self.problems = problems
        super().__init__("; ".join(problems), culprit=culprit, fix=fix)


class ProbeImpossible(SpecprobeError):
    """Nothing could be measured: files are missing, no device, the boot failed."""


# The findings that say the same as a CheckpointError: the checks of ``checkpoint/checks/files`` have these ids.
FILE_MISSING = "file.missing"
FILE_LFS_POINTER = "file.lfs-pointer"
FILE_TRUNCATED = "file.truncated"
FILE_BAD_HEADER = "file.bad-header"
FILE_BAD_JSON = "file.bad-json"
FILE_INDEX_PATH = "file.index-path"
FILE_PICKLED = "file.pickled"
FILE_UNREADABLE = "file.unreadable"


class CheckpointError(ProbeImpossible):
    """A checkpoint's files are missing, unreadable, or not what their names say.

    ``finding_id`` is the ``file.*`` check that reports the same fault as a Finding.
    """

    def __init__(
        self, what: str, *, culprit: Culprit, fix: str, detail: str = "", finding_id: str = FILE_UNREADABLE
    ) -> None:
        super().__init__(what, culprit=culprit, fix=fix, detail=detail)
        self.finding_id = finding_id


class StagingError(ProbeImpossible):
    """The staged directory could not be made."""


class ServerError(ProbeImpossible):
    """A server did not boot, died, or could not be reached."""


class BootError(ServerError):
    """A server that we started did not become ready."""


class PortTaken(ServerError):
    """The port asked for is in use by a process that is not ours."""


class CheckFailed(SpecprobeError):
    """A named check of the files, the wiring or the running server did not pass."""


class MeasurementError(SpecprobeError):
    """A number cannot be trusted: the measurement is invalid, never smaller."""

    @classmethod
    def because(cls, what: str, error: SpecprobeError) -> Self:
        """Return the error of a pass that another error ended, with that one's culprit, fix and detail."""
        return cls(f"{what}: {error.what}", culprit=error.culprit, fix=error.fix, detail=error.detail)


class GateFailed(SpecprobeError):
    """A threshold of the gate is not met, or the verdict is not one that the profile accepts."""


class Inconclusive(SpecprobeError):
    """The intervals still allow both passing and failing: not a pass."""
