"""What a drafter's and a target's directories hold: configs, tensor headers, file names. Nothing is written.

A drafter is a directory with a ``config.json`` and safetensors files. A target is a directory or a bare
``config.json``; of its weights only the headers that hold the embedding and the head are read, so that a sharded
terabyte costs what a small model costs.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_specprobe.checkpoint.header import Header, TensorInfo, open_regular, read_header, shown
from pytest_specprobe.checkpoint.tokens import TokenFacts, read_token_facts
from pytest_specprobe.errors import CheckpointError, Culprit
from pytest_specprobe.reading import Bounds, Unreadable, parse_json, pieces

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MAX_CONFIG_BYTES = 4 << 20
MAX_INDEX_BYTES = 64 << 20  # a terabyte of experts has about 140,000 tensors, 15 MB of index
MAX_LISTED = 10_000
MAX_SHARDS = 2_000

# Keys under which wrappers (vision, audio) keep the text model's config; first match wins, as in SGLang.
TEXT_CONFIGS = ("thinker_config", "llm_config", "language_config", "text_config")

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors SGLang would read from a directory, by name.

    ``files`` are the safetensors files it would open, ``index`` the weight map if there is one, ``repeated`` the
    names that more than one of the files holds (the last one read wins in the engine).
    """

    tensors: Mapping[str, TensorInfo]
    files: tuple[Path, ...]
    index: Mapping[str, str] | None
    repeated: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True, slots=True)
class DrafterFiles:
    """One drafter directory: its config, its weights, and the names of all files beside them."""

    path: Path
    config: Config
    weights: Weights
    listing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetFiles:
    """One target: its text model's config (unwrapped), the wrapper's config, and what its files say.

    ``tensors`` holds what was looked for and found: keys ``embed`` and ``head``. It is empty when the target was
    given as a bare ``config.json`` or its weights are not there; ``shards_missing`` names files of the index that
    are not on disk.
    """

    path: Path
    config: Config
    wrapper: Config
    tokens: TokenFacts
    tensors: Mapping[str, TensorInfo]
    shards_missing: tuple[str, ...]

    @property
    def architecture(self) -> str | None:
        """The class name that decides how SGLang reads auxiliary layer ids: the text model's, else the wrapper's."""
        for config in (self.config, self.wrapper):
            names = config.get("architectures")
            if isinstance(names, list) and names and isinstance(names[0], str):
                return names[0]
        return None

    @property
    def mla(self) -> bool:
        """Whether the target has multi-head latent attention."""
        return "kv_lora_rank" in self.config

    def size(self, key: str) -> int | None:
        """Return a positive integer of the text config, or None."""
        value = self.config.get(key)
        return value if type(value) is int and value > 0 else None

    @property
    def vocab_rows(self) -> int | None:
        """Rows of the embedding: from its tensor if that was found, else ``vocab_size`` of the config."""
        embed = self.tensors.get("embed")
        return embed.shape[0] if embed and len(embed.shape) == 2 else self.size("vocab_size")


def load_drafter(path: Path) -> DrafterFiles:
    """Read a drafter directory; raise :class:`CheckpointError` on the first thing that cannot be read."""
    require_directory(path, culprit="drafter-file")
    return DrafterFiles(
        path=path,
        config=read_config(path / CONFIG, culprit="drafter-config"),
        weights=read_weights(path),
        listing=list_files(path),
    )


def load_target(path: Path) -> TargetFiles:
    """Read a target directory or a ``config.json``; raise :class:`CheckpointError` if its config is unusable."""
    bare = not path.is_dir()
    wrapper = read_config(path if bare else path / CONFIG, culprit="target")
    text = text_config(wrapper)
    folder = path.parent if bare else path
    tensors, missing = ({}, ()) if bare else _target_tensors(path)
    return TargetFiles(
        path=path,
        config=text,
        wrapper=wrapper,
        tokens=read_token_facts(folder, configs=(text, wrapper)),
        tensors=tensors,
        shards_missing=missing,
    )


