"""The position patch: make the drafter's context length reach the target's, touching nothing else.

SGLang gives the draft model the *target's* context length and refuses to boot where that exceeds what it derives
from the drafter's own config (``configs/model_config.py``, ``_derive_context_length``). The rules of that
derivation (``utils/hf_transformers/common.py``, ``get_context_length``) are followed here.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

from pytest_specprobe.checkpoint.checks.rope import LONGEST, is_factor
from pytest_specprobe.errors import CheckpointError

# In SGLang's order: the first one present gives the context length.
_LENGTH_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_ROPE_TABLE_KEY = "max_position_embeddings"
_DEFAULT_LENGTH = 2048

Edits = dict[str, tuple[Any, Any]]


def context_length(config: Mapping[str, Any]) -> int:
    """Return the context length in tokens that SGLang derives from a model's ``config.json``.

    :raises CheckpointError: if a length is not a positive integer, or a RoPE factor not a positive number.
    """
    text = _text_config(config)
    for key in _LENGTH_KEYS:
        if text.get(key) is not None:
            return int(_rope_factor(text) * _length(text, key))
    return int(_rope_factor(text) * _DEFAULT_LENGTH)


def patch_positions(config: Mapping[str, Any], *, target_positions: int) -> tuple[dict[str, Any], Edits]:
    """Return a copy of ``config`` whose context length reaches ``target_positions`` tokens, and every edit.

    A drafter that already reaches them is left alone: SGLang then cuts it to the target's length by itself, and
    a needless edit could only change its RoPE. Edits map a key (``text_config.`` before a nested one) to
    ``(old, new)``; old is None where the key was absent. RoPE itself is never edited.
    """
    patched: dict[str, Any] = copy.deepcopy(dict(config))
    if context_length(config) >= target_positions:
        return patched, {}
    text = _text_config(patched)
    prefix = "" if text is patched else "text_config."
    needed = math.ceil(target_positions / _rope_factor(text))
    present = [key for key in _LENGTH_KEYS if text.get(key) is not None]
    # The first key present decides whether SGLang boots; the RoPE table is sized by the last.
    edits: Edits = {}
    for key in dict.fromkeys((*present[:1], _ROPE_TABLE_KEY)):
        old = text.get(key)
        if old is None or _length(text, key) < needed:
            text[key] = needed
            edits[prefix + key] = (old, needed)
    return patched, edits


def _text_config(config: Mapping[str, Any]) -> Any:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _rope_factor(config: Mapping[str, Any]) -> float:
    # Older transformers writes rope_scaling, newer rope_parameters; SGLang reads either through the same property.
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return 1.0
    if "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3":
        return 1.0
    factor = scaling.get("factor", 1)
    if not is_factor(factor):
        raise CheckpointError(
            f"config.json: RoPE factor is {factor!r}, not a positive number (between 1e-6 and 1e6)"[:200],
            culprit="drafter-config",
            fix="correct rope_scaling (or rope_parameters) in the drafter's config.json",
        )
    return float(factor)


def _length(config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LONGEST:
        raise CheckpointError(
            f"config.json: {key} is {str(value)[:40]}, not a positive integer (of at most 36 digits)",
            culprit="drafter-config",
            fix=f"set {key} to the context length the drafter was trained for",
        )
    return value
