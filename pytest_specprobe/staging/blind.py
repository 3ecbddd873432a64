"""The blind control: zero the drafter's ``fc``, so that it cannot see the target's hidden states.

A byte edit by header offsets: no tensor library, no change of any other byte, and the same cost at run time.
"""

from pathlib import Path

from pytest_specprobe.checkpoint.files.header import read_header
from pytest_specprobe.errors import StagingError

_FC_NAMES = ("fc.weight", "fc.bias", "model.fc.weight", "model.fc.bias")
_CHUNK = 1 << 20


def fc_ranges(path: Path) -> dict[str, tuple[int, int]]:
    """Return the byte ranges ``[begin, end)`` of ``fc`` tensors in a safetensors file, from the file's start.

    :raises CheckpointError: if the file is not safetensors.
    """
    tensors = read_header(path).tensors
    return {name: (tensors[name].start, tensors[name].end) for name in _FC_NAMES if name in tensors}


def zero(path: Path, ranges: dict[str, tuple[int, int]], *, source: Path) -> None:
    """Overwrite byte ranges of ``path`` with zeros, in place.

    ``path`` must be a private copy: the source must never be written, not through a link either.
    """
    status = path.lstat()
    if path.is_symlink() or status.st_nlink != 1 or path.samefile(source):
        raise StagingError(
            f"refused to edit {path}: it shares its bytes with {source}",
            culprit="harness",
            fix="report this as a bug of pytest-specprobe",
        )
    with path.open("r+b") as file:
        for begin, end in ranges.values():
            file.seek(begin)
            for start in range(begin, end, _CHUNK):
                file.write(bytes(min(_CHUNK, end - start)))
