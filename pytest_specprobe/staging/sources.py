"""Which files of a checkpoint are staged, whether they may be, and their digest."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_specprobe.checkpoint.files.folder import CONFIG, MAX_CONFIG_BYTES
from pytest_specprobe.checkpoint.files.header import open_regular
from pytest_specprobe.checkpoint.files.shards import INDEX, weight_files
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.reading import Bounds, Unreadable, parse_json, read_bytes

# No pickles, no optimiser state, no code: what SGLang needs and nothing else.
_SMALL_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checkpoint as it will be staged.

    ``files`` maps a plain file name to the resolved regular file; ``hashes`` the same names to SHA-256 (hex).
    ``digest`` is the SHA-256 over names, and hashes in name order, so it names the checkpoint's content.
    """

    path: Path
    files: dict[str, Path]
    hashes: dict[str, str]
    digest: str
    config: dict[str, Any]
    config_bytes: bytes


def read_source(path: Path) -> Source:
    """Look at a checkpoint directory and hash the files that a server needs.

    :raises CheckpointError: it is missing, has no config or weights, or a name or link in it leads elsewhere.
    """
    if not path.is_dir():
        raise _bad(f"no such checkpoint directory: {path}", "name a directory that holds config.json and safetensors")
    config_path = _resolve(path, CONFIG)
    config_bytes = _read(config_path, limit=MAX_CONFIG_BYTES)
    config = _parse_object(config_bytes, CONFIG)
    names = [CONFIG, *weight_files(path)]
    names += [name for name in _SMALL_FILES if (path / name).exists()]
    if (path / INDEX).exists():
        names.append(INDEX)
    files = {name: _resolve(path, name) for name in sorted(set(names))}
    hashes = {name: hash_file(file) for name, file in files.items()}
    digest = hashlib.sha256(json.dumps(sorted(hashes.items())).encode()).hexdigest()
    return Source(path=path, files=files, hashes=hashes, digest=digest, config=config, config_bytes=config_bytes)


def hash_file(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with open_regular(path, culprit="drafter-file") as (file, _):
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resolve(path: Path, name: str) -> Path:
    """Return the regular file behind a name of the checkpoint.

    The name must be a plain one. A link may lead anywhere inside the checkpoint or its hub cache, and elsewhere
    only to a file of the same kind: a weights farm of links is common, ``tokenizer.json -> id_rsa`` is an attack.
    """
    if name in {"", ".", ".."} or Path(name).name != name or "\0" in name:
        raise _bad(f"the checkpoint names a file outside its folder: {name!r}", "do not use this checkpoint")
    link = path / name
    try:
        file = link.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise _bad(f"{link} is missing", "download the checkpoint completely") from error
    root = path.resolve()
    inside = file.is_relative_to(root) or file.is_relative_to(root.parent.parent / "blobs")
    if not inside and file.suffix != link.suffix:
        raise _bad(f"{link} leads out of the checkpoint, to {file}", "do not use this checkpoint")
    if not file.is_file():
        raise _bad(f"{link} is not a regular file", "download the checkpoint again")
    return file


def _read(path: Path, *, limit: int) -> bytes:
    try:
        return read_bytes(path, limit=limit)
    except Unreadable as error:
        raise _bad(f"{path} {error}", "make the checkpoint readable") from error


def _parse_object(data: bytes, name: str) -> dict[str, Any]:
    try:
        value = parse_json(data, Bounds(size=len(data)), numbers="any")
    except Unreadable as error:
        raise _bad(f"{name} {error}", "download the checkpoint again") from error
    if not isinstance(value, dict):
        raise _bad(f"{name} is not a JSON object", "download the checkpoint again")
    return value


def _bad(what: str, fix: str) -> CheckpointError:
    return CheckpointError(what, culprit="drafter-file", fix=fix)
