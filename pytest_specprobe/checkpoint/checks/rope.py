"""Positions: how far the drafter's tables reach, and whether it turns them as the target does.

A RoPE difference is a hint and never repaired: one drafter trained at theta 10,000 under a config that says
1,000,000 got worse (2.497 to 2.387) when it was "fixed".
"""

from collections.abc import Mapping
from typing import Any

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.shape import MLA, architecture_of
from pytest_specprobe.checkpoint.files.folder import Config

# Keys in the order in which SGLang looks for a context length.
CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
DEFAULT_THETA = 10_000.0
# Real factors are between 1 and 1,000, and transformers writes 1e30 for "no limit"; any product of these is finite.
LEAST_FACTOR, LARGEST_FACTOR, LONGEST = 1e-6, 1e6, 10**36
_COMPARED = ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast",
             "beta_slow", "mscale", "mscale_all_dim", "attention_factor")  # fmt: skip


def rope_table(config: Config) -> Mapping[str, Any]:
    """Return the RoPE table in use: ``rope_parameters`` (newer spelling) wins over ``rope_scaling``."""
    for key in ("rope_parameters", "rope_scaling"):
        table = config.get(key)
        if isinstance(table, dict):
            return table
    return {}


def theta(config: Config) -> float | None:
    """Return RoPE's base in use: of ``rope_parameters`` if that is there, else the top-level key; None if neither."""
    parameters = config.get("rope_parameters")
    value = parameters.get("rope_theta") if isinstance(parameters, dict) else None
    if value is None:
        value = config.get("rope_theta")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def rope_type(config: Config) -> str:
    """Return the scaling's name under either of its keys; ``default`` without scaling."""
    table = rope_table(config)
    value = table.get("rope_type") or table.get("type")
    return value if isinstance(value, str) else "default"


def context_length(config: Config) -> int | None:
    """Return the context length that SGLang derives: a factor multiplies it except for llama3 and YaRN-style tables.

    Source: SGLang 0.5.23, ``get_context_length``. None where the config gives no length.
    """
    table = rope_table(config)
    factor = table.get("factor", 1)
    if "original_max_position_embeddings" in table or table.get("rope_type") == "llama3" or not is_factor(factor):
        factor = 1
    value = next((config[key] for key in CONTEXT_KEYS if config.get(key) is not None), None)
    return int(factor * value) if type(value) is int and 0 < value <= LONGEST else None


def is_factor(value: object) -> bool:
    """Tell whether a RoPE factor is a number that a context length can be multiplied and divided by."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST_FACTOR <= value <= LARGEST_FACTOR


@check(
    "rope.factor",
    culprit="drafter-config",
    asks="every RoPE factor is a positive number",
    why="SGLang multiplies the context length by it: infinity or zero ends the start, a text is repeated instead.",
    fix="correct factor in rope_parameters (or rope_scaling)",
)
def factor(s: Subject) -> Outcome:
    """Look at both spellings, of the drafter and of its target."""
    mine, theirs = _no_factor(s.config), _no_factor(s.target.config) if s.target else ""
    if theirs and not mine:
        return failed(theirs, expected="a positive number", culprit="target")
    return judged(mine, expected="a positive number", good="positive numbers, where there are any")


def _no_factor(config: Config) -> str:
    tables = {key: config.get(key) for key in ("rope_parameters", "rope_scaling")}
    found = {key: table["factor"] for key, table in tables.items() if isinstance(table, dict) and "factor" in table}
    return next((f"{key}: factor {value!r}"[:80] for key, value in found.items() if not is_factor(value)), "")


@check(
    "rope.positions",
    severity="warning",
    culprit="drafter-config",
    asks="the drafter's positions reach the serving context",
    why="SGLang refuses to boot when the target's context exceeds the drafter's; forced past that, position tables "
    "are read beyond their end (illegal memory access, or slower than no speculation beyond 2k). Many training "
    "templates ship 2,048.",
    fix="staging raises max_position_embeddings in its copy; that avoids the crash and teaches no long context (one "
    "drafter: 2.30 at 2k, 1.08 at 20k)",
    follows=("rope.factor",),
)
def positions(s: Subject) -> Outcome:
    """Drafter value against the serving context, or else the target's."""
    mine = context_length(s.config)
    wanted = s.serving_context or (context_length(s.target.config) if s.target else None)
    if mine is None or wanted is None:
        return skipped("no context length to compare with")
    return passed(f"{mine:,}") if mine >= wanted else failed(f"{mine:,} positions", expected=f"{wanted:,}")


