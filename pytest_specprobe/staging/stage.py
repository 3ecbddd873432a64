"""Make, or find again, the staged directory of a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A staged directory: where it is, what it was made from, and every edit.

    ``source_digest`` is the SHA-256 (hex) over the names and contents of the staged source files. ``patched``
    maps each edited key of ``config.json`` to ``(old, new)``; old is None where the key was absent. With
    ``blind`` the bytes of ``fc.weight`` (and ``fc.bias``) are zero in the staged copy.
    """

    path: Path
    source: Path
    source_digest: str
    patched: Mapping[str, tuple[Any, Any]]
    blind: bool


def stage(source: Path, *, cache: Path, target_positions: int | None, blind: bool = False) -> Staged:
    """Stage a checkpoint below ``cache``; reuse an identical staged directory that is intact.

    :param target_positions: context length of the target in tokens, as SGLang derives it; None leaves positions alone.
    :param blind: zero ``fc.weight`` and ``fc.bias`` in a private copy of their shard (the blind control).
    :raises CheckpointError: the source is missing, hostile or not a safetensors checkpoint.
    :raises StagingError: the staged directory could not be made.
    """
    raise NotImplementedError
