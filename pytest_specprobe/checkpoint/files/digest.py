"""A cheap identity of a checkpoint, for records that must know whether two runs had the same files."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from pytest_specprobe.checkpoint.files.folder import CONFIG, list_files
from pytest_specprobe.checkpoint.files.header import MAX_HEADER_BYTES, open_regular, read_header
from pytest_specprobe.checkpoint.files.shards import INDEX, weight_names
from pytest_specprobe.checkpoint.files.values import read_small
from pytest_specprobe.errors import Culprit

# What a prompt's token ids, and the token that ends an answer, come from.
_TEXT_FILES = re.compile(
    r"(tokenizer|tokenization|special_tokens|added_tokens|chat_template|vocab|merges|generation_config).*"
    r"|.*\.(jinja|model|tiktoken)"
)
# What a chat template calls to write today's date into every prompt.
_DATE = b"strftime_now"
_BLOCKS = 16
_BLOCK = 4096
_MOST_TEMPLATE = 64 << 20


def digest(path: Path, *, culprit: Culprit = "drafter-file") -> str:
    """Return 64 hex digits that identify a checkpoint directory (or a bare ``config.json``).

    Covers exactly: the bytes of ``config.json`` and of the index; and of every safetensors file that SGLang would
    open and that is there its name, size, whole header, ``d2t`` values and 16 blocks of 4 KiB spread evenly over the
    file. Two checkpoints of one training run differ (their matrices differ everywhere); one flipped byte between two
    blocks goes unseen. Does not cover tokenizer files, and does not depend on the directory's name or on links.
    Raises :class:`CheckpointError` for unreadable files; absent weights count as such.
    """
    total = hashlib.sha256(b"specprobe 1")
    if not path.is_dir():
        _add_file(total, CONFIG, path, culprit)
        return total.hexdigest()
    _add_file(total, CONFIG, path / CONFIG, culprit)
    if INDEX in list_files(path):
        _add_file(total, INDEX, path / INDEX, culprit)
    for name in weight_names(path, culprit=culprit):
        total.update(f"\0{name}\0".encode("utf-8", "surrogateescape"))
        if os.path.lexists(path / name):
            _add_weights(total, path / name, culprit)
    return total.hexdigest()


def text_digest(path: Path, *, others: Sequence[Path] = ()) -> str:
    """Return 64 hex digits that identify how a target directory turns chats into token ids.

    Covers the names and bytes of its tokenizer files, its chat template and generation config, and of ``others``
    (files or directories that the server was told to use instead). What is not there counts as nothing. Raises
    :class:`CheckpointError` for a file that cannot be read.
    """
    total = hashlib.sha256(b"specprobe text 1")
    for place in (path, *others):
        for file in _text_files(place):
            _add_file(total, file.name, file, "target")
        total.update(b"\0")
    return total.hexdigest()


def writes_the_date(path: Path, *, others: Sequence[Path] = ()) -> bool:
    """Tell whether a chat template of these files puts the date into prompts, so that they differ by the day.

    Raises :class:`CheckpointError` for a file that cannot be read.
    """
    for file in (file for place in (path, *others) for file in _text_files(place)):
        if file.suffix == ".jinja" or file.name in {"tokenizer_config.json", "chat_template.json"}:
            with open_regular(file, culprit="target") as (opened, _):
                if _DATE in opened.read(_MOST_TEMPLATE):
                    return True
    return False


def _text_files(place: Path) -> list[Path]:
    if place.is_dir():
        return [place / name for name in sorted(filter(_TEXT_FILES.fullmatch, list_files(place)))]
    return [place] if place.is_file() else []


def _add_file(total: "hashlib._Hash", label: str, path: Path, culprit: Culprit) -> None:
    with open_regular(path, culprit=culprit) as (file, size):
        total.update(f"\0{label}\0{size}\0".encode())
        for part in iter(lambda: file.read(1 << 20), b""):
            total.update(part)


def _add_weights(total: "hashlib._Hash", path: Path, culprit: Culprit) -> None:
    with open_regular(path, culprit=culprit) as (file, size):
        data = 8 + int.from_bytes(file.read(8), "little")
        if data > min(size, MAX_HEADER_BYTES):
            read_header(path, culprit=culprit)  # says what is wrong
        file.seek(0)
        header = file.read(min(data, size))
        total.update(f"{size}\0".encode())
        total.update(header)
        room = max(size - data - _BLOCK, 0)
        for block in range(_BLOCKS if room else 1):
            file.seek(data + room * block // (_BLOCKS - 1))
            total.update(file.read(_BLOCK))
    # A target's headers are many and hold no mapping; only a drafter's is parsed.
    d2t = read_header(path, culprit=culprit).tensors.get("d2t") if b'"d2t"' in header else None
    if d2t is not None:
        total.update(read_small(d2t, culprit=culprit).tobytes())
