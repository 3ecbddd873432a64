"""A cheap identity of a checkpoint, for records and for the names of staged directories."""

import hashlib
from pathlib import Path

from pytest_specprobe.checkpoint.header import open_regular, read_header
from pytest_specprobe.checkpoint.read import CONFIG, INDEX, read_config, read_index, weight_files
from pytest_specprobe.checkpoint.values import read_small
from pytest_specprobe.errors import CheckpointError

_BLOCKS = 16
_BLOCK = 4096


def digest(path: Path) -> str:
    """Return 64 hex digits that identify a checkpoint directory (or a bare ``config.json``).

    Covers exactly: the bytes of ``config.json`` and of the index; and of every safetensors file that SGLang would
    open its name, size, whole header, ``d2t`` values and 16 blocks of 4 KiB spread evenly over the file. Two
    checkpoints of one training run differ (their matrices differ everywhere); one flipped byte between two blocks
    goes unseen. Does not cover tokenizer files, and does not depend on the directory's name or on links.
    Raises :class:`CheckpointError` for unreadable files.
    """
    total = hashlib.sha256(b"specprobe 1")
    if not path.is_dir():
        read_config(path, culprit="target")
        _add_file(total, CONFIG, path)
        return total.hexdigest()
    _add_file(total, CONFIG, path / CONFIG)
    if read_index(path, culprit="drafter-file") is not None:
        _add_file(total, INDEX, path / INDEX)
    for name in weight_files(path):
        _add_weights(total, name, path / name)
    return total.hexdigest()


def _add_file(total: "hashlib._Hash", label: str, path: Path) -> None:
    with open_regular(path, culprit="drafter-file") as (file, size):
        total.update(f"\0{label}\0{size}\0".encode())
        for part in iter(lambda: file.read(1 << 20), b""):
            total.update(part)


def _add_weights(total: "hashlib._Hash", name: str, path: Path) -> None:
    header = read_header(path)
    data = header.data_start
    total.update(f"\0{name}\0{header.size}\0".encode("utf-8", "surrogateescape"))
    d2t = header.tensors.get("d2t")
    if d2t is not None:
        total.update(read_small(d2t).tobytes())
    with open_regular(path, culprit="drafter-file") as (file, size):
        total.update(_exactly(file.read(data), data, path))
        room = max(size - data - _BLOCK, 0)
        for block in range(_BLOCKS if room else 1):
            file.seek(data + room * block // (_BLOCKS - 1))
            total.update(file.read(_BLOCK))


def _exactly(part: bytes, length: int, path: Path) -> bytes:
    if len(part) != length:
        raise CheckpointError(f"{path} changed while it was read", culprit="machine", fix="wait for its download")
    return part
