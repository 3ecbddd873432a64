"""A server that is lost between two passes makes the measurement invalid, wherever it is asked first."""

from pathlib import Path

import pytest

from tests.support.jobs import run_job
from tests.support.stand_in import PROMPTS, Handler, serving, write_profile


class Mortal(Handler):
    """Goes silent for good after its acceptance pass: by path, what it answers no more."""

    gone: tuple[str, ...] = ()
    answers = 0

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        if self.lost():
            self.send_error(500)
        else:
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802 - http.server's name
        if self.path == "/generate":
            if self.lost():
                self.send_error(500)
                return
            type(self).answers += 1
        super().do_POST()

    def lost(self) -> bool:
        # the canary and two warm-ups come first
        return self.path in self.gone and type(self).answers >= PROMPTS + 3


@pytest.mark.parametrize("path", ["/server_info", "/generate"])
def test_the_measurement_is_invalid(tmp_path: Path, path: str) -> None:
    class Lost(Mortal):
        gone = (path,)

    write_profile(tmp_path)
    with serving(Lost) as url:
        job = run_job(
            tmp_path, "--specprobe-drafter=attached", f"--specprobe-server={url}", "--specprobe-baseline=none"
        )
    entry = job.entries["attached"]
    assert (job.code, entry["verdict"]) == (1, None), job.output
    (wrong,) = [c for c in entry["checks"] if c["status"] == "fail" and c["severity"] == "error"]
    assert (wrong["id"], wrong["culprit"]) == ("measure.failed", "engine")
    assert "HTTP 500" in wrong["seen"]
