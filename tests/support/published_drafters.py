"""Drafters in the shape of published ones: their configs, and sparse files of their sizes."""

import json
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pytest_specprobe.checkpoint.engine.architectures import ARCHITECTURES
from pytest_specprobe.checkpoint.engine.shape import LLAMA, MLA, Shape, shape_of
from tests.support import checkpoint_builder as build


@dataclass(frozen=True)
class Published:
    """A drafter's config facts, its target's, and the findings that are right for it (beside passing ones)."""

    name: str
    drafter: dict[str, Any]
    target: dict[str, Any]
    layer: str = "midlayer."
    notes: set[str] = field(default_factory=set)
    witness: bool = True
    embedding: bool = False


# One line a model reads like the table it was taken from, hence the positions.
def llama(hidden: int, heads: int, kv: int, mlp: int, vocab: int, positions: int, **more: Any) -> dict[str, Any]:  # noqa: PLR0917
    return {
        "architectures": [LLAMA], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": mlp, "num_hidden_layers": 1,
        "vocab_size": vocab, "draft_vocab_size": 32_000, "max_position_embeddings": positions, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
    } | more  # fmt: skip


def dense(name: str, hidden: int, layers: int, vocab: int, positions: int, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [name], "hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": vocab,
        "num_attention_heads": 32, "max_position_embeddings": positions, "torch_dtype": "bfloat16",
    } | more  # fmt: skip


def ids(*values: int) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(values), "use_aux_hidden_state": True}}


YARN = {
    "type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0, "beta_slow": 1.0,
    "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip
KIMI_MLA = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
K2 = dense("DeepseekV3ForCausalLM", 7168, 61, 163_840, 131_072, rope_theta=50_000.0, rope_scaling=YARN, **KIMI_MLA)
K25 = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": K2 | {"max_position_embeddings": 262_144, "rope_scaling": YARN | {"factor": 64.0}},
}
KIMI = llama(7168, 64, 64, 18_432, 163_840, 131_072, head_dim=128, rope_theta=1_000_000.0, rope_scaling=None)

PUBLISHED = [
    Published(
        "kimi-k2-llama-shaped",
        KIMI | ids(2, 30, 58) | {"model_type": "kimi_k2"},
        K2,
                witness=False,
    ),
    Published("kimi-k25-llama-shaped", KIMI | ids(2, 30, 58), K25, notes={"rope.positions"}),
    Published(
        "kimi-k25-mla",
        KIMI
        | KIMI_MLA
        | ids(2, 30, 58)
        | {
            "architectures": [MLA], "model_type": "kimi_k2", "max_position_embeddings": 262_144,
            "rope_theta": 50_000.0, "rope_scaling": YARN | {"factor": 64.0},
        },
        K25,
        layer="layers.0.",
        embedding=True,
    ),
    Published(
        "kimi-k26-mla-ids-outside",
        KIMI
        | KIMI_MLA
        | {
            "architectures": [MLA], "model_type": "kimi_k2", "max_position_embeddings": 262_144, "fc_norm": True,
            "norm_output": True, "rope_theta": 50_000.0, "rope_scaling": YARN | {"factor": 64.0},
            "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
        },
        K25,
        notes={"fc.aux-absent"},
    ),
    Published(
        "deepseek-r1",
        llama(7168, 32, 8, 29_568, 129_280, 32_768, torch_dtype="bfloat16", rope_theta=10_000.0) | ids(1, 29, 57),
        dense("DeepseekV3ForCausalLM", 7168, 61, 129_280, 163_840, rope_theta=10_000, **KIMI_MLA),
        notes={"rope.positions"},
    ),
    Published(
        "gpt-oss-20b-dense",
        llama(2880, 64, 8, 17_280, 201_088, 4096, head_dim=64, model_type="gpt_oss", rope_theta=150_000.0)
        | ids(1, 11, 21),
        dense("GptOssForCausalLM", 2880, 24, 201_088, 131_072, rope_theta=150_000),
        notes={"rope.positions"},
    ),
    Published(
        "gpt-oss-120b-borrowed-head",
        llama(2880, 64, 8, 17_280, 201_088, 131_072, head_dim=64, draft_vocab_size=None, rope_theta=150_000.0)
        | {"eagle_config": {"use_aux_hidden_state": False}},
        dense("GptOssForCausalLM", 2880, 36, 201_088, 131_072, rope_theta=150_000),
        notes={"fc.aux-off"},
    ),
    Published(
        "qwen3-30b-eagle3.1",
        llama(2048, 32, 4, 12_288, 151_936, 2048, head_dim=128, fc_norm=True, norm_output=True, rope_theta=1e6),
        dense("Qwen3MoeForCausalLM", 2048, 48, 151_936, 262_144, rope_theta=1_000_000.0),
        notes={"fc.aux-absent", "rope.positions"},
    ),
    Published(
        "qwen3-vl-30b",
        llama(
            2048, 32, 4, 6144, 151_936, 262_144, head_dim=128, rope_theta=5_000_000, max_window_layers=None,
            rope_scaling={"mrope_interleaved": True, "mrope_section": [24, 20, 20]}, target_model_type="qwen3_vl_moe",
        ),
        {
            "architectures": ["Qwen3VLMoeForConditionalGeneration"],
            "text_config": dense("", 2048, 48, 151_936, 262_144, rope_theta=5_000_000) | {"architectures": None},
        },
        notes={"fc.aux-absent"},
    ),
    Published(
        "qwen2.5-vl-7b",
        llama(
            3584, 28, 4, 18_944, 152_064, 128_000, head_dim=128, rope_theta=1_000_000,
            rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}, sliding_window=32_768,
        ),
        dense(
            "Qwen2_5_VLForConditionalGeneration", 3584, 28, 152_064, 128_000, rope_theta=1_000_000.0,
            rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]},
        ),
        notes={"fc.aux-absent"},
    ),
    Published(
        "llama4-scout",
        llama(5120, 40, 8, 32_768, 202_048, 4096, rope_theta=500_000.0),
        {
            "architectures": ["Llama4ForConditionalGeneration"],
            "text_config": dense("", 5120, 48, 202_048, 10_485_760, rope_theta=500_000.0) | {"architectures": None},
        },
        notes={"fc.aux-absent", "rope.positions"},
    ),
    Published(
        "llama3-8b-first-release",
        llama(4096, 32, 8, 14_336, 128_256, 2048, rope_theta=500_000.0, torch_dtype="bfloat16"),
        dense(
            "LlamaForCausalLM", 4096, 32, 128_256, 131_072, rope_theta=500_000.0,
            rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 8192},
        ),
        notes={"fc.aux-absent", "rope.positions", "rope.scaling"},
    ),
    Published(
        "vicuna-13b-full-vocabulary",
        llama(5120, 40, 40, 13_824, 32_000, 4096, rope_theta=10_000.0),
        dense("LlamaForCausalLM", 5120, 40, 32_000, 4096, rope_theta=10_000.0),
        notes={"fc.aux-absent"},
    ),
    Published(
        "longcat-flash-full-vocabulary",
        llama(6144, 64, 16, 12_288, 131_072, 131_072, head_dim=128, rope_theta=1e7, draft_vocab_size=131_072),
        dense("LongcatFlashForCausalLM", 6144, 28, 131_072, 131_072, rope_theta=10_000_000.0),
        notes={"fc.aux-absent"},
    ),
    Published(
        "llama3-70b-small-drafter",
        llama(6144, 48, 8, 16_384, 128_256, 131_072, target_hidden_size=8192, rope_theta=500_000.0) | ids(1, 39, 76),
        dense("LlamaForCausalLM", 8192, 80, 128_256, 131_072, rope_theta=500_000.0),
        embedding=True,
    ),
    Published(
        "two-layers",
        llama(4096, 32, 8, 12_288, 151_936, 40_960, num_hidden_layers=2, rope_theta=1_000_000.0) | ids(1, 17, 32),
        dense("Qwen3ForCausalLM", 4096, 36, 151_936, 40_960, rope_theta=1_000_000.0),
        layer="layers.0.",
    ),
]  # fmt: skip


