"""Does this drafter fit this target: widths, vocabulary, names, quantisation."""

import re
from typing import Any

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, passed, skipped
from pytest_specprobe.checkpoint.engine.shape import shape_of
from pytest_specprobe.checkpoint.files.header import FLOAT_DTYPES, shown

_NAME_KEYS = ("target_model", "target_model_name_or_path", "base_model", "base_model_name_or_path", "verifier_name")
_NO_TARGET = "no target given"


@check(
    "target.hidden",
    culprit="drafter-config",
    asks="the drafter expects hidden states of the target's width",
    why="The embedding cannot be shared and fc meets another width: a crash at boot or at the first forward pass.",
    fix="set target_hidden_size to the target's hidden_size, or use the drafter of this target",
)
def hidden(s: Subject) -> Outcome:
    """Hidden size, by way of target_hidden_size."""
    shape = shape_of(s.config)
    theirs = s.target.size("hidden_size") if s.target else None
    if shape is None or theirs is None:
        return skipped(_NO_TARGET)
    if shape.target_hidden == theirs:
        return passed(f"{theirs:,}")
    return failed(f"{shape.target_hidden:,}", expected=f"{theirs:,}, the target's hidden_size")


@check(
    "target.vocab",
    culprit="drafter-config",
    asks="the drafter's vocab_size is the target's",
    why="Another vocabulary means another tokenizer, whose ids mean other tokens: near-zero acceptance, or a crash "
    "where head or embedding are shared.",
    fix="use a drafter trained for this target's tokenizer",
)
def vocab(s: Subject) -> Outcome:
    """Vocabulary rows, padded or not."""
    shape = shape_of(s.config)
    if shape is None or s.target is None or s.target.vocab_rows is None:
        return skipped(_NO_TARGET)
    rows, config_rows, size = s.target.vocab_rows, s.target.size("vocab_size"), s.target.tokens.size
    if shape.vocab in (rows, config_rows):
        return passed(f"{shape.vocab:,}")
    # A table may be padded beyond the tokenizer on one side only; ids below the tokenizer's size still agree.
    if size is not None and size <= min(shape.vocab, rows):
        return passed(f"{shape.vocab:,} against {rows:,} rows, tokenizer {size:,}: padding only")
    return failed(f"{shape.vocab:,}", expected=f"{rows:,}, the target's rows")


@check(
    "target.name",
    severity="warning",
    asks="the drafter names this target as its own, if it names any",
    why="A drafter of another target with the same sizes loads without complaint and accepts little or nothing.",
    fix="probe it on the target it was trained for, or take this number as a zero-shot one",
)
def name(s: Subject) -> Outcome:
    """Names are hints: only a stated, clearly different one is reported."""
    if s.target is None:
        return skipped(_NO_TARGET)
    stated = _stated_target(s.config)
    if stated is None:
        return skipped("the drafter names no target")
    theirs = [s.target.path.name, s.target.path.parent.name]
    theirs += [str(c["_name_or_path"]) for c in (s.target.config, s.target.wrapper) if c.get("_name_or_path")]
    mine = _plain(stated)
    if any(mine and (mine in _plain(other) or (_plain(other) and _plain(other) in mine)) for other in theirs):
        return passed(shown(stated))
    if all(not re.search(r"[a-z]", _plain(other)) for other in theirs):
        return skipped("the target's path says nothing about its name")
    return failed(shown(stated), expected=shown(s.target.path.name))


def _stated_target(config: Any) -> str | None:
    tables = [config, config.get("eagle_config"), config.get("speculators_config")]
    for table in tables:
        if isinstance(table, dict):
            for key in _NAME_KEYS:
                if isinstance(table.get(key), str) and table[key]:
                    return str(table[key])
    return None


def _plain(text: str) -> str:
    """Return the last path component in lower case without punctuation."""
    return re.sub(r"[^a-z0-9]", "", text.rstrip("/").rpartition("/")[2].lower())


