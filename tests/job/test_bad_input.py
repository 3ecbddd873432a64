"""Bad input ends in one clear error with its culprit, a non-zero exit code, and no traceback of ours."""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.support.jobs import Job, run_job
from tests.support.spoiled import WEIGHTS, header, overwrite, profile, random_bf16


def lfs_pointer(drafter: Path) -> None:
    (drafter / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def truncated(drafter: Path) -> None:
    path = drafter / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1000])


def absolute_ids(drafter: Path) -> None:
    with safe_open(drafter / WEIGHTS, framework="np") as file:
        offsets = file.get_tensor("d2t")
    overwrite(drafter / WEIGHTS, "d2t", (offsets + np.arange(len(offsets))).astype(np.int64).tobytes())


def other_target(drafter: Path) -> None:
    """Make it a drafter for a target that is half as wide again: right in itself, wrong for this target."""
    wider = {128: 192, 256: 384, 384: 576, 64: 96}
    start, tensors = header(drafter / WEIGHTS)
    data = (drafter / WEIGHTS).read_bytes()[start:]
    chance, entries, body = np.random.default_rng(0), {}, b""
    for name, tensor in tensors.items():
        begin, end = tensor["data_offsets"]
        shape, content = tensor["shape"], data[begin:end]
        if name not in {"d2t", "t2d"}:
            shape = [wider.get(size, size) for size in shape]
            content = random_bf16(chance, shape)
        entries[name] = {**tensor, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    head = json.dumps(entries).encode()
    (drafter / WEIGHTS).write_bytes(len(head).to_bytes(8, "little") + head + body)
    config = json.loads((drafter / "config.json").read_text())
    config |= {"hidden_size": 192, "intermediate_size": 384, "num_attention_heads": 6, "num_key_value_heads": 3}
    (drafter / "config.json").write_text(json.dumps(config))


def missing(drafter: Path) -> None:
    shutil.rmtree(drafter)


def assert_one_clear_error(job: Job, *, code: int, culprit: str, says: str) -> None:
    assert job.code == code, job.output
    assert says in job.output
    assert f"culprit: {culprit}" in job.output
    assert "Traceback" not in job.output
    assert "pytest_specprobe/" not in job.output, "a frame of ours"


@pytest.mark.parametrize(
    ("spoil", "code", "culprit", "says"),
    [
        (missing, 11, "drafter-file", "not found; looked at"),
        (lfs_pointer, 1, "drafter-file", "Git LFS pointer"),
        (truncated, 1, "drafter-file", "truncated"),
        (absolute_ids, 1, "drafter-file", "vocab.absolute-ids"),
        (other_target, 1, "drafter-config", "target.hidden"),
    ],
)
def test_files(tmp_path: Path, spoil: Callable[[Path], None], code: int, culprit: str, says: str) -> None:
    spoil(profile(tmp_path))
    job = run_job(tmp_path, "--specprobe-drafter=bad")
    assert_one_clear_error(job, code=code, culprit=culprit, says=says)
    if code == 1:
        assert job.entries["bad"]["verdict"] == "broken"
        assert job.entries["bad"]["server"] is None, "nothing was booted"


def test_sglang_is_not_installed(tmp_path: Path) -> None:
    profile(tmp_path)
    # an interpreter without site-packages holds no SGLang
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexec python3 -S -E "$@"\n')
    python.chmod(0o755)
    job = run_job(tmp_path, "--specprobe-drafter=bad", f"--specprobe-python={python}")
    assert_one_clear_error(job, code=11, culprit="machine", says="pip install 'sglang==0.5.23'")


def test_nobody_answers_at_the_url(tmp_path: Path) -> None:
    profile(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        job = run_job(tmp_path, "--specprobe-drafter=bad", f"--specprobe-server={url}")
    assert_one_clear_error(job, code=11, culprit="machine", says=url)