@check(
    "rope.positions-missing",
    culprit="drafter-config",
    asks="config.json gives max_position_embeddings",
    why="Without it the engine takes 2,048.",
    fix="set max_position_embeddings to the target's",
    follows=("config.nested", "config.null-field"),
)
def positions_missing(s: Subject) -> Outcome:
    """Look for a length under any of the keys that the engine reads."""
    if not s.config:
        return skipped("no config.json")
    mine = context_length(s.config)
    return passed(f"{mine:,}") if mine is not None else failed("no max_position_embeddings", expected="a length")


@check(
    "rope.spellings",
    severity="warning",
    culprit="drafter-config",
    asks="both spellings of RoPE, where both are there, say the same",
    why="Newer readers take rope_parameters, older ones rope_theta and rope_scaling (or fall back to 10,000): one "
    "file, two drafters.",
    fix="write the values used in training in both spellings",
    follows=("rope.factor",),
)
def spellings(s: Subject) -> Outcome:
    """rope_parameters against rope_theta and rope_scaling."""
    parameters, old_theta, scaling = (s.config.get(k) for k in ("rope_parameters", "rope_theta", "rope_scaling"))
    if not isinstance(parameters, dict) or (old_theta is None and not isinstance(scaling, dict)):
        return skipped("one spelling only")
    wrong = []
    if old_theta is not None and parameters.get("rope_theta") not in (None, old_theta):
        wrong.append(f"rope_theta {old_theta} and {parameters['rope_theta']}")
    if isinstance(scaling, dict):
        new_factor, old_factor = parameters.get("factor"), scaling.get("factor")
        if new_factor != old_factor:
            wrong.append(f"factor {old_factor} and {new_factor}")
    return judged("; ".join(wrong) if wrong else "", expected="equal values", good="equal")


@check(
    "rope.theta",
    severity="warning",
    culprit="drafter-config",
    asks="the drafter turns positions at the target's base",
    why="A base lost at export costs little at first (3.556 for 3.612) and more with length. It may also be what the "
    "drafter was trained with: 'fixing' one made it worse (2.497 to 2.387).",
    fix="try both values on a copy and keep the better; never change it unmeasured",
)
def base(s: Subject) -> Outcome:
    """Hint at a difference; never repair it."""
    if s.target is None or not s.config:
        return skipped("no target given")
    mine, theirs = theta(s.config), theta(s.target.config)
    if theirs is None:
        return skipped("the target's config has no rope_theta")
    seen = DEFAULT_THETA if mine is None else mine
    if seen == theirs:
        return passed(f"{seen:g}")
    if mine is not None and _other_attention(s):
        return passed(f"{seen:g}, its own under an MLA target")
    return failed(
        f"{seen:g}" if mine is not None else f"none, so {seen:g}", expected=f"{theirs:g}, as the target has"
    )


def _other_attention(s: Subject) -> bool:
    """Whether a Llama-shaped drafter serves an MLA target: its heads have another width and turn on their own."""
    return s.target is not None and "kv_lora_rank" in s.target.config and architecture_of(s.config) != MLA


@check(
    "rope.scaling",
    severity="warning",
    culprit="drafter-config",
    asks="the drafter scales positions as the target does",
    why="Scaling lost at export shows at length. A drafter may also have been trained without it on purpose.",
    fix="compare accept length by context bucket with and without it on a copy",
    follows=("rope.factor",),
)
def scaling(s: Subject) -> Outcome:
    """Type and factors. Only drafters of the target's own attention kind inherit its scaling."""
    if s.target is None or not s.config:
        return skipped("no target given")
    if _other_attention(s) and rope_type(s.config) == "default":
        return passed("plain RoPE under an MLA target")
    mine, theirs = _scaling(s.config), _scaling(s.target.config)
    return passed(f"{mine}") if mine == theirs else failed(f"{mine}", expected=f"{theirs}, as the target has")


def _scaling(config: Config) -> str:
    table, name = rope_table(config), rope_type(config)
    if name in ("default", "mrope"):
        return "no scaling"
    values = [f"{key} {table[key]:g}" for key in _COMPARED if is_factor(table.get(key))]
    return f"{name.removeprefix('deepseek_')} {', '.join(values)}"


CHECKS: tuple[Check, ...] = (factor, positions, positions_missing, spellings, base, scaling)
