"""``specprobe serve`` on the stand-in, as a process of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pytest_specprobe.server.process import ownership

FAKE = Path(__file__).with_name("fake_sglang.py")
# A test run in the background has its children ignore what Ctrl-C sends.
VERB = (
    "import signal, sys; [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)]; from pytest_specprobe import cli; "
)
VERB += "sys.exit(cli.main(sys.argv[1:]))"
PATIENCE_S = 60.0


def stand_in(path: Path) -> Path:
    """Make an interpreter that says it holds the right SGLang, and serves the stand-in."""
    found = json.dumps({"sglang": "0.5.23", "torch": "2.9.1"})
    run = f'exec "{sys.executable}" -I -S "{FAKE}" "$@"'
    path.write_text(f"#!/bin/sh\ncase \"$1\" in -c) echo '{found}';; *) {run};; esac\n")
    path.chmod(0o755)
    return path


def words(python: Path, *more: str) -> list[str]:
    return ["serve", "dense_mini", "--device", "cpu", "--python", str(python), "--json", *more]


class Serve:
    """``specprobe serve`` as a process of its own."""

    def __init__(self, folder: Path, arguments: list[str], *, plan: dict[str, Any], **variables: str) -> None:
        self.folder = folder
        env = {**os.environ, "FAKE_SGLANG": json.dumps({"pair": True, "log": "up\n", **plan}), **variables}
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-c", VERB, *arguments]
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=err)

    @property
    def said(self) -> str:
        return self._out.read_text() + self._err.read_text()

    def ready(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        deadline = time.monotonic() + patience_s
        while not self._out.read_text().endswith("\n"):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)
        found: dict[str, Any] = json.loads(self._out.read_text())
        return found

    def code(self) -> int:
        return self.process.wait(PATIENCE_S)


def gone(within_s: float = 30.0) -> bool:
    deadline = time.monotonic() + within_s
    while ownership.servers():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