def text_config(config: Config) -> Config:
    """Return the text model's config of a wrapper (Kimi-K2.5, Qwen-VL, ...), or the config itself."""
    # Two wrappers deep is the deepest in use (thinker -> text).
    for _ in range(2):
        inner = next((config[key] for key in TEXT_CONFIGS if isinstance(config.get(key), dict)), None)
        if inner is None or not ("hidden_size" in inner or any(key in inner for key in TEXT_CONFIGS)):
            break
        config = inner
    return config


def require_directory(path: Path, *, culprit: Culprit) -> None:
    """Raise :class:`CheckpointError` unless ``path`` is a directory that can be listed."""
    try:
        found = path.is_dir()
        if found:
            os.scandir(path).close()
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{shown(path)} cannot be read: {error}", culprit=culprit, fix="check the path and its permissions"
        ) from error
    if not found:
        raise CheckpointError(
            f"there is no directory {shown(path)}",
            culprit=culprit,
            finding_id="file.missing",
            fix="give the directory that holds config.json and the safetensors files",
        )


def list_files(path: Path) -> tuple[str, ...]:
    """Return the names in a directory, sorted, at most ``MAX_LISTED``; odd bytes come as surrogate escapes."""
    with os.scandir(path) as entries:
        names = [entry.name for entry, _ in zip(entries, range(MAX_LISTED), strict=False)]
    return tuple(sorted(names))


def read_json(path: Path, *, limit: int, culprit: Culprit) -> dict[str, Any]:
    """Return one JSON object of at most ``limit`` bytes; raise :class:`CheckpointError` for anything else."""
    with open_regular(path, culprit=culprit) as (file, size):
        body = b"" if size > limit else b"".join(pieces(file, limit + 1))
    if max(size, len(body)) > limit:
        raise _bad_json(path, culprit, f"{size:,} bytes is beyond the {limit:,} that are read")
    if body.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            f"{shown(path)} is a Git LFS pointer",
            culprit=culprit,
            finding_id="file.lfs-pointer",
            fix="run `git lfs pull` in the checkpoint's repository",
        )
    try:
        # Some real configs say Infinity, and a staged copy says it too.
        value = parse_json(body, Bounds(size=limit), numbers="any")
    except Unreadable as error:
        raise _bad_json(path, culprit, f"it {error}") from error
    if not isinstance(value, dict):
        raise _bad_json(path, culprit, "not an object")
    return value


def read_config(path: Path, *, culprit: Culprit) -> dict[str, Any]:
    """Return a ``config.json``; raise :class:`CheckpointError` if it is missing or no JSON object."""
    return read_json(path, limit=MAX_CONFIG_BYTES, culprit=culprit)


def read_weights(path: Path) -> Weights:
    """Read the headers of every safetensors file that SGLang would open in a drafter directory."""
    headers = [read_header(path / name) for name in weight_files(path)]
    return _merge(headers, read_index(path, culprit="drafter-file"))


def weight_files(path: Path) -> list[str]:
    """Return the names of the drafter's safetensors files, sorted; raise if there are none, or far too many."""
    names = weight_names(path, culprit="drafter-file")
    if not names:
        raise _no_weights(path)
    if len(names) > MAX_SHARDS:
        raise CheckpointError(
            f"{shown(path)} has {len(names):,} weight files, more than the {MAX_SHARDS:,} that are read",
            culprit="drafter-file",
            fix="point at one checkpoint's own directory",
        )
    return names


def weight_names(path: Path, *, culprit: Culprit) -> list[str]:
    """Return the names of the safetensors files that SGLang would open, sorted; those of an index may be absent."""
    index = read_index(path, culprit=culprit)
    return sorted(set(index.values())) if index is not None else _loose_shards(list_files(path))


