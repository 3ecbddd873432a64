"""A commented profile for a drafter and a target directory, filled with what their files say.

Invariant: the text is valid TOML that ``load_profiles`` reads, and grants nothing: remote code stays off even where
a config asks for it.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.checkpoint.files.read import DrafterFiles, TargetFiles
from pytest_specprobe.checkpoint.vocab_mapping import vocab_map
from pytest_specprobe.findings import Finding, failed
from pytest_specprobe.staging import context_length

_SMALL_GIB = 2.0
_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A drafter and a target as their files show them; ``gpus`` counts the GPUs of this machine."""

    drafter: DrafterFiles
    target: TargetFiles
    findings: tuple[Finding, ...]
    gpus: int

    @property
    def target_gib(self) -> float:
        """Bytes of the target's weight files on disk, in GiB."""
        folder = self.target.path if self.target.path.is_dir() else self.target.path.parent
        return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2**30


def profile_name(path: Path) -> str:
    """Return a profile's name for a directory: lower case, digits, ``_.-``."""
    name = re.sub(r"[^a-z0-9_.-]+", "_", path.absolute().name.lower()).strip("_.-")
    return name[:80] or "model"


def scaffold(pair: Pair, *, name: str, target_name: str) -> str:
    """Return the text of ``specprobe.toml``; paths are absolute, since the file may end up elsewhere."""
    return "\n".join((*_head(pair), *_target(pair, target_name), *_drafter(pair, name, target_name))) + "\n"


def _head(pair: Pair) -> list[str]:
    wrong = failed(pair.findings)
    checks = f"# specprobe inspect: {len(wrong)} errors, {len(failed(pair.findings, severity='warning'))} warnings"
    return [
        "# Made by `specprobe init`. Check first what would run: pytest --specprobe-drafter=NAME --specprobe-plan",
        checks,
        *(f"#   {_line(f.id)} ({f.culprit}): {_line(f.fix)}" for f in wrong[:5]),
        "",
    ]


def _target(pair: Pair, name: str) -> list[str]:
    target, gib = pair.target, pair.target_gib
    small = 0 < gib < _SMALL_GIB
    remote = "auto_map" in target.wrapper
    note = "config.json names Python files: read them, then set true" if remote else "nothing here asks for it"
    shape = _line(target.architecture or "no architecture named")
    return [
        f"[targets.{_key(name)}]",
        f"# {shape}, {_size(gib)} of weights, context {context_length(target.wrapper):,} tokens",
        f"model = {_text(str(target.path.absolute()))}",
        f"tp = {max(pair.gpus, 1)}"
        + ("" if pair.gpus else "   # no GPU seen here: set it to what serves the target"),
        'devices = ["cuda", "cpu"]' if small else 'devices = ["cuda"]',
        f"trust_remote_code = false   # {note}",
        'server_args = []            # for instance ["--mem-fraction-static", "0.42"]: two servers are up together',
        'baseline = "stored"         # stored (boots one where none is kept) | boot | none | tok/s, e.g. 82.0',
        "",
    ]


def _drafter(pair: Pair, name: str, target_name: str) -> list[str]:
    drafter, target = pair.drafter, pair.target
    mapping = vocab_map(drafter.weights, vocab=target.vocab_rows or 0)
    rows, vocab = (None if mapping is None else len(mapping.ids)), target.vocab_rows
    covers = f"{rows:,} of {vocab:,} tokens can be drafted" if rows and vocab else "drafts the whole vocabulary"
    own, wanted = context_length(drafter.config), context_length(target.wrapper)
    positions = f"max_position_embeddings {own:,}"
    if own < wanted:
        positions += f", patched to {wanted:,} in the staged copy (SGLang refuses to boot otherwise)"
    return [
        f"[drafters.{_key(name)}]",
        f"# {_size(drafter.weights.nbytes / 2**30)}, {covers}",
        f"# {positions}",
        f"source = {_text(str(drafter.path.absolute()))}",
        f"target = {_text(target_name)}",
        "# a chain: num_draft_tokens is num_steps + 1; the largest accept length is num_steps + 1",
        f"speculation = {{ num_steps = {_STEPS}, eagle_topk = 1, num_draft_tokens = {_STEPS + 1} }}",
        "# every threshold is held against an interval's bound, never against a bare number",
        'gate = { accept_verdicts = ["profitable", "finetune"], min_speedup = 0.0, max_regression = 0.0 }',
    ]


def _size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{1024 * gib:.1f} MiB"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    """Return a TOML string: JSON's, which it is but for one control character and for escaped surrogates."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _line(text: str) -> str:
    """Return text for a TOML comment: one line, printable."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
