"""One server, several step counts: pin one between requests, and prove from the live server that it holds.

Invariant: a step count is current only if the server took the request for it on every rank *and* says so itself,
before the turn and after it; a server that moves by itself, or says yes and does not move, is found out.
"""

from pathlib import Path

from pytest_specprobe.engines.steps import PIN_KEY, adaptive_config
from pytest_specprobe.errors import MeasurementError, ServerError
from pytest_specprobe.server.http.client import Client
from pytest_specprobe.server.spec import ServerSpec


class NotPinned(MeasurementError):
    """The server does not run the step count that it was asked to run."""


class PinnedSteps:
    """The step count of one server, which must be idle whenever it is changed.

    :param steps: what it was booted with.
    """

    def __init__(self, client: Client, *, steps: int) -> None:
        self._client = client
        self.steps = steps

    def pin(self, steps: int) -> None:
        """Make ``steps`` current, after proving that the last one held; the cache is flushed first.

        :raises NotPinned: if the server refuses, or runs another step count than it should, before or after.
        """
        # A flush is answered only when nothing runs, and so is a pin.
        self._client.flush()
        self.verify()
        if not self._client.set_internal_state(PIN_KEY, steps):
            raise self._wrong(
                f"the server refuses to be pinned to {steps} steps",
                "its log says why: look for 'step pin'",
            )
        self.steps = steps
        self.verify()

    def verify(self) -> None:
        """Prove that the pinned step count is what runs now, on every rank.

        :raises NotPinned: if it is not.
        """
        info = self._client.server_info()
        live = {
            (rank.get("speculative_num_steps"), rank.get("speculative_num_draft_tokens")) for rank in info.internal
        }
        if live != {(self.steps, self.steps + 1)}:
            seen = ", ".join(f"{steps} steps and {tokens} draft tokens" for steps, tokens in sorted(live, key=str))
            raise self._wrong(
                f"the server should draft {self.steps} steps and says it drafts {seen or 'nothing'}",
                "measure each setting on a server of its own",
            )

    def _wrong(self, what: str, fix: str) -> NotPinned:
        return NotPinned(what, culprit="engine", fix=fix)


def write_candidates(spec: ServerSpec, log_path: Path) -> Path:
    """Write the step counts to prebuild beside the log, where they tell later what was booted.

    :raises ServerError: if it cannot be written.
    """
    path = log_path.absolute().with_suffix(".steps.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(adaptive_config(spec.candidates), encoding="utf-8")
    except OSError as error:
        raise ServerError(
            f"the file of step counts {path} cannot be written: {error.strerror}",
            culprit="machine",
            fix="make the report directory writable, or name another with --specprobe-report",
        ) from error
    return path
