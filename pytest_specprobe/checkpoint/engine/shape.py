"""A drafter's sizes and switches, from its ``config.json``, as SGLang's loader would take them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_specprobe.checkpoint.files.folder import Config

LLAMA = "LlamaForCausalLMEagle3"
MLA = "Eagle3DeepseekV2ForCausalLM"

# What the engine needs as positive integers. Absent ones would silently become Llama-2-7B's (32 layers of 4096).
SIZES = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers", "vocab_size")
MLA_SIZES = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
OPTIONS = ("num_key_value_heads", "head_dim", "target_hidden_size", "num_aux_hidden_states")
DEFAULT_AUX = 3
# No real size comes near these. Beyond them a number is a typing error or an attack, and nothing is built from it.
MAX_SIZE = 1 << 24
MAX_LAYERS = 1000
_COUNTS = ("num_hidden_layers", "num_aux_hidden_states")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes in elements; ``aux`` counts the target layers whose hidden states feed ``fc``.

    ``draft_vocab`` is None when the head is borrowed from the target (``draft_vocab_size`` null). ``mla`` holds the
    five ranks and head widths of an MLA drafter, in the order of ``MLA_SIZES``.
    """

    architecture: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    layers: int
    vocab: int
    target_hidden: int
    aux: int
    use_aux: bool
    draft_vocab: int | None
    tied: bool
    fc_bias: bool
    attention_bias: bool
    norm_before_fc: bool
    fc_norm: bool
    mla: tuple[int, int, int, int, int] | None

    @property
    def head_rows(self) -> int:
        """Rows of the head that the engine builds."""
        return self.vocab if self.draft_vocab is None else self.draft_vocab

    @property
    def borrows_embedding(self) -> bool:
        """Whether the engine replaces the drafter's embedding with the target's."""
        return self.target_hidden == self.hidden


def architecture_of(config: Config) -> str | None:
    """Return ``architectures[0]``, the class SGLang loads, or None."""
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def eagle_config(config: Config) -> Mapping[str, Any]:
    """Return the nested ``eagle_config`` table, empty if absent."""
    value = config.get("eagle_config")
    return value if isinstance(value, dict) else {}


def aux_ids(config: Config) -> list[Any] | None:
    """Return the auxiliary layer ids that SGLang hands to the target: only those inside ``eagle_config`` count."""
    value = eagle_config(config).get("eagle_aux_hidden_state_layer_ids")
    return value if isinstance(value, list) else None


def required_sizes(config: Config) -> tuple[str, ...]:
    """Return the names of the sizes that this drafter's class needs."""
    return SIZES + MLA_SIZES if architecture_of(config) == MLA else SIZES


def unusable_sizes(config: Config) -> tuple[str, ...]:
    """Return the required sizes that are absent or no positive integer of a plausible size."""
    return tuple(key for key in required_sizes(config) if not is_size(key, config.get(key)))


def unusable_options(config: Config) -> tuple[str, ...]:
    """Return the optional sizes that are there, not null, and no positive integer of a plausible size."""
    return tuple(key for key in OPTIONS if config.get(key) is not None and not is_size(key, config[key]))


def shape_of(config: Config) -> Shape | None:
    """Return the shape, or None if the class is unknown or a size is unusable (``config.*`` checks say which)."""
    name = architecture_of(config)
    if name not in (LLAMA, MLA) or unusable_sizes(config):
        return None
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    draft_vocab = config.get("draft_vocab_size")
    if draft_vocab is not None and not is_size("draft_vocab_size", draft_vocab):
        return None
    aux = _aux_count(config, name)
    target_hidden = config.get("target_hidden_size")
    if aux is None or unusable_options(config):
        return None
    eagle = eagle_config(config)
    return Shape(
        architecture=name,
        hidden=hidden,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        intermediate=config["intermediate_size_mlp" if _llama4(config) else "intermediate_size"],
        layers=config["num_hidden_layers"],
        vocab=config["vocab_size"],
        target_hidden=target_hidden or hidden,
        aux=aux,
        use_aux=bool(eagle.get("use_aux_hidden_state", True)),
        draft_vocab=draft_vocab,
        tied=bool(config.get("tie_word_embeddings", False)),
        fc_bias=bool(config.get("bias", False)),
        attention_bias=bool(config.get("attention_bias", False) or config.get("bias", False)),
        norm_before_fc=name == LLAMA and bool(eagle.get("norm_before_fc", config.get("norm_before_fc", False))),
        fc_norm=bool(config.get("fc_norm") or config.get("use_aux_norm", False)),
        mla=tuple(config[key] for key in MLA_SIZES) if name == MLA else None,
    )


def _aux_count(config: Config, name: str) -> int | None:
    """How many layers the engine concatenates; None if the config says something that is no count."""
    nested = eagle_config(config).get("eagle_aux_hidden_state_layer_ids")
    if name == LLAMA:
        declared = config.get("num_aux_hidden_states")
        if declared is not None:
            return declared if is_size("num_aux_hidden_states", declared) else None
        # An empty list falls through to the default here, though the target then captures nothing.
        count = len(nested) if isinstance(nested, list) and nested else DEFAULT_AUX
        return count if count <= MAX_LAYERS else None
    ids = nested if nested is not None else config.get("eagle_aux_hidden_state_layer_ids")
    if ids is None:
        return DEFAULT_AUX
    return len(ids) if isinstance(ids, list) and 0 < len(ids) <= MAX_LAYERS else None


def _llama4(config: Config) -> bool:
    return config.get("model_type") == "llama4_text" and is_size("", config.get("intermediate_size_mlp"))


def is_size(key: str, value: object) -> bool:
    """Whether a config's value can be the size of that name: a positive integer that is not absurd."""
    return type(value) is int and 0 < value <= (MAX_LAYERS if key in _COUNTS else MAX_SIZE)
