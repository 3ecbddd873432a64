"""What a drafter's and a target's directories hold: configs, tensor headers, file names. Nothing is written.

A drafter is a directory with a ``config.json`` and safetensors files. A target is a directory or a bare
``config.json``; of its weights only the headers that hold the embedding and the head are read, so that a sharded
terabyte costs what a small model costs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.checkpoint.files.folder import CONFIG, Config, list_files, read_config, require_directory
from pytest_specprobe.checkpoint.files.header import Header, TensorInfo, read_header
from pytest_specprobe.checkpoint.files.shards import MAX_SHARDS, absent_shards, loose_shards, read_index, weight_files
from pytest_specprobe.checkpoint.files.tokens import TokenFacts, read_token_facts

# Keys under which wrappers (vision, audio) keep the text model's config; first match wins, as in SGLang.
TEXT_CONFIGS = ("thinker_config", "llm_config", "language_config", "text_config")


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


def read_weights(path: Path) -> Weights:
    """Read the headers of every safetensors file that SGLang would open in a drafter directory."""
    headers = [read_header(path / name) for name in weight_files(path)]
    return _merge(headers, read_index(path, culprit="drafter-file"))


def _merge(headers: Iterable[Header], index: Mapping[str, str] | None) -> Weights:
    tensors: dict[str, TensorInfo] = {}
    repeated: list[str] = []
    files: list[Path] = []
    for header in headers:
        repeated += [name for name in header.tensors if name in tensors]
        tensors |= header.tensors
        files.append(header.path)
    return Weights(tensors=tensors, files=tuple(files), index=index, repeated=tuple(repeated))


# Where targets keep their embedding and head, wrapped or not; compared by suffix.
_EMBED = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight")
_HEAD = ("lm_head.weight",)


def _target_tensors(path: Path) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """Find the embedding and the head through the index, reading only the headers that hold them."""
    index = read_index(path, culprit="target")
    if index is None:
        names = loose_shards(list_files(path))
        tensors = {name: t for file in names[:MAX_SHARDS] for name, t in _target_header(path / file).items()}
        return _pick(tensors), ()
    missing = absent_shards(path, index)
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