def file_names(shape: Shape, *, layer: str, embedding: bool) -> dict[str, tuple[int, ...]]:
    """The tensors that an exporter writes for this shape: parts of fused parameters, no ``model.`` prefix."""
    written = {}
    for name, parameter in ARCHITECTURES[shape.architecture].parameters(shape).items():
        if not parameter.needed and not (embedding and "embed_tokens" in name):
            continue
        bare = name.removeprefix("model.").replace("midlayer.", layer).replace("layers.0.", layer)
        if not parameter.parts:
            written[bare] = parameter.shape
        for part, dims in parameter.parts.items():
            fused = next(f for f in ("qkv_proj", "gate_up_proj", "fused_qkv_a_proj_with_mqa") if f in bare)
            written[bare.replace(fused, part)] = dims
    return written


def write_sparse(path: Path, tensors: dict[str, tuple[int, ...]], tables: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write a safetensors file of full size whose BF16 weights are a hole, but for a few values in each."""
    entries: dict[str, Any] = {}
    offset = 0
    plan = [(n, "BF16", s, 2 * prod(s)) for n, s in tensors.items()]
    plan += [(n, "BOOL" if t.dtype == np.bool_ else "I64", t.shape, t.nbytes) for n, t in tables.items()]
    for name, dtype, shape, nbytes in plan:
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + nbytes]}
        offset += nbytes
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + offset)
        for name, entry in entries.items():
            file.seek(8 + len(header) + entry["data_offsets"][0])
            # 0.5 in bf16, so that no matrix looks constant: the rest of it is zero.
            file.write(tables[name].tobytes() if name in tables else b"\x00\x3f")


def make(published: Published, path: Path) -> tuple[Path, Path]:
    """Write the drafter (sparse) and its target's config; return both paths."""
    drafter, target = path / "drafter", path / "target"
    drafter.mkdir(parents=True)
    target.mkdir(parents=True)
    (drafter / "config.json").write_text(json.dumps(published.drafter))
    (target / "config.json").write_text(json.dumps(published.target))
    shape = shape_of(published.drafter)
    assert shape is not None
    tables: dict[str, np.ndarray[Any, Any]] = {}
    if shape.draft_vocab is not None and shape.draft_vocab < shape.vocab:
        d2t, t2d = build.mapping(np.random.default_rng(0), draft=shape.draft_vocab, vocab=shape.vocab)
        tables = {"d2t": d2t, "t2d": t2d} if published.witness else {"d2t": d2t}
    tensors = file_names(shape, layer=published.layer, embedding=published.embedding)
    write_sparse(drafter / "model.safetensors", tensors, tables)
    return drafter, target
