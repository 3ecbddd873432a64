"""Which parameters SGLang builds for an EAGLE-3 drafter, and which file tensor fills which of them.

One :class:`Architecture` per class name. The tables are compared with the installed SGLang's own modules in a test,
so a new engine version that moves a name fails there and not at a user's probe.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_specprobe.checkpoint.engine.shape import LLAMA, MLA, Shape

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the engine's module: its shape at tensor parallel 1, and the parts a file may hold it in.

    ``parts`` maps a part's name to its shape for fused parameters. ``needed`` is False where the engine never uses
    the file's values (borrowed from the target, or unused by the forward pass).
    """

    shape: Dims
    parts: Mapping[str, Dims] = field(default_factory=dict)
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a file tensor goes: a parameter, and the part of it (empty for the whole)."""

    parameter: str
    part: str = ""


MAPPING = Slot("d2t")
INVERSE = Slot("t2d")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One class of the engine: ``parameters`` by name for a shape; ``place`` a file tensor, None if it is dropped."""

    name: str
    parameters: Callable[[Shape], Mapping[str, Parameter]]
    place: Callable[[str, Mapping[str, Parameter]], Slot | None]


def _common(shape: Shape) -> dict[str, Parameter]:
    """Build what both classes have around their layers."""
    wide = shape.target_hidden * shape.aux
    built = {
        "model.embed_tokens.weight": Parameter((shape.vocab, shape.hidden), needed=not shape.borrows_embedding),
        "model.fc.weight": Parameter((shape.hidden, wide), needed=shape.use_aux),
        "model.norm.weight": Parameter((shape.hidden,)),
    }
    if shape.fc_bias:
        built["model.fc.bias"] = Parameter((shape.hidden,), needed=shape.use_aux)
    if shape.fc_norm:
        built |= {
            f"model.fc_norm.{i}.weight": Parameter((shape.target_hidden,), needed=shape.use_aux)
            for i in range(shape.aux)
        }
    if not shape.tied:
        built["lm_head.weight"] = Parameter((shape.head_rows, shape.hidden), needed=shape.draft_vocab is not None)
    return built


def _mlp(prefix: str, shape: Shape) -> dict[str, Parameter]:
    half = (shape.intermediate, shape.hidden)
    return {
        f"{prefix}.mlp.gate_up_proj.weight": Parameter(
            (2 * shape.intermediate, shape.hidden), parts={"gate_proj": half, "up_proj": half}
        ),
        f"{prefix}.mlp.down_proj.weight": Parameter((shape.hidden, shape.intermediate)),
    }


def _llama_parameters(shape: Shape) -> dict[str, Parameter]:
    built = _common(shape)
    if shape.norm_before_fc:
        built["model.input_norm.weight"] = Parameter((shape.target_hidden * shape.aux,), needed=shape.use_aux)
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        # Only the first layer concatenates embedding and hidden state, so only it is twice as wide ...
        width = 2 * shape.hidden if layer == 0 else shape.hidden
        built |= {
            f"{prefix}.self_attn.qkv_proj.weight": Parameter(
                (query + 2 * kv, width),
                parts={"q_proj": (query, width), "k_proj": (kv, width), "v_proj": (kv, width)},
            ),
            f"{prefix}.self_attn.o_proj.weight": Parameter((shape.hidden, query)),
            # ... and only it reads its input norm.
            f"{prefix}.input_layernorm.weight": Parameter((shape.hidden,), needed=layer == 0),
            f"{prefix}.hidden_norm.weight": Parameter((shape.hidden,)),
            f"{prefix}.post_attention_layernorm.weight": Parameter((shape.hidden,)),
            **_mlp(prefix, shape),
        }
        if shape.attention_bias:
            built[f"{prefix}.self_attn.o_proj.bias"] = Parameter((shape.hidden,))
    return built


_LLAMA_LEGACY = {
    "midlayer": "layers.0",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}
_LLAMA_FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"}
_MLP_FUSED = {"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}


def _llama_place(name: str, built: Mapping[str, Parameter]) -> Slot | None:
    for old, new in _LLAMA_LEGACY.items():
        name = name.replace(old, new)
    if "d2t" in name:
        return MAPPING
    if "t2d" in name:
        return INVERSE
    part = ""
    for piece, fused in (_LLAMA_FUSED | _MLP_FUSED).items():
        if f".{piece}" in name:
            name, part = name.replace(f".{piece}", f".{fused}"), piece
            break
    found = next((candidate for candidate in (name, f"model.{name}") if candidate in built), None)
    return Slot(found, part) if found else None


def _mla_parameters(shape: Shape) -> dict[str, Parameter]:
    if shape.mla is None:
        raise ValueError("an MLA architecture needs the five MLA sizes")
    q_rank, kv_rank, nope, rope, value = shape.mla
    width, prefix = 2 * shape.hidden, "model.midlayer"
    return {
        **_common(shape),
        f"{prefix}.self_attn.fused_qkv_a_proj_with_mqa.weight": Parameter(
            (q_rank + kv_rank + rope, width),
            parts={"q_a_proj": (q_rank, width), "kv_a_proj_with_mqa": (kv_rank + rope, width)},
        ),
        f"{prefix}.self_attn.q_a_layernorm.weight": Parameter((q_rank,)),
        f"{prefix}.self_attn.q_b_proj.weight": Parameter((shape.heads * (nope + rope), q_rank)),
        f"{prefix}.self_attn.kv_a_layernorm.weight": Parameter((kv_rank,)),
        f"{prefix}.self_attn.kv_b_proj.weight": Parameter((shape.heads * (nope + value), kv_rank)),
        f"{prefix}.self_attn.o_proj.weight": Parameter((shape.hidden, shape.heads * value)),
        f"{prefix}.input_layernorm.weight": Parameter((shape.hidden,)),
        f"{prefix}.hidden_norm.weight": Parameter((shape.hidden,)),
        f"{prefix}.post_attention_layernorm.weight": Parameter((shape.hidden,)),
        **_mlp(prefix, shape),
    }


def _mla_place(name: str, built: Mapping[str, Parameter]) -> Slot | None:
    for slot in (MAPPING, INVERSE):
        if name == slot.parameter or name.endswith(f".{slot.parameter}"):
            return slot
    mapped = re.sub(r"^layers\.0\.", "midlayer.", name)
    if not mapped.startswith("lm_head."):
        mapped = f"model.{mapped}"
    for piece, fused in _MLP_FUSED.items():
        whole = mapped.replace(f".{piece}", f".{fused}")
        if whole != mapped and whole in built:
            return Slot(whole, piece)
    for piece in ("q_a_proj", "kv_a_proj_with_mqa"):
        # The loader looks for the two halves anywhere in a name, so a ready-fused tensor, whose name contains one of
        # them, waits for a partner that never comes and is dropped.
        if piece in mapped:
            whole = mapped.replace(piece, "fused_qkv_a_proj_with_mqa")
            return Slot(whole, piece) if whole in built else None
    return Slot(mapped) if mapped in built else None


ARCHITECTURES: Mapping[str, Architecture] = {
    LLAMA: Architecture(LLAMA, _llama_parameters, _llama_place),
    MLA: Architecture(MLA, _mla_parameters, _mla_place),
}
