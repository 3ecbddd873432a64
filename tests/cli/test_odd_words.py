"""Bytes of a command line that are no UTF-8 reach Python as lone surrogates; no verb ends in a traceback for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import checkpoint_builder as build

CLI = "import sys; from pytest_specprobe.cli import main; sys.exit(main())"


@pytest.mark.parametrize(
    "words",
    [("init", "d", "t", "--output", b"p\xff"), ("inspect", b"\xff"), ("report", b"\xff"), ("history", b"\xff")],
    ids=lambda words: words[0],
)
def test_a_word_that_is_no_text(tmp_path: Path, words: tuple[str | bytes, ...]) -> None:
    build.llama().save(tmp_path / "d")
    build.target().save(tmp_path / "t")
    done = subprocess.run(
        [sys.executable, "-c", CLI, *words],
        cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"}, capture_output=True, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr
    assert done.returncode in {0, 1, 2}
    done.stdout.decode()