@check(
    "target.quantized",
    severity="info",
    culprit="launch-flags",
    asks="a quantised target does not pass its quantisation on to an unquantised drafter",
    why="With an explicit --quantization the drafter inherits it: the boot fails looking for a quantisation config "
    "in the drafter, or the drafter is silently quantised too.",
    fix="leave --quantization out, or pass --speculative-draft-model-quantization unquant beside it",
)
def quantized(s: Subject) -> Outcome:
    """Target quantised, drafter not."""
    if s.target is None or not s.config:
        return skipped(_NO_TARGET)
    theirs = _quantization(s.target.config) or _quantization(s.target.wrapper)
    if theirs is None or _quantization(s.config) is not None:
        return passed("both or none quantised")
    return failed(f"target {shown(theirs)}, drafter unquantised", expected="the same, or an explicit setting")


def _quantization(config: Any) -> str | None:
    table = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(table, dict):
        return None
    return str(table.get("quant_method") or table.get("quant_algo") or "quantised")


@check(
    "target.packed-embedding",
    culprit="target",
    asks="the target's embedding is stored as plain floats",
    why="A packed embedding (NVFP4) cannot be handed to the drafter: a crash when it is shared.",
    fix="use a target whose quantisation leaves embed_tokens alone",
)
def packed_embedding(s: Subject) -> Outcome:
    """Dtype of the target's embedding."""
    embed = s.target.tensors.get("embed") if s.target else None
    if embed is None:
        return skipped("the target's embedding is not at hand")
    return passed(embed.dtype) if embed.dtype in FLOAT_DTYPES else failed(embed.dtype, expected="BF16, F16 or F32")


@check(
    "target.shards",
    severity="warning",
    culprit="target",
    asks="every file of the target's index is on disk",
    why="The target does not load.",
    fix="download the missing files",
)
def shards(s: Subject) -> Outcome:
    """Index against directory."""
    if s.target is None:
        return skipped(_NO_TARGET)
    lost = s.target.shards_missing
    if not lost:
        return passed("nothing missing")
    return failed(f"{len(lost):,} files missing, first {shown(lost[0])}", expected="all files of the index")


@check(
    "target.dtype",
    severity="warning",
    asks="the drafter's weights are of the target's float type",
    why="fp16 overflows where a bf16 model is fine, strict kernels refuse a mixture, and float32 doubles the cost.",
    fix="convert the drafter to the target's dtype, or pass --dtype for both",
)
def dtype(s: Subject) -> Outcome:
    """Compare the main dtype of the drafter's file with the target's config."""
    theirs = _dtype(s.target.config) or _dtype(s.target.wrapper) if s.target else None
    mine = main_dtype(s)
    if theirs is None or mine is None:
        return skipped("no two dtypes to compare")
    return passed(mine) if mine == theirs else failed(mine, expected=f"{theirs}, as the target")


def main_dtype(s: Subject) -> str | None:
    """Return the float dtype that most of the drafter's bytes have."""
    if s.weights is None:
        return None
    sizes: dict[str, int] = {}
    for tensor in s.weights.tensors.values():
        if tensor.dtype in FLOAT_DTYPES:
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.nbytes
    return max(sizes, key=lambda key: sizes[key]) if sizes else None


def _dtype(config: Any) -> str | None:
    names = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
    value = config.get("torch_dtype") or config.get("dtype")
    return names.get(value) if isinstance(value, str) else None


@check(
    "target.class",
    severity="info",
    culprit="target",
    asks="the target's class is one whose config names it",
    why="A class without the capture hook ends in AttributeError at boot: the engine's limit, not the drafter's.",
    fix="give the target's directory or its full config.json",
)
def target_class(s: Subject) -> Outcome:
    """Presence only."""
    if s.target is None:
        return skipped(_NO_TARGET)
    found = s.target.architecture
    return passed(shown(found)) if found else failed("no architectures", expected="a class name")


CHECKS: tuple[Check, ...] = (hidden, vocab, name, quantized, packed_embedding, shards, dtype, target_class)