def read_index(path: Path, *, culprit: Culprit) -> dict[str, str] | None:
    """Return the weight map of a sharded checkpoint, or None if there is no index.

    Raises :class:`CheckpointError` if it is malformed or names a file outside the directory.
    """
    file = path / INDEX
    if not os.path.lexists(file):
        return None
    weight_map = read_json(file, limit=MAX_INDEX_BYTES, culprit=culprit).get("weight_map")
    if not isinstance(weight_map, dict) or set(map(type, weight_map.values())) - {str}:
        raise _bad_json(file, culprit, "weight_map is not a table of file names")
    outside = next((name for name in set(weight_map.values()) if not _inside(name)), None)
    if outside is not None:
        raise CheckpointError(
            f"{shown(file)} names a file outside its directory: {shown(outside)!r}",
            culprit=culprit,
            finding_id="file.index-path",
            fix="export the checkpoint again; an index holds plain file names",
        )
    return weight_map


def _inside(name: str) -> bool:
    pure = PurePosixPath(name)
    return bool(name) and "\0" not in name and not pure.is_absolute() and ".." not in pure.parts


def _loose_shards(listing: Iterable[str]) -> list[str]:
    """Return the safetensors files of a directory without an index, as SGLang picks them."""
    names = [name for name in listing if name.endswith(".safetensors")]
    # One special case of the engine: a Mistral-style consolidated copy beside the real file is skipped.
    if len(names) == 2 and names[0].endswith("consolidated.safetensors") and names[1].endswith("model.safetensors"):
        return names[1:]
    return names


def _merge(headers: Iterable[Header], index: Mapping[str, str] | None) -> Weights:
    tensors: dict[str, TensorInfo] = {}
    repeated: list[str] = []
    files: list[Path] = []
    for header in headers:
        repeated += [name for name in header.tensors if name in tensors]
        tensors |= header.tensors
        files.append(header.path)
    return Weights(tensors=tensors, files=tuple(files), index=index, repeated=tuple(repeated))


def _no_weights(path: Path) -> CheckpointError:
    pickled = [name for name in list_files(path) if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if pickled:
        return CheckpointError(
            f"{shown(path)} has only pickled weights ({shown(', '.join(pickled[:3]))}); they are never loaded here",
            culprit="drafter-file",
            finding_id="file.pickled",
            fix="convert them to safetensors in a sandbox, then probe the result",
        )
    return CheckpointError(
        f"{shown(path)} has no safetensors file",
        culprit="drafter-file",
        finding_id="file.missing",
        fix="download the weights beside config.json",
    )


def _bad_json(path: Path, culprit: Culprit, what: str) -> CheckpointError:
    return CheckpointError(
        f"{shown(path)} is not usable JSON: {what}",
        culprit=culprit,
        finding_id="file.bad-json",
        fix="restore the file",
    )


# Where targets keep their embedding and head, wrapped or not; compared by suffix.
_EMBED = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight")
_HEAD = ("lm_head.weight",)


def _target_tensors(path: Path) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """Find the embedding and the head through the index, reading only the headers that hold them."""
    index = read_index(path, culprit="target")
    listing = frozenset(list_files(path))
    if index is None:
        names = _loose_shards(sorted(listing))
        tensors = {name: t for file in names[:MAX_SHARDS] for name, t in _target_header(path / file).items()}
        return _pick(tensors), ()
    missing = tuple(sorted({file for file in index.values() if file not in listing and not (path / file).is_file()}))
    wanted = {file for name, file in index.items() if name.endswith(_EMBED + _HEAD)} - set(missing)
    tensors = {name: t for file in sorted(wanted) for name, t in _target_header(path / file).items()}
    return _pick(tensors), missing


def _target_header(path: Path) -> Mapping[str, TensorInfo]:
    return read_header(path, culprit="target").tensors


def _pick(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Choose the language model's embedding and head: the shortest matching name outside vision towers."""
    found: dict[str, TensorInfo] = {}
    for key, suffixes in (("embed", _EMBED), ("head", _HEAD)):
        names = [n for n in tensors if n.endswith(suffixes) and not any(p in n for p in ("vision", "visual", "mtp"))]
        names = [n for n in names if len(tensors[n].shape) == 2]
        if names:
            found[key] = tensors[min(names, key=lambda n: (n.count("."), len(n)))]
    return found
