"""Values of tensors as numpy arrays: whole small ones, samples of large ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_specprobe.checkpoint.files.header import FLOAT_DTYPES, INTEGER_DTYPES, TensorInfo, read_bytes
from pytest_specprobe.errors import FILE_BAD_HEADER, CheckpointError, Culprit

# A mapping over the largest vocabulary in use (about 260,000 ids) takes 2 MB as I64.
MAX_VALUE_BYTES = 32 << 20

_NUMPY: dict[str, str] = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4",
    "I64": "<i8", "U64": "<u8", "BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


def read_small(tensor: TensorInfo, *, culprit: Culprit = "drafter-file") -> npt.NDArray[Any]:
    """Return all values of an integer, bool or float tensor in its own shape; BF16 comes as float32.

    Raises :class:`CheckpointError` beyond ``MAX_VALUE_BYTES`` and for dtypes without a numpy form.
    """
    if tensor.nbytes > MAX_VALUE_BYTES or tensor.dtype not in _NUMPY:
        raise CheckpointError(
            f"{tensor.name} ({tensor.dtype}, {tensor.nbytes:,} bytes) is not a small readable tensor",
            culprit=culprit,
            finding_id=FILE_BAD_HEADER,
            fix="export the checkpoint again",
        )
    raw = read_bytes(tensor, ranges=[(0, tensor.nbytes)], culprit=culprit)
    return _decode(raw, tensor.dtype).reshape(tensor.shape)


def sample(
    tensor: TensorInfo, *, blocks: int = 16, length: int = 4096, culprit: Culprit = "drafter-file"
) -> npt.NDArray[np.float32] | None:
    """Return up to ``blocks * length`` values of a float tensor as float32 [n], evenly spread; None for other dtypes.

    Deterministic: the same file gives the same sample. Small tensors come whole.
    """
    if tensor.dtype not in FLOAT_DTYPES:
        return None
    width = np.dtype(_NUMPY[tensor.dtype]).itemsize
    count = tensor.nbytes // width
    if count <= blocks * length:
        ranges = [(0, tensor.nbytes)]
    else:
        step = (count - length) // (blocks - 1)
        ranges = [(block * step * width, length * width) for block in range(blocks)]
    values = _decode(read_bytes(tensor, ranges=ranges, culprit=culprit), tensor.dtype)
    return values.astype(np.float32, copy=False)


def read_rows(
    tensor: TensorInfo, rows: Sequence[int], *, culprit: Culprit = "drafter-file"
) -> npt.NDArray[np.float32] | None:
    """Return the given rows of a 2-D float tensor as float32 [len(rows), columns]; None for other dtypes or ranks."""
    if tensor.dtype not in FLOAT_DTYPES or len(tensor.shape) != 2:
        return None
    stride = tensor.shape[1] * np.dtype(_NUMPY[tensor.dtype]).itemsize
    raw = read_bytes(tensor, ranges=[(row * stride, stride) for row in rows], culprit=culprit)
    return _decode(raw, tensor.dtype).astype(np.float32, copy=False).reshape(len(rows), tensor.shape[1])


def is_integer(tensor: TensorInfo) -> bool:
    """Whether the tensor holds integers (bool excluded)."""
    return tensor.dtype in INTEGER_DTYPES


def _decode(raw: bytes, dtype: str) -> npt.NDArray[Any]:
    values = np.frombuffer(raw, dtype=_NUMPY[dtype])
    if dtype == "BF16":
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values
