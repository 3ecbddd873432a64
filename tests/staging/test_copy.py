"""A copy holds its source's bytes, whatever the size, and zeros where it is blind."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.staging import copy
from pytest_specprobe.staging.copy import copy_new, same_bytes, write_new

RANGE = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ends: (min(ends), max(ends)))


@settings(max_examples=40, deadline=None)  # files on a disk that others use too
@given(
    data=st.binary(max_size=50),
    zeroed=st.lists(RANGE, max_size=3),
    flipped=st.none() | st.integers(0, 49),
    piece=st.integers(1, 20),
)
def test_a_copy_is_the_same_if_and_only_if_each_byte_is(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    zeroed: list[tuple[int, int]],
    flipped: int | None,
    piece: int,
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "source").write_bytes(data)
    blind = bytes(0 if any(a <= at < b for a, b in zeroed) else byte for at, byte in enumerate(data))
    wanted = flipped is None or flipped >= len(data)
    held = blind if wanted else blind[:flipped] + bytes([blind[flipped or 0] ^ 1]) + blind[(flipped or 0) + 1 :]
    (folder / "copy").write_bytes(held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "_PIECE", piece)
        assert same_bytes(folder / "copy", folder / "source", zeroed=zeroed) is wanted
        (folder / "copy").write_bytes(held + b"\0")
        assert not same_bytes(folder / "copy", folder / "source", zeroed=zeroed)
        if held:
            (folder / "copy").write_bytes(held[:-1])
            assert not same_bytes(folder / "copy", folder / "source", zeroed=zeroed)


def test_a_copy_is_new_or_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"weights")
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "copy").symlink_to(tmp_path / "theirs")
    with pytest.raises(FileExistsError):
        copy_new(tmp_path / "source", tmp_path / "copy")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "copy", b"{}")
    assert (tmp_path / "theirs").read_text() == "theirs"
