"""Which safetensors files of a directory are its weights: one list, for the checks and for staging.

The rule is SGLang's (``_prepare_weights`` of ``model_loader/loader.py``, ``filter_duplicate_safetensors_files``): the
files of the directory itself that ``*.safetensors`` matches; with an index only those of them that it names.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from pytest_specprobe.checkpoint.files.folder import bad_json, list_files, read_json
from pytest_specprobe.checkpoint.files.header import shown
from pytest_specprobe.errors import FILE_INDEX_PATH, FILE_MISSING, FILE_PICKLED, CheckpointError, Culprit

INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 << 20  # a terabyte of experts has about 140,000 tensors, 15 MB of index
MAX_SHARDS = 2_000


def weight_files(path: Path) -> list[str]:
    """Return the names of the drafter's safetensors files, sorted: what is checked, staged and loaded.

    Raises :class:`CheckpointError` if there are none or far too many, if the name of one is not printable, or if the
    index names a file that SGLang does not open.
    """
    index = read_index(path, culprit="drafter-file")
    ignored = next((name for name in sorted(set((index or {}).values())) if not _opened(name)), None)
    if ignored is not None:
        raise CheckpointError(
            f"{shown(path / INDEX)} names a file that SGLang does not open: {shown(ignored)!r}",
            culprit="drafter-file",
            finding_id=FILE_INDEX_PATH,
            fix="export the checkpoint again; an index holds plain names that end in .safetensors",
        )
    names = weight_names(path, culprit="drafter-file")
    if not names:
        raise _no_weights(path)
    if len(names) > MAX_SHARDS:
        raise CheckpointError(
            f"{shown(path)} has {len(names):,} weight files, more than the {MAX_SHARDS:,} that are read",
            culprit="drafter-file",
            fix="point at one checkpoint's own directory",
        )
    unnamed = next((name for name in names if not name.isprintable()), None)
    if unnamed is not None:
        raise CheckpointError(
            f"{shown(path)} has a weight file whose name is not printable text: {shown(unnamed)!r}",
            culprit="drafter-file",
            fix="rename the file, in the index too",
        )
    return names


def weight_names(path: Path, *, culprit: Culprit) -> list[str]:
    """Return the names of the safetensors files that SGLang would open, sorted; those of an index may be absent."""
    index = read_index(path, culprit=culprit)
    return sorted(filter(_opened, set(index.values()))) if index is not None else loose_shards(list_files(path))


def read_index(path: Path, *, culprit: Culprit) -> dict[str, str] | None:
    """Return the weight map of a sharded checkpoint, or None if there is no index.

    Raises :class:`CheckpointError` if it is malformed or names a file outside the directory.
    """
    file = path / INDEX
    if not os.path.lexists(file):
        return None
    weight_map = read_json(file, limit=MAX_INDEX_BYTES, culprit=culprit).get("weight_map")
    if not isinstance(weight_map, dict) or set(map(type, weight_map.values())) - {str}:
        raise bad_json(file, culprit, "weight_map is not a table of file names")
    outside = next((name for name in set(weight_map.values()) if not _inside(name)), None)
    if outside is not None:
        raise CheckpointError(
            f"{shown(file)} names a file outside its directory: {shown(outside)!r}",
            culprit=culprit,
            finding_id=FILE_INDEX_PATH,
            fix="export the checkpoint again; an index holds plain file names",
        )
    return weight_map


def absent_shards(path: Path, index: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files that an index names and that are not there, sorted; a file may be in a folder below."""
    listing = frozenset(list_files(path))
    return tuple(sorted({file for file in index.values() if file not in listing and not (path / file).is_file()}))


def _inside(name: str) -> bool:
    pure = PurePosixPath(name)
    return bool(name) and "\0" not in name and not pure.is_absolute() and ".." not in pure.parts


def _opened(name: str) -> bool:
    """Whether the pattern ``*.safetensors`` matches a name, as ``glob`` understands it."""
    return name.endswith(".safetensors") and not name.startswith(".") and "/" not in name


def loose_shards(listing: Iterable[str]) -> list[str]:
    """Return the safetensors files of a directory without an index, as SGLang picks them."""
    names = sorted(filter(_opened, listing))
    # One special case of the engine: a Mistral-style consolidated copy beside the real file is skipped.
    if len(names) == 2 and names[0].endswith("consolidated.safetensors") and names[1].endswith("model.safetensors"):
        return names[1:]
    return names


def _no_weights(path: Path) -> CheckpointError:
    pickled = [name for name in list_files(path) if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if pickled:
        return CheckpointError(
            f"{shown(path)} has only pickled weights ({shown(', '.join(pickled[:3]))}); they are never loaded here",
            culprit="drafter-file",
            finding_id=FILE_PICKLED,
            fix="convert them to safetensors in a sandbox, then probe the result",
        )
    return CheckpointError(
        f"{shown(path)} has no safetensors file",
        culprit="drafter-file",
        finding_id=FILE_MISSING,
        fix="download the weights beside config.json",
    )
