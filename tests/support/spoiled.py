"""Private copies of a mini drafter with something wrong in them."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FIXTURES = Path(__file__).parents[2] / "fixtures"
WEIGHTS = "model.safetensors"


def header(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return where a safetensors file's data begins, and its tensors by name."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(size))
        tensors.pop("__metadata__", None)
        return 8 + size, tensors


def read(path: Path, name: str) -> bytes:
    """Return one tensor's bytes."""
    start, tensors = header(path)
    begin, end = tensors[name]["data_offsets"]
    return path.read_bytes()[start + begin : start + end]


def overwrite(path: Path, name: str, data: bytes) -> None:
    """Replace one tensor's bytes in place, in a private copy."""
    start, tensors = header(path)
    begin, end = tensors[name]["data_offsets"]
    assert len(data) == end - begin
    with path.open("r+b") as file:
        file.seek(start + begin)
        file.write(data)


def random_bf16(chance: np.random.Generator, shape: Sequence[int]) -> bytes:
    """Return normal values of standard deviation 0.05, as bfloat16."""
    values = chance.normal(0, 0.05, size=shape).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def profile(folder: Path) -> Path:
    """Write a profile ``bad`` whose drafter is a private, writable copy of a mini drafter; return that copy."""
    drafter = folder / "drafter"
    shutil.copytree(FIXTURES / "scratch_k25_mini", drafter)
    (folder / "specprobe.toml").write_text(
        '[drafters.bad]\nsource = "drafter"\ntarget = "mini_k25"\n'
        "speculation = { num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }\n"
    )
    return drafter
