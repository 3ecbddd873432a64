"""Safetensors headers and small tensors, read by hand within fixed bounds.

A file is opened once, must be a regular file, and costs its header plus the bytes asked for: never a map of the
whole file, never more than ``MAX_HEADER_BYTES`` of JSON. What this reader accepts, the safetensors library
accepts too; whatever is wrong ends as one :class:`CheckpointError` that names the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from pytest_specprobe import reading
from pytest_specprobe.errors import (
    FILE_BAD_HEADER,
    FILE_LFS_POINTER,
    FILE_MISSING,
    FILE_TRUNCATED,
    FILE_UNREADABLE,
    CheckpointError,
    Culprit,
)
from pytest_specprobe.reading import Bounds, Unreadable, parse_json, pieces

# Real headers stay far below (a shard with thousands of experts has about 300 KB); the format itself allows
# 100 MB, whose JSON would cost a gigabyte of memory to refuse.
MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 50_000
MAX_RANK = 16

# Bits per element, as the safetensors format defines them.
DTYPE_BITS: Mapping[str, int] = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
INTEGER_DTYPES = frozenset({"U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64"})
FLOAT_DTYPES = frozenset({"BF16", "F16", "F32", "F64"})

_BOUNDS = Bounds(size=MAX_HEADER_BYTES, depth=8)
_LFS_MARK = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of one file: ``start`` and ``end`` are absolute byte offsets in ``file``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    file: Path

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Header:
    """One file's header: ``size`` in bytes of the whole file, ``tensors`` by name in file order.

    The tensors' bytes start at ``data_start``, right behind the header.
    """

    path: Path
    size: int
    data_start: int
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]


@contextmanager
def open_regular(path: Path, *, culprit: Culprit) -> Iterator[tuple[FileIO, int]]:
    """Open a regular file of a checkpoint, as :func:`reading.open_regular` does; yield it with its size in bytes.

    :raises CheckpointError: if it is missing, no regular file, or cannot be read to its end.
    """
    try:
        with reading.open_regular(path) as opened:
            yield opened
    except Unreadable as error:
        fix = "check the path, or download it" if error.missing else "check the path and its permissions"
        raise CheckpointError(
            f"{shown(path)} {error}",
            culprit=culprit,
            finding_id=FILE_MISSING if error.missing else FILE_UNREADABLE,
            fix=fix,
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{shown(path)} cannot be read: {error.strerror}", culprit=culprit, fix="check the disk it is on"
        ) from error


def read_header(path: Path, *, culprit: Culprit = "drafter-file") -> Header:
    """Return the header of one safetensors file; raise :class:`CheckpointError` if it is anything else."""
    with open_regular(path, culprit=culprit) as (file, size):
        fault = _Fault(path, culprit)
        prefix = _read_at(file, 0, min(size, len(_LFS_MARK)))
        if prefix == _LFS_MARK:
            fault.lfs()
        if size < 8:
            fault.truncated(f"{size} bytes, shorter than a header length")
        length = int.from_bytes(prefix[:8], "little")
        if length > size - 8:
            # A plausible length beyond the end is a cut download; an absurd one was never a header.
            if length <= MAX_HEADER_BYTES:
                fault.truncated(f"a header of {length:,} bytes in a file of {size:,}")
            fault.bad(f"the first 8 bytes give a header of {length:,} bytes")
        if length > MAX_HEADER_BYTES:
            fault.bad(f"a header of {length:,} bytes, beyond the {MAX_HEADER_BYTES:,} that are read")
        body = _read_at(file, 8, length)
    entries = _parse(body, fault)
    metadata = _metadata(entries.pop("__metadata__", None), fault)
    tensors = {name: _tensor(name, entry, 8 + length, path, fault) for name, entry in entries.items()}
    _require_packed(tensors.values(), 8 + length, size, fault)
    return Header(path=path, size=size, data_start=8 + length, tensors=tensors, metadata=metadata)


def read_bytes(tensor: TensorInfo, *, ranges: Sequence[tuple[int, int]], culprit: Culprit = "drafter-file") -> bytes:
    """Return the bytes of ``ranges`` (offset from the tensor's start, length), joined; short files are an error."""
    parts = []
    with open_regular(tensor.file, culprit=culprit) as (file, _):
        for offset, length in ranges:
            part = _read_at(file, tensor.start + offset, length)
            if len(part) != length:
                _Fault(tensor.file, culprit).truncated(f"{tensor.name} ends early")
            parts.append(part)
    return b"".join(parts)


def shown(text: object, *, limit: int = 120) -> str:
    """Return untrusted text fit for one terminal line: printable, no control codes, cut at ``limit``."""
    plain = "".join(c if c.isprintable() else "?" for c in str(text).encode("utf-8", "replace").decode("utf-8"))
    return plain if len(plain) <= limit else f"{plain[: limit - 3]}..."


class _Fault:
    """Raises the errors of one file, so that each message names it and its next step once."""

    def __init__(self, path: Path, culprit: Culprit) -> None:
        self.path = path
        self.culprit: Culprit = culprit

    def lfs(self) -> NoReturn:
        raise CheckpointError(
            f"{shown(self.path)} is a Git LFS pointer, not the weights",
            culprit=self.culprit,
            finding_id=FILE_LFS_POINTER,
            fix="run `git lfs pull` in the checkpoint's repository, or download the file again",
        )

    def truncated(self, what: str) -> NoReturn:
        raise CheckpointError(
            f"{shown(self.path)} is cut short: {what}",
            culprit=self.culprit,
            finding_id=FILE_TRUNCATED,
            fix="download or copy the file again",
        )

    def bad(self, what: str) -> NoReturn:
        raise CheckpointError(
            f"{shown(self.path)} is not a valid safetensors file: {what}",
            culprit=self.culprit,
            finding_id=FILE_BAD_HEADER,
            fix="export the checkpoint again with the safetensors library",
        )


def _read_at(file: FileIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return b"".join(pieces(file, length))


def _parse(body: bytes, fault: _Fault) -> dict[str, Any]:
    if not body.startswith(b"{"):
        fault.bad("its header does not start with '{'")
    # Counted before parsing, so that a hostile header of brackets never becomes a tree of objects.
    if body.count(b"{") > MAX_TENSORS + 2 or body.count(b"[") > 2 * MAX_TENSORS + 2:
        fault.bad(f"its header names more than {MAX_TENSORS:,} tensors")
    try:
        entries = parse_json(body, _BOUNDS, unique=True)
    except Unreadable as error:
        fault.bad(f"its header {error}")
    if not isinstance(entries, dict):
        fault.bad("its header is not a JSON object")
    return entries


def _metadata(entry: object, fault: _Fault) -> dict[str, str]:
    if entry is None:
        return {}
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        fault.bad("__metadata__ is not a table of texts")
    return entry


def _tensor(name: str, entry: object, data_start: int, path: Path, fault: _Fault) -> TensorInfo:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        fault.bad(f"the entry of {shown(name)!r} has not exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        fault.bad(f"{shown(name)!r} has the unknown dtype {shown(dtype)!r}")
    if not _counts(shape) or len(shape) > MAX_RANK:
        fault.bad(f"{shown(name)!r} has an impossible shape")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        fault.bad(f"{shown(name)!r} has impossible data offsets")
    total = bits
    for extent in shape:
        total *= extent
    if total >= 1 << 66 or total % 8:
        fault.bad(f"{shown(name)!r} has an impossible shape")
    if offsets[1] - offsets[0] != total // 8:
        fault.bad(f"{shown(name)!r} takes {offsets[1] - offsets[0]:,} bytes, but its shape needs {total // 8:,}")
    return TensorInfo(name, dtype, tuple(shape), data_start + offsets[0], data_start + offsets[1], path)


def _counts(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _require_packed(tensors: Any, data_start: int, size: int, fault: _Fault) -> None:
    """Tensors must fill the data section without gap or overlap, as the library demands."""
    position = data_start
    for tensor in sorted(tensors, key=lambda t: (t.start, t.end)):
        if tensor.start != position:
            what = "overlaps its neighbour" if tensor.start < position else "leaves a gap before it"
            fault.bad(f"{shown(tensor.name)!r} {what}")
        position = tensor.end
    if position > size:
        fault.truncated(f"{size:,} of {position:,} bytes are there")
    if position < size:
        fault.bad(f"{size - position:,} bytes at the end belong to no tensor")
