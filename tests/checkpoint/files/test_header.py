"""The header reader: agrees with the safetensors library, and turns every hostile file into one clear error."""

import contextlib
import json
import os
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from pytest_specprobe.checkpoint.files.header import MAX_HEADER_BYTES, read_header, shown
from pytest_specprobe.checkpoint.files.values import read_rows, read_small, sample
from pytest_specprobe.errors import CheckpointError

READABLE = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
SMALL = arrays.array_shapes(min_dims=0, max_dims=3, max_side=4)


def raw(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with this header (JSON unless bytes), whatever the length field says."""
    body = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(body) if length is None else length).to_bytes(8, "little", signed=(length or 0) < 0) + body + data


def entry(start: int, end: int, *, shape: list[int] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name != "__metadata__"),
        st.sampled_from(READABLE).flatmap(lambda kind: arrays.arrays(kind, SMALL)),
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_every_file_that_the_library_writes_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory, tensors: Any
) -> None:
    path = tmp_path_factory.mktemp("header") / "model.safetensors"
    save_file(tensors, path, metadata={"format": "np"})
    header = read_header(path)
    assert header.metadata == {"format": "np"}
    assert {name: info.shape for name, info in header.tensors.items()} == {n: t.shape for n, t in tensors.items()}
    for name, value in load_file(path).items():
        np.testing.assert_array_equal(read_small(header.tensors[name]), value)


def _accepted_by_the_library(path: Path) -> bool:
    try:
        with safe_open(path, framework="np"):
            return True
    except (SafetensorError, OSError):
        return False


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x02\0\0\0\0\0\0\0{}")
@example(b"\x01\0\0\0\0\0\0\0{")
@example(raw({"a": entry(0, 4)}, b"1234"))
@example(raw({"a": entry(0, 4)}, b"123"))
@example(raw({"a": entry(0, 4)}, b"12345"))
@example(raw({"a": entry(0, 0, shape=[0, 5])}))
@example(raw({"a": entry(0, 1, shape=[2], dtype="F4")}, b"1"))
@example(raw({"a": {**entry(0, 1), "extra": 1}}, b"1"))
@example(raw({"a": entry(0, 1), "__metadata__": {"x": "y"}}, b"1"))
@example(raw({"a": entry(0, 1), "__metadata__": {"x": 1}}, b"1"))
@example(raw(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   ', b"1"))
@example(raw(b' {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"))
@example(raw(b'{"\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"))
@example(raw(b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"))
@example(raw({"a": entry(0, 1, shape=[1.0])}, b"1"))  # type: ignore[list-item]
@settings(max_examples=300, deadline=None)
def test_what_is_accepted_the_library_accepts_too(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    path.write_bytes(body)
    error = refusal(path)
    if error is None:
        assert _accepted_by_the_library(path)
        return
    assert error.culprit == "drafter-file"
    assert error.fix
    assert path.name in error.what
    assert "\n" not in error.what


def refusal(path: Path) -> CheckpointError | None:
    try:
        read_header(path)
    except CheckpointError as error:
        return error
    return None


KEYS = st.sampled_from(["dtype", "shape", "data_offsets", "a", "__metadata__"])
JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["F32", "U8"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(JSONISH, st.binary(max_size=16))
@settings(max_examples=300, deadline=None)
def test_any_json_as_header_is_an_error_or_readable(
    tmp_path_factory: pytest.TempPathFactory, header: Any, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("json") / "model.safetensors"
    path.write_bytes(raw(header, data))
    assert refusal(path) is not None or _accepted_by_the_library(path)


HOSTILE: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "file.truncated", "0 bytes"),
    "seven bytes": (b"1234567", "file.truncated", "7 bytes"),
    "lfs pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "file.lfs-pointer",
        "LFS",
    ),
    "negative length": (raw({}, length=-1), "file.bad-header", "18,446,744,073,709,551,615"),
    "huge length": (raw({}, length=1 << 40), "file.bad-header", "header of"),
    "length beyond the file": (raw({}, length=500), "file.truncated", "500"),
    "not json": (raw(b"{nonsense}"), "file.bad-header", "not JSON"),
    "not an object": (raw(b"[1, 2]"), "file.bad-header", "'{'"),
    "not utf-8": (raw(b'{"\xff\xfe": 1}'), "file.bad-header", "not UTF-8"),
    "deep": (raw(b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "file.bad-header", "deep"),
    "deep objects": (raw(b'{"a":' * 40_000 + b"1" + b"}" * 40_000), "file.bad-header", "deep"),
    "too many": (raw(b'{"a":' + b"[" + b"[]," * 100_100 + b"[]]}"), "file.bad-header", "more than"),
    "huge number": (raw(b'{"a":' + b"9" * 10_000 + b"}"), "file.bad-header", "digits"),
    "NaN": (raw(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"1"), "file.bad-header", "NaN"),
    "duplicate keys": (
        raw(
            b'{"a":%(e)s,"a":%(e)s}' % {b"e": b'{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'},
            b"1",
        ),
        "file.bad-header",
        "duplicate key 'a'",
    ),
    "overlap": (raw({"a": entry(0, 4), "b": entry(2, 6)}, b"123456"), "file.bad-header", "overlaps"),
    "gap": (raw({"a": entry(0, 2), "b": entry(4, 6)}, b"123456"), "file.bad-header", "gap"),
    "beyond the end": (raw({"a": entry(0, 400)}, b"1234"), "file.truncated", "cut short"),
    "negative offset": (raw({"a": entry(-4, 4, shape=[8])}, b"1234"), "file.bad-header", "offsets"),
    "backwards": (raw({"a": entry(4, 0, shape=[4])}, b"1234"), "file.bad-header", "offsets"),
    "trailing bytes": (raw({"a": entry(0, 4)}, b"1234567"), "file.bad-header", "belong to no tensor"),
    "size against shape": (raw({"a": entry(0, 4, shape=[2])}, b"1234"), "file.bad-header", "needs 2"),
    "overflowing shape": (raw({"a": entry(0, 4, shape=[1 << 40, 1 << 40])}, b"1234"), "file.bad-header", "shape"),
    "unknown dtype": (raw({"a": entry(0, 4, dtype="F7")}, b"1234"), "file.bad-header", "F7"),
    "dtype no text": (raw({"a": {**entry(0, 4), "dtype": ["U8"]}}, b"1234"), "file.bad-header", "dtype"),
    "missing key": (raw({"a": {"dtype": "U8", "shape": [4]}}, b"1234"), "file.bad-header", "exactly"),
    "half a byte": (raw({"a": entry(0, 0, shape=[1], dtype="F4")}), "file.bad-header", "shape"),
    "rank 40": (raw({"a": entry(0, 1, shape=[1] * 40)}, b"1"), "file.bad-header", "shape"),
    "terminal codes": (raw({"\x1b[2J\n": entry(0, 4, shape=[2])}, b"1234"), "file.bad-header", "?[2J?"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(name: str, tmp_path: Path) -> None:
    body, finding, said = HOSTILE[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(body)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.finding_id == finding
    assert said in caught.value.what
    assert caught.value.what.isprintable()
    assert len(caught.value.what) < 400
    assert peak < 64 << 20


def test_the_largest_header_that_is_parsed_stays_within_bounds(tmp_path: Path) -> None:
    filler = b'{"a":[' + b"10000," * ((MAX_HEADER_BYTES - 20) // 6)
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw(filler + b"1]}"))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError):
            read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300 << 20


def test_a_header_beyond_the_bound_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
        file.truncate(MAX_HEADER_BYTES + 100)
    with pytest.raises(CheckpointError, match="beyond"):
        read_header(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    # Bound by a relative name: a socket's path may have 107 bytes only.
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "a FIFO"),
    "directory": (Path.mkdir, "a directory"),
    "socket": (_socket, "cannot be opened"),
    "symlink loop": (_loop, "cannot be opened"),
    "dangling symlink": (lambda path: path.symlink_to("nowhere"), "does not exist"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
    "absent": (lambda path: None, "does not exist"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.timeout(10)
def test_what_is_no_file_is_refused_without_waiting(name: str, tmp_path: Path) -> None:
    make, said = ODD[name]
    path = tmp_path / "model.safetensors"
    make(path)
    with pytest.raises(CheckpointError, match=said):
        read_header(path)


def test_unreadable_permissions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw({}))
    path.chmod(0)
    # Root reads everything, so a test that runs as root steps down for the one call.
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            error = refusal(path)
        finally:
            os.seteuid(0)
    else:
        error = refusal(path)
    assert error is not None
    assert "Permission denied" in error.what


def test_a_name_with_a_null_byte_is_refused() -> None:
    with pytest.raises(CheckpointError, match="cannot be opened"):
        read_header(Path("a\0b"))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, no paths
    for name in ("directory", "fifo"):
        ODD[name][0](tmp_path / name)
        with pytest.raises(CheckpointError):
            read_header(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - counts, no paths


def test_untrusted_text_is_shown_on_one_printable_line() -> None:
    assert shown("a\x1b[31m\n\udcffb") == "a?[31m??b"
    assert len(shown("x" * 500)) == 120


def _bf16(values: np.ndarray[Any, Any]) -> bytes:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def test_bf16_values_are_read_as_float32(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5], [0.0, 3.140625]], dtype=np.float32)
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw({"w": entry(0, 8, shape=[2, 2], dtype="BF16")}, _bf16(values)))
    info = read_header(path).tensors["w"]
    np.testing.assert_array_equal(read_small(info), values)
    np.testing.assert_array_equal(sample(info), values.ravel())
    np.testing.assert_array_equal(read_rows(info, [1]), values[1:])


def test_a_sample_spreads_over_a_large_tensor_and_reaches_its_end(tmp_path: Path) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    save_file({"w": values}, tmp_path / "model.safetensors")
    info = read_header(tmp_path / "model.safetensors").tensors["w"]
    taken = sample(info, blocks=4, length=100)
    assert taken is not None
    assert taken.size == 400
    assert taken[0] == 0
    assert taken[-1] == values[-1]
    assert np.all(np.isin(taken, values))


def test_values_that_are_no_plain_numbers_are_not_sampled(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw({"w": entry(0, 4, dtype="F8_E4M3")}, b"1234"))
    info = read_header(path).tensors["w"]
    assert sample(info) is None
    with pytest.raises(CheckpointError):
        read_small(info)
