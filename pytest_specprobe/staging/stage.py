"""Make, or find again, the staged directory of a checkpoint.

::

    CACHE/
      .NAME-KEY.lock              one process at a time makes a directory
      .NAME-KEY.XXXXXXXX.tmp/     being made; renamed when complete
      NAME-KEY/
        config.json               written anew, edited
        model.safetensors         hard link to the source (else a symlink, else a copy)
        specprobe-staged.json     manifest: where from, every edit, SHA-256 of every file

KEY names the source's content and the edits, so an equal request finds an equal directory.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pytest_specprobe.checkpoint.folder import CONFIG
from pytest_specprobe.errors import CheckpointError, StagingError
from pytest_specprobe.reading import Bounds, read_bytes, read_json
from pytest_specprobe.staging.blind import fc_ranges, is_zero, zero
from pytest_specprobe.staging.own_code import without_code
from pytest_specprobe.staging.positions import Edits, patch_positions
from pytest_specprobe.staging.sources import Source, hash_file, read_source

logger = logging.getLogger(__name__)

MANIFEST = "specprobe-staged.json"
_MANIFEST_BOUNDS = Bounds(size=4 << 20)
_LOCK_PATIENCE_S = 900.0
_Private = dict[str, dict[str, tuple[int, int]]]  # file to copy and edit -> tensor -> bytes to zero


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
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / f".{name}.lock"):
            private = _private_copies(checkpoint) if blind else {}
            if not (final.is_dir() and _intact(final, checkpoint, config_bytes, private)):
                _make(final, checkpoint, config_bytes, patched, private)
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
    key = hashlib.sha256(json.dumps([1, checkpoint.digest, sorted(patched.items()), blind]).encode()).hexdigest()[:20]
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", checkpoint.path.resolve().name)[:40].strip("-") or "checkpoint"
    return f"{slug}-blind-{key}" if blind else f"{slug}-{key}"


@contextlib.contextmanager
def _lock(path: Path) -> Any:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting for another process that stages the same checkpoint (lock %s)", path)
        try:
            lock.acquire(timeout=_LOCK_PATIENCE_S)
        except Timeout as error:
            raise StagingError(
                f"another process has held {path} for {_LOCK_PATIENCE_S:.0f} s",
                culprit="machine",
                fix="wait for the other run, or end it",
            ) from error
    try:
        yield
    finally:
        lock.release()


def _make(final: Path, checkpoint: Source, config_bytes: bytes, patched: Edits, private: _Private) -> None:
    # Under the lock, so any other half-made directory of this name belongs to a process that was killed.
    for stale in final.parent.glob(f".{final.name}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
    try:
        hashes = dict(checkpoint.hashes)
        for name, file in checkpoint.files.items():
            staged = temporary / name
            if name == CONFIG:
                staged.write_bytes(config_bytes)
                hashes[name] = hash_file(staged)
            elif name in private:
                shutil.copyfile(file, staged)
                zero(staged, private[name], source=file)
                hashes[name] = hash_file(staged)
            else:
                _link(file, staged)
        manifest = {
            "schema": 1,
            "source": str(checkpoint.path),
            "source_digest": checkpoint.digest,
            "patched": patched,
            "blind": bool(private),
            "files": hashes,
        }
        (temporary / MANIFEST).write_bytes(_dump(manifest))
        temporary.chmod(0o755)
        if final.exists():
            # Damaged. Moved aside first, so that no moment has a half-removed directory under the final name.
            broken = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
            final.rename(broken / "broken")
            shutil.rmtree(broken, ignore_errors=True)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _private_copies(checkpoint: Source) -> _Private:
    shards = {n: fc_ranges(f) for n, f in checkpoint.files.items() if n.endswith(".safetensors")}
    found = {name: ranges for name, ranges in shards.items() if ranges}
    if not any(tensor.endswith("fc.weight") for ranges in found.values() for tensor in ranges):
        raise CheckpointError(
            f"{checkpoint.path} has no fc.weight, so no blind control can be made of it",
            culprit="drafter-file",
            fix="check that this is an EAGLE-3 drafter, or probe without the blind control (--no-specprobe-blind)",
        )
    return found


def _link(source: Path, staged: Path) -> None:
    # Another file system, a link limit or a protected source rule out a hard link, not the staging.
    for make in (os.link, os.symlink):
        with contextlib.suppress(OSError):
            make(source, staged)
            return
    shutil.copyfile(source, staged)


def _intact(final: Path, checkpoint: Source, config_bytes: bytes, private: _Private) -> bool:
    """Tell whether a staged directory still is what its manifest says, and was made from this very source."""
    try:
        manifest = read_manifest(final)
        hashes = manifest["files"]
        same_source = manifest["source_digest"] == checkpoint.digest and set(hashes) == set(checkpoint.files)
        if not same_source or {f.name for f in final.iterdir()} != {*hashes, MANIFEST}:
            return False
        if (final / CONFIG).is_symlink() or read_bytes(final / CONFIG, limit=len(config_bytes)) != config_bytes:
            return False
        return all(
            is_zero(final / name, private[name]) and hash_file(final / name) == hashes[name]
            if name in private
            else _same(final / name, file, checkpoint.hashes[name])
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


def _same(staged: Path, source: Path, expected: str) -> bool:
    # The source was hashed a moment ago, so a link to it needs no second look.
    return staged.samefile(source) or hash_file(staged) == expected


def _dump(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
