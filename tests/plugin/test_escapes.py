"""What a server says of itself reaches the terminal as text, never as a command to it."""

from pathlib import Path

from tests.support.jobs import run_job
from tests.support.stand_in import SPECULATIVE, Handler, serving, write_profile


class Hostile(Handler):
    """Names an algorithm that would clear the screen and rename the window."""

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        info = {"version": "0.5.23", "model_path": "m", "dtype": "float32"} | SPECULATIVE
        self.answer(info | {"speculative_algorithm": "EAGLE\x1b[2J\x1b]0;owned\x07"})


def test_a_hostile_server_sends_no_escape_sequence(tmp_path: Path) -> None:
    write_profile(tmp_path)
    with serving(Hostile) as url:
        job = run_job(tmp_path, "--specprobe-drafter=attached", f"--specprobe-server={url}", "-k", "boot")
    assert job.code == 1, job.output
    assert "EAGLE" in job.output
    assert "\x1b" not in job.output
    assert "\x07" not in job.output
