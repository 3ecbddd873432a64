"""Make, or find again, the staged directory of a checkpoint.

::

    CACHE/
      .NAME-KEY.lock              one process at a time makes a directory (mode 0600)
      .NAME-KEY.XXXXXXXX.tmp/     being made; renamed when complete
      NAME-KEY/
        config.json               written anew, edited
        model.safetensors         clone of the source, whose bytes it cannot change (see copy.py)
        specprobe-staged.json     manifest: where from, every edit, SHA-256 of every file

KEY names the source's content and the edits, so an equal request finds an equal directory. Folders have mode 0700 and
files 0600: a source that others may not read is not read through its copy.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_specprobe.checkpoint.files.folder import CONFIG
from pytest_specprobe.errors import CheckpointError, StagingError
from pytest_specprobe.private import require_file, require_folder
from pytest_specprobe.reading import Bounds, Unreadable, read_bytes, read_json
from pytest_specprobe.staging.blind import fc_ranges, zero
from pytest_specprobe.staging.cache import locked, prepare
from pytest_specprobe.staging.copy import copy_new, same_bytes, write_new
from pytest_specprobe.staging.own_code import without_code
from pytest_specprobe.staging.positions import Edits, patch_positions
from pytest_specprobe.staging.sources import Source, hash_file, read_source

MANIFEST = "specprobe-staged.json"
_MANIFEST_BOUNDS = Bounds(size=4 << 20)
_Blinded = dict[str, dict[str, tuple[int, int]]]  # file -> tensor -> bytes to zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A staged directory: where it is, what it was made from, and every edit.

    ``source_digest`` is the SHA-256 (hex) over the names and contents of the staged source files. ``patched``
    maps each edited key of ``config.json`` to ``(old, new)``; None stands for a key that was or is absent. With
    ``blind`` the bytes of ``fc.weight`` (and ``fc.bias``) are zero in the staged copy.
    """

    path: Path
    source: Path
    source_digest: str
    patched: Mapping[str, tuple[Any, Any]]
    blind: bool


def stage(source: Path, *, cache: Path, target_positions: int | None, blind: bool = False) -> Staged:
    """Stage a checkpoint below ``cache``; reuse an identical staged directory that is intact.

    The source is never written. Safe under several processes at once: a directory appears complete or not at all.

    :param target_positions: the target's context length in tokens, as SGLang derives it; None edits no positions.
    :param blind: zero ``fc.weight`` and ``fc.bias`` in a private copy of their shard (the blind control).
    :raises CheckpointError: the source is missing, hostile or not a safetensors checkpoint.
    :raises StagingError: the staged directory could not be made.
    """
    checkpoint = read_source(source)
    config, patched = without_code(checkpoint.config)
    if target_positions is not None:
        config, reached = patch_positions(config, target_positions=target_positions)
        patched |= reached
    config_bytes = _dump(config) if patched else checkpoint.config_bytes
    name = _name(checkpoint, patched, blind=blind)
    final = cache / name
    try:
        prepare(cache)
        with locked(cache, name):
            blinded = _fc_of(checkpoint) if blind else {}
            if not (final.is_dir() and _intact(final, checkpoint, config_bytes, blinded)):
                _make(final, checkpoint, config_bytes, patched, blinded)
            # When it was last asked for: what nobody asks for is pruned one day.
            with contextlib.suppress(OSError):
                os.utime(final)
    except OSError as error:
        raise StagingError(
            f"could not stage {source} at {final}: {error.strerror or error}",
            culprit="machine",
            fix=f"make {cache} writable and give it room, or point the cache at another directory",
        ) from error
    return Staged(path=final, source=source, source_digest=checkpoint.digest, patched=patched, blind=blind)


def _name(checkpoint: Source, patched: Edits, *, blind: bool) -> str:
    key = hashlib.sha256(json.dumps([2, checkpoint.digest, sorted(patched.items()), blind]).encode()).hexdigest()[:20]
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", checkpoint.path.resolve().name)[:40].strip("-") or "checkpoint"
    return f"{slug}-blind-{key}" if blind else f"{slug}-{key}"


def _make(final: Path, checkpoint: Source, config_bytes: bytes, patched: Edits, blinded: _Blinded) -> None:
    # Under the lock, so any other half-made directory of this name belongs to a process that was killed.
    for stale in final.parent.glob(f".{final.name}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
    try:
        hashes = dict(checkpoint.hashes)
        for name, file in checkpoint.files.items():
            staged = temporary / name
            if name == CONFIG:
                write_new(staged, config_bytes)
                hashes[name] = hash_file(staged)
                continue
            try:
                copied = copy_new(file, staged)
            except Unreadable:
                copied = None
            if copied != checkpoint.hashes[name]:
                raise StagingError(
                    f"{file} changed while it was staged",
                    culprit="drafter-file",
                    fix="wait until the checkpoint is written, then probe again",
                )
            if name in blinded:
                zero(staged, blinded[name], source=file)
                hashes[name] = hash_file(staged)
        manifest = {
            "schema": 1,
            "source": str(checkpoint.path),
            "source_digest": checkpoint.digest,
            "patched": patched,
            "blind": bool(blinded),
            "files": hashes,
        }
        write_new(temporary / MANIFEST, _dump(manifest))
        if final.exists():
            # Damaged. Moved aside first, so that no moment has a half-removed directory under the final name.
            broken = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
            final.rename(broken / "broken")
            shutil.rmtree(broken, ignore_errors=True)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _fc_of(checkpoint: Source) -> _Blinded:
    shards = {n: fc_ranges(f) for n, f in checkpoint.files.items() if n.endswith(".safetensors")}
    found = {name: ranges for name, ranges in shards.items() if ranges}
    if not any(tensor.endswith("fc.weight") for ranges in found.values() for tensor in ranges):
        raise CheckpointError(
            f"{checkpoint.path} has no fc.weight, so no blind control can be made of it",
            culprit="drafter-file",
            fix="check that this is an EAGLE-3 drafter, or probe without the blind control (--no-specprobe-blind)",
        )
    return found


def _intact(final: Path, checkpoint: Source, config_bytes: bytes, blinded: _Blinded) -> bool:
    """Tell whether a staged directory still is what its manifest says, and was made from this very source."""
    try:
        require_folder(final)
        manifest = read_manifest(final)
        hashes = manifest["files"]
        same_source = manifest["source_digest"] == checkpoint.digest and set(hashes) == set(checkpoint.files)
        if not same_source or {f.name for f in final.iterdir()} != {*hashes, MANIFEST}:
            return False
        for name in (*hashes, MANIFEST):
            require_file(final / name)
        if read_bytes(final / CONFIG, limit=len(config_bytes)) != config_bytes:
            return False
        return all(
            same_bytes(final / name, file, zeroed=blinded.get(name, {}).values())
            for name, file in checkpoint.files.items()
            if name != CONFIG
        )
    except (OSError, ValueError, KeyError, TypeError, CheckpointError):
        return False


def read_manifest(folder: Path) -> Any:
    """Return what the manifest of a staged directory says, whatever that is.

    :raises Unreadable: if it cannot be read.
    """
    return read_json(folder / MANIFEST, _MANIFEST_BOUNDS, numbers="any")


def _dump(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
